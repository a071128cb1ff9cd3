/* What a rank gets to know of tensors' datasets: by asking their homes, together with all other
 * ranks; or alone, whenever it wants. */
#pragma once

#include "comm/messages.h"
#include "reader/checkpoint.h"

/* A view keeps rows packed, at a third of the memory; a tensor's datasets are there while they are
 * open. */

/* Not collective, of READER_ROWS_HERE: the view has all datasets, which are always open. To be
 * freed in either case. */
int reader_view_here(dcp_checkpoint *ckpt, reader_view *out, dcp_error *err);

/* Collective, over the checkpoint's communicator, where rows are at homes, beginning with
 * comm_agree of `status`: each rank with the n boxes that it wants, which are put in the order of
 * their tensors. Nothing is read. *own: how this rank has fared with what it was answered, to be
 * agreed on. To be freed in either case. */
int reader_view_ask(dcp_checkpoint *ckpt, int status, reader_want *wants, size_t n,
                    reader_view *out, int *own, dcp_error *err);

/* The two halves of that, neither of them collective. At home: the next asked_bytes[r] of `asked`
 * are what rank r asks, a u64 for the tensor's number and the box's start and count on each
 * dimension, ascending by tensor; what goes to it is appended to `out`, and so many bytes are
 * out_bytes[r]. DCP_ERR_MISMATCH: no such box. */
int reader_view_answer(const dcp_checkpoint *ckpt, const uint64_t *asked,
                       const uint64_t *asked_bytes, comm_message *out, uint64_t *out_bytes,
                       dcp_error *err);
/* What homes have answered, in their ranks' order: its memory becomes the view's. To be freed in
 * either case. */
int reader_view_take(dcp_checkpoint *ckpt, comm_message *answers, reader_view *out, dcp_error *err);

void reader_view_free(reader_view *view);

/* Makes a tensor's datasets, where they are not open. */
int reader_view_open(dcp_checkpoint *ckpt, reader_known *known, dcp_error *err);
void reader_view_close(reader_known *known);
int reader_view_open_all(dcp_checkpoint *ckpt, reader_view *view, dcp_error *err);

static inline reader_known *reader_view_of(const reader_view *view, const dcp_checkpoint *ckpt,
                                           const reader_tensor *t) {
    return &view->of[t - ckpt->tensors];
}

/* Not collective; any thread may call, whatever others do. All datasets of a tensor, valid until
 * the close. Where its rows are neither here nor copied, they are read from the files' indexes, by
 * looking for the tensor's name in each, and compared with the digest that its home has told.
 * DCP_ERR_CORRUPT: they have changed. DCP_ERR_UNSUPPORTED: there are files that this rank doesn't
 * see, and it has no copies. */
int reader_view_all(dcp_checkpoint *ckpt, const reader_tensor *t, reader_known *out,
                    dcp_error *err);

/* Dataset k of them; where with_crcs is not 0, with its blocks' checksums. */
int reader_view_dataset(dcp_checkpoint *ckpt, const reader_tensor *t, size_t k, int with_crcs,
                        reader_dataset *out, dcp_error *err);

/* Reads the checksums of the dataset's blocks, where it has none yet. They are those of which its
 * own is made, else DCP_ERR_CORRUPT. */
int reader_view_crcs(dcp_checkpoint *ckpt, reader_dataset *dataset, dcp_error *err);

/* Frees what was found out; for the close. */
void reader_view_forget(dcp_checkpoint *ckpt);
