/* CRC-64 is linear: the tensor's checksum is the XOR of its datasets' raw checksums, each shifted
 * by the bytes that follow the dataset in the tensor. */
#include "step/tensor_checksum.h"

#include <stdlib.h>

#include "core/box.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "core/sized.h"
#include "dcp/inspect.h"

/* The dataset's bytes (a) in the tensor (b). */
static void runs_of(const step_tensor *t, const step_dataset *p, box_copy *copy) {
    const dcp_box all = dcp_box_whole(&t->tensor);
    step_index_shared(p->row, &all, copy);
}

int step_tensor_is_runs(const dcp_checkpoint *ckpt, const step_tensor *t) {
    const step_dataset *datasets = &ckpt->datasets[t->first_dataset];
    for (size_t k = 0; k < t->n_datasets && t->bytes; k++) {
        box_copy copy;
        if (datasets[k].row->bytes == t->bytes) return 1;
        runs_of(t, &datasets[k], &copy);
        if (copy.runs > 1) return 0;
    }
    return 1;
}

uint64_t step_tensor_checksum(const dcp_checkpoint *ckpt, const step_tensor *t) {
    const step_dataset *datasets = &ckpt->datasets[t->first_dataset];
    uint64_t raw = 0;
    for (size_t k = 0; k < t->n_datasets && t->bytes; k++) {
        const step_row *row = datasets[k].row;
        box_copy copy;
        uint64_t a, b;
        if (row->bytes == t->bytes) return row->crc;
        runs_of(t, &datasets[k], &copy);
        core_box_copy_run(&copy, 0, &a, &b);
        raw ^=
            core_crc64_shift(core_crc64_unfinish(row->crc, row->bytes), t->bytes - b - row->bytes);
    }
    return t->bytes ? core_crc64_finish(raw, t->bytes) : 0;
}

int dcp_checkpoint_crc(const dcp_checkpoint *ckpt, size_t i, uint64_t *crc, dcp_error *err) {
    if (!ckpt || !crc || i >= ckpt->n_tensors)
        return core_fail(err, DCP_ERR_ARG, "dcp_checkpoint_crc: a tensor and an output are needed");
    const step_tensor *t = &ckpt->tensors[i];
    if (!step_tensor_is_runs(ckpt, t))
        return core_fail_tensor(
            core_fail(err, DCP_ERR_UNSUPPORTED,
                      "tensor %s: its shards are no runs of it, so their checksums don't give its",
                      t->tensor.path),
            t->tensor.path, err);
    *crc = step_tensor_checksum(ckpt, t);
    return DCP_OK;
}

size_t dcp_checkpoint_pieces(const dcp_checkpoint *ckpt, size_t i) {
    return ckpt && i < ckpt->n_tensors && ckpt->tensors[i].bytes ? ckpt->tensors[i].n_datasets : 0;
}

int dcp_checkpoint_piece(const dcp_checkpoint *ckpt, size_t i, size_t k, dcp_piece *out) {
    if (!out || core_sized_check(out, sizeof *out, "DCP_PIECE_INIT", NULL) ||
        k >= dcp_checkpoint_pieces(ckpt, i))
        return DCP_ERR_ARG;
    const step_dataset *p = &ckpt->datasets[ckpt->tensors[i].first_dataset + k];
    const dcp_piece piece = {.size = sizeof piece,
                             .box = step_index_row_box(p->row),
                             .file = (int)(p->file - ckpt->files),
                             .bytes = p->row->bytes,
                             .crc = p->row->crc,
                             .block_crcs = p->file->crcs + p->row->first_block};
    core_sized_give(out, &piece, sizeof piece);
    return DCP_OK;
}

int dcp_checkpoint_state_id(const dcp_checkpoint *ckpt, uint64_t *id) {
    if (!ckpt || !id) return 0;
    if (ckpt->layout == DCP_LAYOUT_SHARDED) {
        char *end;
        *id = strtoull(ckpt->state_id, &end, 16);
        return end == ckpt->state_id + 16;
    }
    uint64_t raw = ~0ULL;
    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        const step_tensor *t = &ckpt->tensors[i];
        raw = step_index_state_id(raw, &t->tensor, step_tensor_checksum(ckpt, t));
    }
    *id = ~raw;
    return 1;
}

uint64_t dcp_checkpoint_file_bytes(const dcp_checkpoint *ckpt) {
    uint64_t bytes = 0;
    for (size_t f = 0; f < ckpt->n_files; f++) bytes += ckpt->files[f].ub.file_bytes;
    return bytes;
}
