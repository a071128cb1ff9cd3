/* Reading a box by whole blocks, each checked in the buffer it was read into. The block read last
 * is kept: a walk along a tensor reads each block once. */
#include <stdlib.h>
#include <string.h>

#include "core/box.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "load/checkpoint.h"

int checkpoint_block(dcp_checkpoint *ckpt, const ckpt_piece *p, uint64_t number, dcp_error *err) {
    if (ckpt->block_row == p->row && ckpt->block_number == number) return DCP_OK;
    if (!ckpt->block && posix_memalign((void **)&ckpt->block, PAGE_BYTES, BLOCK_BYTES))
        return core_fail_memory(err, BLOCK_BYTES);
    ckpt->block_row = NULL;
    int status = checkpoint_plain(p->file, err);
    if (status) return status;
    uint64_t bytes = index_block_bytes(p->row->bytes, number);
    status = io_read_plain(p->file->plain, ckpt->block, bytes,
                           p->row->offset + number * BLOCK_BYTES, p->file->path, err);
    if (status) return status;
    if (crc64(ckpt->block, bytes) != p->file->crcs[p->row->first_block + number])
        return core_fail(err, DCP_ERR_CORRUPT,
                         "%s: tensor %s, block %llu: what was read differs from what was saved",
                         p->file->path, p->row->tensor.path, (unsigned long long)number);
    ckpt->block_row = p->row;
    ckpt->block_number = number;
    return DCP_OK;
}

int checkpoint_bytes(dcp_checkpoint *ckpt, const ckpt_piece *p, uint64_t offset, uint64_t bytes,
                     unsigned char *out, dcp_error *err) {
    while (bytes) {
        uint64_t number = offset / BLOCK_BYTES, at = offset % BLOCK_BYTES;
        int status = checkpoint_block(ckpt, p, number, err);
        if (status) return status;
        uint64_t part = BLOCK_BYTES - at < bytes ? BLOCK_BYTES - at : bytes;
        memcpy(out, ckpt->block + at, part);
        out += part;
        offset += part;
        bytes -= part;
    }
    return DCP_OK;
}

static int read_piece(dcp_checkpoint *ckpt, const ckpt_tensor *t, const ckpt_piece *p,
                      const dcp_box *want, unsigned char *data, dcp_error *err) {
    const dcp_box held = index_row_box(p->row);
    box_copy copy;
    if (!p->row->bytes ||
        !box_copy_between(&copy, t->tensor.ndim, dcp_dtype_bytes(t->tensor.dtype), &held, want))
        return DCP_OK;
    int status = DCP_OK;
    for (uint64_t i = 0, a, b; i < copy.runs && !status; i++) {
        box_copy_run(&copy, i, &a, &b);
        status = checkpoint_bytes(ckpt, p, a, copy.run_bytes, data + b, err);
    }
    return status;
}

int dcp_checkpoint_read(dcp_checkpoint *ckpt, const char *path, const dcp_box *box, void *data,
                        dcp_error *err) {
    if (!ckpt || !path || !box) return core_fail(err, DCP_ERR_ARG, "a path and a box are needed");
    const ckpt_tensor *t = checkpoint_lookup(ckpt, path);
    if (!t)
        return core_fail(err, DCP_ERR_NOT_FOUND, "%s: tensor %s is not in the checkpoint",
                         ckpt->path, path);
    for (uint32_t d = 0; d < box_dims(t->tensor.ndim); d++)
        if (box->start[d] > t->tensor.shape[d] ||
            box->count[d] > t->tensor.shape[d] - box->start[d])
            return core_fail(err, DCP_ERR_ARG, "tensor %s: the box lies outside on dimension %u",
                             path, d);
    if (!data && t->bytes && dcp_box_elems(box, t->tensor.ndim))
        return core_fail(err, DCP_ERR_ARG, "tensor %s: a box with elements needs memory", path);
    int status = DCP_OK;
    size_t k, end;
    checkpoint_near(ckpt, t, box, &k, &end);
    for (; k < end && !status; k++)
        status = read_piece(ckpt, t, &ckpt->pieces[t->first_piece + k], box, data, err);
    return status;
}
