/* Views: how a rank finds a tensor's datasets. All ranks together request them from the homes, or
 * one rank looks them up alone. */
#pragma once

#include <stdbool.h>

#include "comm/messages.h"
#include "reader/checkpoint.h"

/* A view stores packed rows, which need a third of the memory that datasets need. A tensor's
 * datasets exist only between reader_view_open and reader_view_close. */

/* Makes a view of all datasets; they are always open. Requires READER_ROWS_HERE. Not collective.
 * *out must be freed whether or not the call succeeds. */
int reader_view_local(dcp_checkpoint *ckpt, reader_view *out, dcp_error *err);

/* Requests the datasets near the n boxes of `wants`, and sorts `wants` by tensor. Requires rows at
 * homes. Collective over the checkpoint's communicator; begins with comm_agree of `status`. Reads
 * no file. *own is this rank's status after it has received the answers; the ranks have not agreed
 * on it yet. If this rank has copies of all rows, or is the only rank, the call does not
 * communicate, and *own is its only status. *out must be freed whether or not the call succeeds. */
int reader_view_request(dcp_checkpoint *ckpt, int status, reader_request *wants, size_t n,
                        reader_view *out, int *own, dcp_error *err);

/* reader_view_answer and reader_view_unpack are the two halves of reader_view_request; neither is
 * collective. reader_view_answer runs at the home. `asked` contains the ranks' requests in rank
 * order, asked_bytes[r] bytes from rank r. A request is sorted by tensor and has for each box a u64
 * with the tensor's number, then the box's starts and its counts. The answer to rank r is appended
 * to `out`; out_bytes[r] is its size. Returns DCP_ERR_MISMATCH if any box is invalid. */
int reader_view_answer(const dcp_checkpoint *ckpt, const uint64_t *asked,
                       const uint64_t *asked_bytes, comm_buffer *out, uint64_t *out_bytes,
                       dcp_error *err);
/* Makes a view from the homes' answers, which are in rank order, and takes ownership of their
 * memory. *out must be freed whether or not the call succeeds. */
int reader_view_unpack(dcp_checkpoint *ckpt, comm_buffer *answers, reader_view *out,
                       dcp_error *err);

void reader_view_free(reader_view *view);

/* Makes a tensor's datasets, unless they exist already. */
int reader_view_open(dcp_checkpoint *ckpt, reader_datasets *known, dcp_error *err);
void reader_view_close(reader_datasets *known);
int reader_view_open_all(dcp_checkpoint *ckpt, reader_view *view, dcp_error *err);

static inline reader_datasets *reader_view_of(const reader_view *view, const dcp_checkpoint *ckpt,
                                              const reader_tensor *t) {
    return &view->of[t - ckpt->tensors];
}

/* Finds all datasets of a tensor; they remain valid until the checkpoint is closed. Not collective;
 * any thread may call it at any time. If this rank does not have the rows, it looks up the tensor's
 * name in the index of each file, and compares the rows with the digest that the home sent. Returns
 * DCP_ERR_CORRUPT if the rows have changed. Returns DCP_ERR_UNSUPPORTED if this rank does not have
 * the rows, and at least one rank does not see all files. */
int reader_view_all(dcp_checkpoint *ckpt, const reader_tensor *t, reader_datasets *out,
                    dcp_error *err);

/* Sets *out to dataset k of the tensor. If with_crcs is true, *out includes the checksums of its
 * blocks. */
int reader_view_dataset(dcp_checkpoint *ckpt, const reader_tensor *t, size_t k, bool with_crcs,
                        reader_dataset *out, dcp_error *err);

/* Reads the checksums of the dataset's blocks, unless it already has them. Returns DCP_ERR_CORRUPT
 * if they do not combine to the dataset's own checksum. */
int reader_view_crcs(dcp_checkpoint *ckpt, reader_dataset *dataset, dcp_error *err);

/* Frees the results of look-ups, when the checkpoint is closed. */
void reader_view_free_found(dcp_checkpoint *ckpt);
