/* A state's checksums without saving it: whether two runs, two layouts, or memory and a checkpoint
 * hold the same. */
#ifndef DCP_PROVE_H
#define DCP_PROVE_H

#include "dcp/save.h"
#include "dcp/size.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dcp_prove_options {
    size_t size;           /* dcp/size.h */
    dcp_replicas replicas; /* as in dcp_save_options */
    dcp_log_fn log;        /* of DCP_REPLICAS_WARN, on rank 0; may be NULL */
    void *log_ctx;
    /* Asked every few MiB on the calling thread, on each rank for itself: not 0, on one rank or
     * more, and all ranks give up with DCP_ERR_CANCELLED. Not asked again then. NULL: never. */
    int (*stop)(void *ctx);
    void *stop_ctx;
} dcp_prove_options;
#define DCP_PROVE_OPTIONS_INIT DCP_SIZED(dcp_prove_options)

typedef struct dcp_proof dcp_proof;

/* Takes the checksums of all tensors, each rank of what it holds. Collective; the state is what
 * dcp_save takes. Reads and writes no file; memory: that of a save's checksums, 4 MiB of boxes that
 * are behind a source function, 16 MiB of page-locked memory for those on a device.
 *   options   may be NULL.
 *   *out      the same on all ranks; the caller's, freed by dcp_proof_destroy.
 * DCP_ERR_MISMATCH: as dcp_save: ranks disagree about a tensor, boxes overlap or leave elements
 * out, or replicas differ. DCP_ERR_CANCELLED: options->stop. */
DCP_API int dcp_prove(dcp_comm *comm, const dcp_state *state, const dcp_prove_options *options,
                      dcp_proof **out, dcp_error *err);
DCP_API void dcp_proof_destroy(dcp_proof *proof); /* NULL is ignored */

/* The state id: one number for all tensors' paths, types, shapes and checksums. Equal for equal
 * states, whatever the ranks, their boxes and the layout; that of a file: dcp_checkpoint_state_id.
 */
DCP_API uint64_t dcp_proof_id(const dcp_proof *proof);

/* The tensors, bytewise ascending by path. Valid until the proof is destroyed. */
DCP_API size_t dcp_proof_tensors(const dcp_proof *proof);
DCP_API const dcp_tensor *dcp_proof_tensor(const dcp_proof *proof, size_t i);
/* CRC-64 of all bytes of tensor i, row-major; 0 of one without elements. In a file:
 * dcp_checkpoint_crc.
 */
DCP_API uint64_t dcp_proof_crc(const dcp_proof *proof, size_t i);

#ifdef __cplusplus
}
#endif
#endif
