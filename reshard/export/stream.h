/* Moves the data of tensors from the checkpoint into files: reads, converts and writes them in
 * bounded memory. */
#pragma once

#include "export/contents.h"

/* Functions return exit statuses, and report failures themselves. */

/* Receives bytes [offset, offset + bytes) of a tensor as it is exported. */
typedef int (*export_sink)(void *ctx, uint64_t offset, const void *data, uint64_t bytes);
/* Reads and converts a tensor in pieces whose stored size is at most 16 MiB, and passes them to
 * `sink`. Handles only pieces whose first byte is in [begin, end) of the stored tensor. If
 * `overflows` is not NULL, adds the number of finite elements that became infinite to
 * *overflows. */
int export_stream_tensor(dcp_checkpoint *ckpt, const char *source, dcp_dtype as, uint64_t begin,
                         uint64_t end, uint64_t *overflows, export_sink sink, void *ctx);

/* Called after each write with the number of bytes that it wrote, for the progress bar. */
typedef struct export_meter {
    void (*update)(void *ctx, uint64_t bytes);
    void *ctx;
} export_meter;

/* Moves this rank's share of the data into the files in `dir`, and makes it durable. The files must
 * exist with their full length. Counts this rank's overflows. */
int export_stream_share(const launch *job, dcp_checkpoint *ckpt, export_contents *contents,
                        const char *dir, const export_meter *meter);
/* Reports the number of elements that became infinite, and the tensors in which they are.
 * Collective. */
int export_stream_note_overflows(const launch *job, const export_contents *contents);
/* Creates a file that begins with `head`, and reserves its `bytes` bytes. */
int export_stream_create_file(const char *path, const void *head, uint64_t head_bytes,
                              uint64_t bytes);
