/* Rewriting a step for another world size, mesh or layout, without a load: from disk to disk. */
#ifndef DCP_REWRITE_H
#define DCP_REWRITE_H

#include "dcp/checkpoint.h"
#include "dcp/size.h"
#include "dcp/store.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Buffers of a rewrite, where its caller doesn't say how much. */
#define DCP_REWRITE_MEMORY ((uint64_t)96 << 20)
/* The least it needs. */
#define DCP_REWRITE_LEAST ((uint64_t)32 << 20)

typedef struct dcp_rewrite_options {
    size_t size; /* dcp/size.h */
    dcp_layout layout;
    /* Files of DCP_LAYOUT_SHARDED; 0: the communicator's size. Shard r is written by the rank r %
     * size. */
    int shards;
    /* What shard r holds of a tensor; as for dcp_save, the boxes of all shards cover it, and are
     * equal (replicas: the lowest shard has it) or disjoint. NULL: dcp_box_chunk. The same on all
     * ranks. */
    dcp_box (*cut)(void *ctx, const dcp_tensor *tensor, int shard);
    void *cut_ctx;
    /* Of a tensor of which a shard holds more boxes than cut's: number k of the others, from 0; an
     * empty one where there are no more. With cut_ctx. NULL: a shard holds one box of a tensor. */
    dcp_box (*cut_more)(void *ctx, const dcp_tensor *tensor, int shard, int k);
    /* Memory for tensor data, whatever the checkpoint's size; at least DCP_REWRITE_LEAST, 0:
     * DCP_REWRITE_MEMORY. Beside it a rank needs its boxes' descriptions, about 1 KiB a box. */
    uint64_t memory_bytes;
    const char *about_json; /* as in dcp_save_options */
    /* As in dcp_save_options, all on the calling thread. */
    void (*on_progress)(void *ctx, uint64_t done, uint64_t total);
    void *progress_ctx;
    int (*stop)(void *ctx);
    void *stop_ctx;
} dcp_rewrite_options;
#define DCP_REWRITE_OPTIONS_INIT DCP_SIZED(dcp_rewrite_options)

/* Writes the state of `from` into `to`, as the step with the same number and JSON: complete and
 * durable when it returns DCP_OK. Collective over the communicator of both, which has to be one.
 * Each byte is read about once, while others are written. Before the step is published, the
 * checksums of all tensors in the new files are found equal to those in the old ones.
 *   options, report, err   may be NULL.
 * DCP_ERR_CORRUPT: bytes of `from` differ from what was saved; the message names tensor and block.
 * DCP_ERR_ARG: checkpoint and store are on different communicators of several ranks.
 * DCP_ERR_UNSUPPORTED: some rank doesn't see all files of `from`. Others are dcp_save's; nothing is
 * published on any failure. */
DCP_API int dcp_rewrite(dcp_checkpoint *from, dcp_store *to, const dcp_rewrite_options *options,
                        dcp_report *report, dcp_error *err);

#ifdef __cplusplus
}
#endif
#endif
