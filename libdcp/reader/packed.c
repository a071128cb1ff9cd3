/* CRC-64 is linear: the tensor's checksum is the XOR of its datasets' raw checksums, each shifted
 * by the number of bytes that follow the dataset in the tensor. */
#include "reader/packed.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/box.h"
#include "core/bytes.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "dcp/inspect.h"
#include "reader/checkpoint.h"

static void tensor_sum_begin(reader_tensor_sum *sum, const reader_tensor *t) {
    *sum = (reader_tensor_sum){.of = t, .whole = dcp_box_whole(&t->tensor), .is_runs = true};
}

static void tensor_sum_add(reader_tensor_sum *sum, const dcp_box *held, uint64_t bytes,
                           uint64_t crc) {
    const reader_tensor *t = sum->of;
    box_copy copy; /* from the dataset's bytes, at `a`, to the tensor's, at `b` */
    uint64_t a, b;
    if (!bytes || sum->is_one || !sum->is_runs) return;
    if (bytes == t->bytes) {
        sum->is_one = true;
        sum->crc = crc;
        return;
    }
    core_box_copy_between(&copy, t->tensor.ndim, dcp_dtype_bytes(t->tensor.dtype), held,
                          &sum->whole);
    sum->is_runs = copy.runs == 1;
    core_box_copy_run(&copy, 0, &a, &b);
    sum->raw ^= core_crc64_shift(core_crc64_unfinish(crc, bytes), t->bytes - b - bytes);
}

/* Returns the checksum. Requires is_runs. */
static uint64_t tensor_sum_end(const reader_tensor_sum *sum) {
    if (sum->is_one || !sum->of->bytes) return sum->crc;
    return core_crc64_finish(sum->raw, sum->of->bytes);
}

static void sum_tensor(const reader_tensor *t, reader_tensor_sum *sum) {
    tensor_sum_begin(sum, t);
    for (size_t k = 0; k < t->n_datasets; k++) {
        const format_row *row = t->datasets[k].row;
        const dcp_box held = format_index_row_box(row);
        tensor_sum_add(sum, &held, row->bytes, row->crc);
    }
}

bool reader_tensor_is_runs(const dcp_checkpoint *ckpt, const reader_tensor *t) {
    reader_tensor_sum sum;
    if (ckpt->rows != READER_ROWS_HERE) return t->is_runs;
    sum_tensor(t, &sum);
    return sum.is_runs;
}

uint64_t reader_tensor_checksum(const dcp_checkpoint *ckpt, const reader_tensor *t) {
    reader_tensor_sum sum;
    if (ckpt->rows != READER_ROWS_HERE) return t->crc;
    sum_tensor(t, &sum);
    assert(sum.is_runs);
    return tensor_sum_end(&sum);
}

int dcp_checkpoint_crc(const dcp_checkpoint *ckpt, size_t i, uint64_t *crc, dcp_error *err) {
    if (!ckpt || !crc || i >= ckpt->n_tensors)
        return core_fail(err, DCP_ERR_ARG, "dcp_checkpoint_crc: a tensor and an output are needed");
    const reader_tensor *t = &ckpt->tensors[i];
    if (!reader_tensor_is_runs(ckpt, t))
        return core_fail_tensor(core_fail(err, DCP_ERR_UNSUPPORTED,
                                          "tensor %s: its shards are not contiguous in the "
                                          "tensor, so its checksum can't be computed from theirs",
                                          t->tensor.path),
                                t->tensor.path, err);
    *crc = reader_tensor_checksum(ckpt, t);
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
        const reader_tensor *t = &ckpt->tensors[i];
        raw = format_index_state_id(raw, &t->tensor, reader_tensor_checksum(ckpt, t));
    }
    *id = ~raw;
    return 1;
}

uint64_t dcp_checkpoint_file_bytes(const dcp_checkpoint *ckpt) {
    uint64_t bytes = 0;
    for (int f = 0; f < dcp_checkpoint_files(ckpt); f++) bytes += ckpt->files[f].ub.file_bytes;
    return bytes;
}

enum { AT_PLACE, AT_BLOCKS, AT_OFFSET, AT_BYTES, AT_CRC, HEAD };
#define SUFFIX_SHIFT 47
#define FIRST_BLOCK ((1ULL << SUFFIX_SHIFT) - 1)
#define WITHOUT_BLOCKS (1ULL << 63)
#define MOST_SUFFIX 1024u

int reader_packed_append(comm_buffer *message, size_t tensor, size_t file, const format_row *row,
                         const char *suffix, const uint64_t *crcs, dcp_error *err) {
    uint32_t dims = core_box_dims(row->tensor.ndim);
    uint64_t blocks = crcs ? format_index_blocks(row->bytes) : 0, suffix_bytes = strlen(suffix);
    uint64_t words = HEAD + 2 * dims + blocks + (suffix_bytes + 7) / 8;
    uint64_t *at = (uint64_t *)(void *)comm_buffer_append(message, 8 * words);
    if (!at) return core_fail_memory(err, message->bytes);
    const dcp_box box = format_index_row_box(row);
    at[words - 1] = 0;
    at[AT_PLACE] = tensor | (uint64_t)file << 32;
    at[AT_BLOCKS] = suffix_bytes << SUFFIX_SHIFT | (crcs ? 0 : WITHOUT_BLOCKS);
    at[AT_OFFSET] = row->offset;
    at[AT_BYTES] = row->bytes;
    at[AT_CRC] = row->crc;
    memcpy(at + HEAD, box.start, 8ULL * dims);
    memcpy(at + HEAD + dims, box.count, 8ULL * dims);
    if (blocks) memcpy(at + HEAD + 2 * dims, crcs, 8 * blocks);
    memcpy(at + HEAD + 2 * dims + blocks, suffix, suffix_bytes);
    return DCP_OK;
}

static void look_at_row(const uint64_t *row, uint32_t dims, reader_packed *out) {
    const bool has_blocks = !(row[AT_BLOCKS] & WITHOUT_BLOCKS);
    *out = (reader_packed){.tensor = reader_packed_tensor(row),
                           .file = reader_packed_file(row),
                           .first_block = row[AT_BLOCKS] & FIRST_BLOCK,
                           .offset = row[AT_OFFSET],
                           .bytes = row[AT_BYTES],
                           .crc = row[AT_CRC]};
    uint64_t blocks = has_blocks ? format_index_blocks(out->bytes) : 0;
    memcpy(out->box.start, row + HEAD, 8ULL * dims);
    memcpy(out->box.count, row + HEAD + dims, 8ULL * dims);
    if (has_blocks) out->crcs = row + HEAD + 2 * dims;
    out->suffix = (const char *)(row + HEAD + 2 * dims + blocks);
    out->suffix_bytes = (row[AT_BLOCKS] & ~WITHOUT_BLOCKS) >> SUFFIX_SHIFT;
    out->words = HEAD + 2 * dims + blocks + (out->suffix_bytes + 7) / 8;
}

void reader_packed_decode(const dcp_checkpoint *ckpt, const uint64_t *row, reader_packed *out) {
    look_at_row(row, core_box_dims(ckpt->tensors[reader_packed_tensor(row)].tensor.ndim), out);
}

/* Returns true if the row's box lies in its tensor, and the row's bytes have the size of the box
 * and lie in the file. */
static bool is_sound(const dcp_checkpoint *ckpt, const reader_packed *p) {
    const reader_tensor *t = &ckpt->tensors[p->tensor];
    const uint64_t file_bytes = ckpt->files[p->file].ub.file_bytes;
    uint32_t dims = core_box_dims(t->tensor.ndim);
    for (uint32_t d = 0; d < dims; d++)
        if (p->box.start[d] > t->tensor.shape[d] ||
            p->box.count[d] > t->tensor.shape[d] - p->box.start[d])
            return false;
    uint64_t elems = t->bytes ? dcp_box_elems(&p->box, dims) : 0;
    if (p->bytes != elems * dcp_dtype_bytes(t->tensor.dtype)) return false;
    if (!p->bytes) return !p->offset;
    return p->offset >= USERBLOCK_BYTES && p->offset <= file_bytes &&
           p->bytes <= file_bytes - p->offset;
}

static bool is_suffix(const char *text, size_t bytes) {
    for (size_t i = 1; i < bytes; i++)
        if (text[i] < '0' || text[i] > '9') return false;
    return !bytes || (text[0] == '@' && bytes > 1);
}

int reader_packed_check(const dcp_checkpoint *ckpt, const uint64_t *row, const uint64_t *end,
                        reader_packed *out, dcp_error *err) {
    uint64_t left = (uint64_t)(end - row);
    if (left >= HEAD && reader_packed_tensor(row) < ckpt->n_tensors &&
        reader_packed_file(row) < ckpt->n_files) {
        uint32_t dims = core_box_dims(ckpt->tensors[reader_packed_tensor(row)].tensor.ndim);
        uint64_t most = (left - HEAD) * 8 * (uint64_t)BLOCK_BYTES; /* avoids overflow of sums */
        if (left >= HEAD + 2 * dims && row[AT_BYTES] <= most) {
            look_at_row(row, dims, out);
            if (out->words <= left && out->suffix_bytes <= MOST_SUFFIX && is_sound(ckpt, out) &&
                is_suffix(out->suffix, out->suffix_bytes))
                return DCP_OK;
        }
    }
    return core_fail(err, DCP_ERR_MISMATCH, "a rank sent an invalid row of a shard's index");
}

/* Computes the digest of a row. The digest does not depend on the number of blocks before the row.
 * It includes the dataset's checksum, but not the checksums of the row's blocks. */
static uint64_t digest_of(const reader_packed *p, const uint64_t *row, uint32_t dims) {
    uint64_t raw = core_crc64_raw(~0ULL, &row[AT_PLACE], 8);
    raw = core_crc64_raw(raw, &row[AT_OFFSET], 8 * (HEAD - AT_OFFSET + 2 * dims));
    return core_crc64_raw(raw, p->suffix, p->suffix_bytes);
}

/* Fills in the members of the tensor that depend on all rows. The rows must be sorted. */
static void sum_up(const dcp_checkpoint *ckpt, reader_tensor *t, uint64_t **rows, size_t n) {
    uint32_t dims = core_box_dims(t->tensor.ndim);
    reader_tensor_sum sum;
    reader_packed p;
    tensor_sum_begin(&sum, t);
    t->blocks = t->digest = t->longest = 0;
    for (size_t i = 0; i < n; i++) {
        reader_packed_decode(ckpt, rows[i], &p);
        t->digest ^= digest_of(&p, rows[i], dims);
        if (i >= t->n_datasets) continue;
        rows[i][AT_BLOCKS] = (rows[i][AT_BLOCKS] & ~FIRST_BLOCK) | t->blocks;
        t->blocks += format_index_blocks(p.bytes);
        if (p.bytes && p.box.count[t->sweep] > t->longest) t->longest = p.box.count[t->sweep];
        tensor_sum_add(&sum, &p.box, p.bytes, p.crc);
    }
    t->is_runs = sum.is_runs;
    t->crc = tensor_sum_end(&sum);
}

/* Puts the rows in the order of the cover's boxes, followed by the rows without elements. */
static void reorder(uint64_t **rows, uint64_t **before, size_t n, const cover_box *boxes,
                    size_t n_boxes) {
    memcpy(before, rows, n * sizeof *rows);
    for (size_t i = 0; i < n_boxes; i++) {
        rows[i] = before[boxes[i].tag];
        before[boxes[i].tag] = NULL;
    }
    for (size_t i = 0, at = n_boxes; i < n; i++)
        if (before[i]) rows[at++] = before[i];
}

int reader_packed_join(const dcp_checkpoint *ckpt, reader_tensor *t, uint64_t **rows, size_t n,
                       dcp_error *err) {
    cover_box *boxes = calloc(n + 1, sizeof *boxes);
    uint64_t **before = core_array(n + 1, sizeof *before);
    size_t n_boxes = 0, first, second;
    int status = boxes && before ? DCP_OK : core_fail_memory(err, n * sizeof *boxes);
    for (size_t i = 0; i < n && !status; i++) {
        reader_packed p;
        reader_packed_decode(ckpt, rows[i], &p);
        if (p.bytes) boxes[n_boxes++] = (cover_box){.box = p.box, .tag = i};
    }
    if (!status && t->bytes &&
        core_cover_check(t->tensor.ndim, t->tensor.shape, boxes, n_boxes, &first, &second) !=
            COVER_EXACT)
        status = reader_join_fail_cover(ckpt, t->tensor.path, err);
    if (!status) {
        t->n_datasets = t->bytes ? n_boxes : n;
        t->sweep = 0;
        if (t->bytes) {
            t->sweep = core_cover_finest(t->tensor.ndim, t->tensor.shape, boxes, n_boxes);
            reorder(rows, before, n, boxes, n_boxes);
        }
        sum_up(ckpt, t, rows, n);
    }
    free(boxes);
    free(before);
    return status;
}

/* Does for rows what first_from in checkpoint.c does for datasets. */
static size_t first_row_from(const reader_tensor *t, const uint64_t *const *rows, size_t n,
                             uint64_t at) {
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (rows[middle][HEAD + t->sweep] < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void reader_packed_near(const reader_tensor *t, const uint64_t *const *rows, size_t n,
                        const dcp_box *box, size_t *first, size_t *end) {
    *first = 0;
    *end = n;
    if (n < 2 || !t->longest) return;
    uint64_t start = box->start[t->sweep];
    *first = first_row_from(t, rows, n, start < t->longest ? 0 : start - t->longest + 1);
    *end = first_row_from(t, rows, n, start + box->count[t->sweep]);
}

/* Returns the bytes to allocate for a dataset's path: its tensor's path and the suffix; 0 if there
 * is no suffix. */
static uint64_t bytes_of_path(const dcp_checkpoint *ckpt, const reader_packed *p) {
    if (!p->suffix_bytes) return 0;
    return strlen(ckpt->tensors[p->tensor].tensor.path) + p->suffix_bytes + 1;
}

static char *expand_path(format_row *row, const reader_packed *p, char *text) {
    if (!p->suffix_bytes) return text;
    size_t length = strlen(row->tensor.path);
    memcpy(text, row->tensor.path, length);
    memcpy(text + length, p->suffix, p->suffix_bytes);
    text[length + p->suffix_bytes] = 0;
    row->tensor.path = text;
    return text + length + p->suffix_bytes + 1;
}

int reader_packed_expand(dcp_checkpoint *ckpt, const uint64_t *const *rows, size_t n,
                         reader_dataset **out, dcp_error *err) {
    uint64_t text_bytes = 0;
    reader_packed p;
    for (size_t i = 0; i < n; i++) {
        reader_packed_decode(ckpt, rows[i], &p);
        text_bytes += bytes_of_path(ckpt, &p);
    }
    uint64_t bytes = (n + 1) * (sizeof **out + sizeof(format_row) + sizeof(dcp_box)) + text_bytes;
    reader_dataset *datasets = *out = malloc(bytes);
    if (!datasets) return core_fail_memory(err, bytes);
    format_row *row = (format_row *)(datasets + n + 1);
    dcp_box *boxes = (dcp_box *)(row + n + 1);
    char *text = (char *)(boxes + n + 1);
    for (size_t i = 0; i < n; i++, row++) {
        reader_packed_decode(ckpt, rows[i], &p);
        boxes[i] = p.box;
        *row = (format_row){.tensor = ckpt->tensors[p.tensor].tensor,
                            .box = &boxes[i],
                            .offset = p.offset,
                            .bytes = p.bytes,
                            .crc = p.crc};
        if (!row->tensor.ndim) row->box = NULL;
        text = expand_path(row, &p, text);
        datasets[i] = (reader_dataset){&ckpt->files[p.file], row, p.crcs, p.first_block, 0};
    }
    return DCP_OK;
}
