/* Checksums of a state without saving it. They show whether two states are the same: for example
 * those of two runs, or one in memory and one in a checkpoint, whatever their layouts. */
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
    dcp_log_fn log;        /* for DCP_REPLICAS_WARN, called on rank 0; may be NULL */
    void *log_ctx;
    /* Called every few MiB on the calling thread, on each rank separately. If it returns a value
     * other than 0 on at least one rank, all ranks give up with DCP_ERR_CANCELLED, and it is not
     * called again. NULL: never called. */
    int (*stop)(void *ctx);
    void *stop_ctx;
} dcp_prove_options;
#define DCP_PROVE_OPTIONS_INIT DCP_SIZED(dcp_prove_options)

typedef struct dcp_proof dcp_proof;

/* Computes the checksums of all tensors; each rank contributes those of its boxes. Collective. It
 * reads and writes no files.
 *   state    as for dcp_save
 *   options  may be NULL
 *   *out     the same on all ranks; owned by the caller, freed with dcp_proof_destroy
 *
 * Memory: what a save uses for its checksums. In addition: 4 MiB if boxes have a source function,
 * and 16 MiB of page-locked memory if boxes are on a device.
 * DCP_ERR_MISMATCH: ranks disagree about a tensor, boxes overlap or leave elements out, or replicas
 * differ, as for dcp_save.
 * DCP_ERR_CANCELLED: options->stop. */
DCP_API int dcp_prove(dcp_comm *comm, const dcp_state *state, const dcp_prove_options *options,
                      dcp_proof **out, dcp_error *err);
DCP_API void dcp_proof_destroy(dcp_proof *proof); /* NULL is ignored */

/* Returns the state id: one number for all tensors' paths, types, shapes and checksums. It is equal
 * for equal states, whatever the ranks, their boxes and the layout. The counterpart for a
 * checkpoint is dcp_checkpoint_state_id. */
DCP_API uint64_t dcp_proof_id(const dcp_proof *proof);

/* Return the number of tensors, and tensor i. Tensors are sorted by path, bytewise ascending.
 * Pointers are valid until the proof is destroyed. */
DCP_API size_t dcp_proof_tensors(const dcp_proof *proof);
DCP_API const dcp_tensor *dcp_proof_tensor(const dcp_proof *proof, size_t i);
/* Returns the CRC-64 of all bytes of tensor i, row-major; 0 for a tensor without elements. The
 * counterpart for a checkpoint is dcp_checkpoint_crc. */
DCP_API uint64_t dcp_proof_crc(const dcp_proof *proof, size_t i);

#ifdef __cplusplus
}
#endif
#endif
