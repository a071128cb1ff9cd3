/* CRC-64 is linear: the tensor's checksum is the XOR of its datasets' raw checksums, each shifted
 * by the bytes that follow the dataset in the tensor. */
#include "step/tensor_checksum.h"

#include <stdlib.h>

#include "core/box.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "dcp/inspect.h"

void step_tensor_sum_begin(step_tensor_sum *sum, const step_tensor *t) {
    *sum = (step_tensor_sum){.of = t, .whole = dcp_box_whole(&t->tensor), .is_runs = 1};
}

void step_tensor_sum_add(step_tensor_sum *sum, const dcp_box *held, uint64_t bytes, uint64_t crc) {
    const step_tensor *t = sum->of;
    box_copy copy; /* the dataset's bytes (a) in the tensor (b) */
    uint64_t a, b;
    if (!bytes || sum->is_one || !sum->is_runs) return;
    if (bytes == t->bytes) {
        sum->is_one = 1;
        sum->crc = crc;
        return;
    }
    core_box_copy_between(&copy, t->tensor.ndim, dcp_dtype_bytes(t->tensor.dtype), held,
                          &sum->whole);
    sum->is_runs = copy.runs == 1;
    core_box_copy_run(&copy, 0, &a, &b);
    sum->raw ^= core_crc64_shift(core_crc64_unfinish(crc, bytes), t->bytes - b - bytes);
}

uint64_t step_tensor_sum_end(const step_tensor_sum *sum) {
    if (sum->is_one || !sum->of->bytes) return sum->crc;
    return core_crc64_finish(sum->raw, sum->of->bytes);
}

static void sum_tensor(const step_tensor *t, step_tensor_sum *sum) {
    step_tensor_sum_begin(sum, t);
    for (size_t k = 0; k < t->n_datasets; k++) {
        const step_row *row = t->datasets[k].row;
        const dcp_box held = step_index_row_box(row);
        step_tensor_sum_add(sum, &held, row->bytes, row->crc);
    }
}

int step_tensor_is_runs(const dcp_checkpoint *ckpt, const step_tensor *t) {
    step_tensor_sum sum;
    if (ckpt->rows != STEP_ROWS_HERE) return t->is_runs;
    sum_tensor(t, &sum);
    return sum.is_runs;
}

uint64_t step_tensor_checksum(const dcp_checkpoint *ckpt, const step_tensor *t) {
    step_tensor_sum sum;
    if (ckpt->rows != STEP_ROWS_HERE) return t->crc;
    sum_tensor(t, &sum);
    return step_tensor_sum_end(&sum);
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
    for (int f = 0; f < dcp_checkpoint_files(ckpt); f++) bytes += ckpt->files[f].ub.file_bytes;
    return bytes;
}
