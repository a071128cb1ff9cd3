/* Rewriting of a step for another world size, mesh or layout, from disk to disk, without a load. */
#ifndef DCP_REWRITE_H
#define DCP_REWRITE_H

#include "dcp/checkpoint.h"
#include "dcp/size.h"
#include "dcp/store.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Default memory_bytes of a rewrite. */
#define DCP_REWRITE_MEMORY ((uint64_t)96 << 20)
/* Smallest memory_bytes that a rewrite accepts. */
#define DCP_REWRITE_LEAST ((uint64_t)32 << 20)

typedef struct dcp_rewrite_options {
    size_t size; /* dcp/size.h */
    dcp_layout layout;
    /* Number of files of DCP_LAYOUT_SHARDED; 0: the communicator's size. Shard r is written by rank
     * r % size. */
    int shards;
    /* Returns the box of the tensor that the shard holds. As for dcp_save, the boxes of all shards
     * must cover the tensor, and must be equal (replicas, stored in the lowest shard) or disjoint.
     * Must give the same results on all ranks. NULL: dcp_box_chunk. */
    dcp_box (*cut)(void *ctx, const dcp_tensor *tensor, int shard);
    void *cut_ctx;
    /* For tensors of which a shard holds several boxes. Returns box k, from 0, of those that `cut`
     * does not return, or an empty box if there are no more. Called with cut_ctx. NULL: a shard
     * holds one box of each tensor. */
    dcp_box (*cut_more)(void *ctx, const dcp_tensor *tensor, int shard, int k);
    /* Bytes of memory for tensor data, whatever the checkpoint's size: at least DCP_REWRITE_LEAST.
     * 0: DCP_REWRITE_MEMORY. In addition, a rank needs about 1 KiB per box to describe its
     * boxes. */
    uint64_t memory_bytes;
    const char *about_json; /* as in dcp_save_options */
    /* As in dcp_save_options; all are called on the calling thread. */
    void (*on_progress)(void *ctx, uint64_t done, uint64_t total);
    void *progress_ctx;
    int (*stop)(void *ctx);
    void *stop_ctx;
} dcp_rewrite_options;
#define DCP_REWRITE_OPTIONS_INIT DCP_SIZED(dcp_rewrite_options)

/* Writes the state of `from` to the store `to`, as the step with the same number and JSON.
 * Collective over their communicator, which must be the same for both. On DCP_OK the step is
 * complete and durable. Each byte is read about once; reading and writing overlap. Before the step
 * is published, the checksums of all tensors in the new files are compared with those in the old
 * ones.
 *   options, report, err  may be NULL
 *
 * On failure nothing is published (except that after DCP_ERR_COMM the step may have been published,
 * as with dcp_save).
 * DCP_ERR_CORRUPT: bytes of `from` differ from what was saved; the message names the tensor and the
 * block.
 * DCP_ERR_ARG: the checkpoint and the store are on different communicators of several ranks.
 * DCP_ERR_UNSUPPORTED: a rank does not see all files of `from`. Other errors are those of
 * dcp_save. */
DCP_API int dcp_rewrite(dcp_checkpoint *from, dcp_store *to, const dcp_rewrite_options *options,
                        dcp_report *report, dcp_error *err);

#ifdef __cplusplus
}
#endif
#endif
