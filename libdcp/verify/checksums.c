/* The raw form of CRC-64 is linear (core/crc64.h): a part of a block is summed separately, shifted
 * by the number of bytes that follow it in the block, and added by XOR. Several threads can do this
 * at once.
 *
 * If each dataset of a tensor is contiguous in the tensor, the tensor's checksum is computed from
 * the datasets' checksums. The bytes of all other tensors are summed a second time, in the order of
 * the tensor. */
#include "verify/checksums.h"

#include <stdlib.h>

#include "core/box.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "reader/packed.h"

/* A dataset that is not empty, and its place in its file. */
typedef struct summed_dataset {
    const format_row *row;
    uint64_t gaps; /* number of bytes before it that are outside datasets and the user block */
    const box_copy *runs; /* its runs in the tensor; NULL if the tensor is not summed */
    size_t tensor;
} summed_dataset;

struct verify_sums {
    const dcp_checkpoint *ckpt;
    summed_dataset *datasets; /* in all files; sorted by offset within a file */
    size_t *first;            /* [n_files + 1]: the first dataset of each file */
    uint64_t *outside_bytes;  /* per file: how many bytes are outside datasets and user block */
    /* Raw sums of the blocks of all files, then of each file's bytes outside datasets, then of
     * tensors. */
    uint64_t *sums;
    uint64_t n_sums;
};

static uint64_t *outside_sum(const verify_sums *t, size_t file) {
    return t->sums + t->ckpt->blocks + file;
}

static uint64_t *tensor_sum(const verify_sums *t, size_t tensor) {
    return t->sums + t->ckpt->blocks + t->ckpt->n_files + tensor;
}

static void xor_into(uint64_t *sum, uint64_t part) {
    __atomic_fetch_xor(sum, part, __ATOMIC_RELAXED);
}

static int by_dataset_offset(const void *a, const void *b) {
    const format_row *x = ((const summed_dataset *)a)->row, *y = ((const summed_dataset *)b)->row;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static void find_datasets(verify_sums *t) {
    const dcp_checkpoint *ckpt = t->ckpt;
    size_t n = 0;
    for (size_t f = 0; f < ckpt->n_files; f++) {
        const format_file *file = &ckpt->files[f];
        t->first[f] = n;
        for (size_t i = 0; file->rows && i < file->ub.rows; i++)
            if (file->rows[i].bytes) t->datasets[n++] = (summed_dataset){.row = &file->rows[i]};
        qsort(t->datasets + t->first[f], n - t->first[f], sizeof *t->datasets, by_dataset_offset);
        uint64_t gaps = 0, at = USERBLOCK_BYTES;
        for (size_t e = t->first[f]; e < n; e++) {
            gaps += t->datasets[e].row->offset - at;
            at = t->datasets[e].row->offset + t->datasets[e].row->bytes;
            t->datasets[e].gaps = gaps;
        }
        t->outside_bytes[f] = gaps + file->ub.file_bytes - at;
    }
    t->first[ckpt->n_files] = n;
}

/* Returns the first dataset of the file that ends after `offset`. */
static size_t first_dataset_after(const verify_sums *t, size_t f, uint64_t offset) {
    size_t low = t->first[f], high = t->first[f + 1];
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (t->datasets[middle].row->offset + t->datasets[middle].row->bytes > offset)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static int find_tensor_runs(const verify_sums *t, size_t tensor, dcp_error *err) {
    const reader_tensor *whole = &t->ckpt->tensors[tensor];
    const dcp_box all = dcp_box_whole(&whole->tensor);
    for (size_t k = 0; k < whole->n_datasets; k++) {
        const reader_dataset *p = &whole->datasets[k];
        const dcp_box held = format_index_row_box(p->row);
        size_t f = (size_t)(p->file - t->ckpt->files);
        summed_dataset *e = &t->datasets[first_dataset_after(t, f, p->row->offset)];
        box_copy copy;
        core_box_copy_between(&copy, whole->tensor.ndim, dcp_dtype_bytes(whole->tensor.dtype), &all,
                              &held);
        e->tensor = tensor;
        e->runs = core_box_copy_keep(&copy);
        if (!e->runs) return core_fail_memory(err, sizeof copy);
    }
    return DCP_OK;
}

static int make_sums(verify_sums *t, dcp_error *err) {
    const dcp_checkpoint *ckpt = t->ckpt;
    size_t rows = 0;
    for (size_t f = 0; f < ckpt->n_files; f++)
        if (ckpt->files[f].rows) rows += ckpt->files[f].ub.rows;
    t->n_sums = ckpt->blocks + ckpt->n_files + ckpt->n_tensors;
    t->datasets = calloc(rows + 1, sizeof *t->datasets);
    t->first = calloc(ckpt->n_files + 1, sizeof *t->first);
    t->outside_bytes = calloc(ckpt->n_files + 1, sizeof *t->outside_bytes);
    t->sums = calloc(t->n_sums + 1, sizeof *t->sums);
    if (t->datasets && t->first && t->outside_bytes && t->sums) return DCP_OK;
    return core_fail_memory(err, rows * sizeof *t->datasets + t->n_sums * sizeof *t->sums);
}

int verify_sums_create(const dcp_checkpoint *ckpt, verify_sums **out, dcp_error *err) {
    verify_sums *t = calloc(1, sizeof *t);
    if (!t) return core_fail_memory(err, sizeof *t);
    t->ckpt = ckpt;
    int status = make_sums(t, err);
    if (!status) find_datasets(t);
    for (size_t i = 0; i < ckpt->n_tensors && !status; i++)
        if (!reader_tensor_is_runs(ckpt, &ckpt->tensors[i])) status = find_tensor_runs(t, i, err);
    if (status)
        verify_sums_destroy(t);
    else
        *out = t;
    return status;
}

void verify_sums_destroy(verify_sums *t) {
    if (!t) return;
    for (size_t e = 0; t->datasets && t->first && e < t->first[t->ckpt->n_files]; e++)
        free((void *)t->datasets[e].runs);
    free(t->datasets);
    free(t->first);
    free(t->outside_bytes);
    free(t->sums);
    free(t);
}

/* Adds bytes [from, from + bytes) of a dataset to its blocks' sums, which begin at `sums`. */
static void add_to_blocks(uint64_t *sums, uint64_t total, uint64_t from, const unsigned char *data,
                          uint64_t bytes) {
    while (bytes) {
        uint64_t b = from / BLOCK_BYTES, end = b * BLOCK_BYTES + format_index_block_bytes(total, b);
        uint64_t part = end - from < bytes ? end - from : bytes;
        xor_into(&sums[b], core_crc64_shift(core_crc64_raw(0, data, part), end - from - part));
        from += part;
        data += part;
        bytes -= part;
    }
}

/* Adds the same bytes to the tensor's sum. In the tensor they form runs. */
static void add_to_tensor(const verify_sums *t, const summed_dataset *e, uint64_t from,
                          const unsigned char *data, uint64_t bytes) {
    uint64_t total = t->ckpt->tensors[e->tensor].bytes, run = e->runs->run_bytes, raw = 0, last = 0;
    while (bytes) { /* the sum is shifted from run to run */
        uint64_t at = from % run, part = run - at < bytes ? run - at : bytes, a, b;
        core_box_copy_run(e->runs, from / run, &a, &b);
        uint64_t end = a + at + part;
        raw = core_crc64_shift(raw, end - last) ^ core_crc64_raw(0, data, part);
        last = end;
        from += part;
        data += part;
        bytes -= part;
    }
    xor_into(tensor_sum(t, e->tensor), core_crc64_shift(raw, total - last));
}

static void add_to_outside(const verify_sums *t, size_t f, uint64_t position,
                           const unsigned char *data, uint64_t bytes) {
    uint64_t after = t->outside_bytes[f] - position - bytes;
    xor_into(outside_sum(t, f), core_crc64_shift(core_crc64_raw(0, data, bytes), after));
}

/* Adds the bytes that lie between datasets, from `offset` to `end` or to the start of dataset e,
 * whichever comes first. Returns how many bytes it added. */
static uint64_t add_gap(const verify_sums *t, size_t f, size_t e, uint64_t offset,
                        const unsigned char *data, uint64_t end) {
    uint64_t position;
    if (e < t->first[f + 1]) {
        uint64_t start = t->datasets[e].row->offset;
        if (start <= offset) return 0;
        position = t->datasets[e].gaps - (start - offset);
        if (start < end) end = start;
    } else {
        position = t->outside_bytes[f] - (t->ckpt->files[f].ub.file_bytes - offset);
    }
    add_to_outside(t, f, position, data, end - offset);
    return end - offset;
}

static uint64_t add_dataset(const verify_sums *t, size_t f, const summed_dataset *e,
                            uint64_t offset, const unsigned char *data, uint64_t end) {
    const format_row *row = e->row;
    uint64_t from = offset - row->offset, bytes = end - offset;
    if (bytes > row->bytes - from) bytes = row->bytes - from;
    add_to_blocks(t->sums + t->ckpt->files[f].first_block + row->first_block, row->bytes, from,
                  data, bytes);
    if (e->runs) add_to_tensor(t, e, from, data, bytes);
    return bytes;
}

void verify_sums_add(void *ctx, size_t f, uint64_t offset, const unsigned char *data,
                     uint64_t bytes) {
    const verify_sums *t = ctx;
    uint64_t end = offset + bytes, skip = offset < USERBLOCK_BYTES ? USERBLOCK_BYTES - offset : 0;
    for (offset += skip, data += skip; offset < end;) {
        size_t e = first_dataset_after(t, f, offset);
        uint64_t part = add_gap(t, f, e, offset, data, end);
        if (!part) part = add_dataset(t, f, &t->datasets[e], offset, data, end);
        offset += part;
        data += part;
    }
}

uint64_t *verify_sums_raw(verify_sums *t, uint64_t *n) {
    *n = t->n_sums;
    return t->sums;
}

uint64_t verify_sums_block(const verify_sums *t, const format_file *file, const format_row *row,
                           uint64_t block) {
    return core_crc64_finish(t->sums[file->first_block + row->first_block + block],
                             format_index_block_bytes(row->bytes, block));
}

uint64_t verify_sums_outside(const verify_sums *t, const format_file *file) {
    size_t f = (size_t)(file - t->ckpt->files);
    return core_crc64_finish(*outside_sum(t, f), t->outside_bytes[f]);
}

uint64_t verify_sums_tensor(const verify_sums *t, size_t tensor) {
    const reader_tensor *whole = &t->ckpt->tensors[tensor];
    if (reader_tensor_is_runs(t->ckpt, whole)) return reader_tensor_checksum(t->ckpt, whole);
    return core_crc64_finish(*tensor_sum(t, tensor), whole->bytes);
}
