/* The index table's bytes. Rows are packed: path, dtype[8], ndim u32, shape u64[8], offset u64,
 * bytes u64, crc64 u64 and, in shards, start u64[8], count u64[8]; little-endian. */
#include "core/index.h"

#include <stdlib.h>
#include <string.h>

#include "core/box.h"
#include "core/bytes.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "core/state.h"

enum { DTYPE_BYTES = 8, FIXED_BYTES = DTYPE_BYTES + 4 + 8 * DCP_MAX_DIMS + 24 };
#define BOX_BYTES (16 * DCP_MAX_DIMS)

uint64_t index_path_bytes(const index_row *rows, size_t n) {
    size_t longest = 0;
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(rows[i].tensor.path);
        if (length > longest) longest = length;
    }
    return (longest + 16) / 16 * 16;
}

uint64_t index_row_bytes(uint64_t path_bytes, dcp_layout layout) {
    return path_bytes + FIXED_BYTES + (layout == DCP_LAYOUT_SHARDED ? BOX_BYTES : 0);
}

static void put_dims(unsigned char *p, const uint64_t *dims, uint32_t n) {
    for (uint32_t d = 0; d < n; d++) put_u64(p + 8 * d, dims[d]);
}

static void get_dims(const unsigned char *p, uint64_t *dims) {
    for (uint32_t d = 0; d < DCP_MAX_DIMS; d++) dims[d] = get_u64(p + 8 * d);
}

void index_encode(const index_row *rows, size_t n, uint64_t path_bytes, dcp_layout layout,
                  unsigned char *out) {
    uint64_t row_bytes = index_row_bytes(path_bytes, layout);
    memset(out, 0, n * row_bytes);
    for (size_t i = 0; i < n; i++, out += row_bytes) {
        const index_row *r = &rows[i];
        unsigned char *p = out + path_bytes;
        memcpy(out, r->tensor.path, strlen(r->tensor.path));
        const char *dtype = dcp_dtype_name(r->tensor.dtype);
        memcpy(p, dtype, strlen(dtype));
        put_u32(p + 8, r->tensor.ndim);
        put_dims(p + 12, r->tensor.shape, r->tensor.ndim);
        put_u64(p + 76, r->offset);
        put_u64(p + 84, r->bytes);
        put_u64(p + 92, r->crc);
        if (layout != DCP_LAYOUT_SHARDED) continue;
        put_dims(p + FIXED_BYTES, r->box.start, r->tensor.ndim);
        put_dims(p + FIXED_BYTES + 8 * DCP_MAX_DIMS, r->box.count, r->tensor.ndim);
    }
}

static int decode_dtype(const unsigned char *p, dcp_dtype *out) {
    char name[DTYPE_BYTES + 1] = {0};
    memcpy(name, p, DTYPE_BYTES);
    return dcp_dtype_parse(name, out) == DCP_OK;
}

/* The box of a row, and the size of the dataset that holds it. */
static int decode_box(const unsigned char *p, dcp_layout layout, index_row *r) {
    uint64_t tensor_bytes;
    if (!tensor_size(r->tensor.dtype, r->tensor.ndim, r->tensor.shape, &tensor_bytes)) return 0;
    if (!r->tensor.ndim) r->tensor.shape[0] = 1;
    r->box = dcp_box_whole(&r->tensor);
    if (layout == DCP_LAYOUT_SHARDED && r->tensor.ndim) {
        get_dims(p, r->box.start);
        get_dims(p + 8 * DCP_MAX_DIMS, r->box.count);
        for (uint32_t d = 0; d < r->tensor.ndim; d++)
            if (r->box.start[d] > r->tensor.shape[d] ||
                r->box.count[d] > r->tensor.shape[d] - r->box.start[d])
                return 0;
    }
    uint64_t elems = tensor_bytes ? dcp_box_elems(&r->box, r->tensor.ndim) : 0;
    return r->bytes == elems * dcp_dtype_bytes(r->tensor.dtype);
}

static int decode_row(const unsigned char *p, uint64_t path_bytes, const userblock *ub, char *path,
                      index_row *r) {
    const char *what;
    memcpy(path, p, path_bytes);
    path[path_bytes] = 0;
    r->tensor.path = path;
    p += path_bytes;
    r->tensor.ndim = get_u32(p + 8);
    get_dims(p + 12, r->tensor.shape);
    r->offset = get_u64(p + 76);
    r->bytes = get_u64(p + 84);
    r->crc = get_u64(p + 92);
    if (!path_valid(path, &what) || r->tensor.ndim > DCP_MAX_DIMS ||
        !decode_dtype(p, &r->tensor.dtype) || !decode_box(p + FIXED_BYTES, ub->layout, r))
        return 0;
    if (!r->bytes) return r->offset == 0;
    return r->offset >= USERBLOCK_BYTES && r->offset <= ub->file_bytes &&
           r->bytes <= ub->file_bytes - r->offset;
}

static int by_offset(const void *a, const void *b) {
    const index_row *x = *(const index_row *const *)a, *y = *(const index_row *const *)b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static int disjoint(const index_row *rows, size_t n, const userblock *ub) {
    const index_row **order = malloc((n + 1) * sizeof *order);
    if (!order) return -1;
    for (size_t i = 0; i < n; i++) order[i] = &rows[i];
    qsort(order, n, sizeof *order, by_offset);
    uint64_t end = 0;
    int ok = 1;
    for (size_t i = 0; i < n && ok; i++) {
        if (!order[i]->bytes) continue;
        ok = order[i]->offset >= end;
        end = order[i]->offset + order[i]->bytes;
        const file_range *tables[] = {&ub->index, &ub->blocks, &ub->meta};
        for (int t = 0; t < 3; t++)
            ok &= end <= tables[t]->offset ||
                  order[i]->offset >= tables[t]->offset + tables[t]->bytes;
    }
    free(order);
    return ok;
}

static int check_whole(const index_row *rows, const userblock *ub, uint64_t blocks,
                       const char *path, dcp_error *err) {
    if (blocks != ub->blocks.bytes / 8)
        return core_fail(err, DCP_ERR_CORRUPT,
                         "%s: index: its tensors have %llu blocks, the blocks table %llu", path,
                         (unsigned long long)blocks, (unsigned long long)ub->blocks.bytes / 8);
    int ok = disjoint(rows, ub->rows, ub);
    if (ok < 0) return core_fail_memory(err, ub->rows * sizeof(void *));
    return ok ? DCP_OK : core_fail(err, DCP_ERR_CORRUPT, "%s: index: datasets overlap", path);
}

int index_decode(const unsigned char *table, const userblock *ub, const char *path, index_row **out,
                 dcp_error *err) {
    uint64_t fixed = index_row_bytes(0, ub->layout);
    uint64_t path_bytes = ub->row_bytes - fixed;
    if (ub->row_bytes <= fixed || path_bytes % 16 || path_bytes > DCP_MAX_PATH + 16 ||
        ub->rows > ub->index.bytes)
        return core_fail(err, DCP_ERR_CORRUPT, "%s: index: rows of %llu bytes are not ours", path,
                         (unsigned long long)ub->row_bytes);
    index_row *rows = calloc(ub->rows + 1, sizeof *rows + path_bytes + 1);
    if (!rows) return core_fail_memory(err, ub->rows * (sizeof *rows + path_bytes + 1));
    char *paths = (char *)(rows + ub->rows + 1);
    uint64_t blocks = 0;
    int status = DCP_OK;
    for (uint64_t i = 0; i < ub->rows && !status; i++) {
        char *row_path = paths + i * (path_bytes + 1);
        if (!decode_row(table + i * ub->row_bytes, path_bytes, ub, row_path, &rows[i]) ||
            (i && strcmp(rows[i - 1].tensor.path, row_path) >= 0))
            status = core_fail(err, DCP_ERR_CORRUPT, "%s: index: row %llu is not valid", path,
                               (unsigned long long)i);
        rows[i].first_block = blocks;
        blocks += index_blocks(rows[i].bytes);
    }
    if (!status) status = check_whole(rows, ub, blocks, path, err);
    if (status)
        free(rows);
    else
        *out = rows;
    return status;
}

uint64_t index_join_blocks(const uint64_t *crcs, uint64_t bytes) {
    if (bytes && bytes <= BLOCK_BYTES) return crcs[0];
    uint64_t raw = 0;
    for (uint64_t b = 0; b < index_blocks(bytes); b++) {
        uint64_t size = index_block_bytes(bytes, b);
        raw = crc64_shift(raw, size) ^ crc64_unfinish(crcs[b], size);
    }
    return crc64_finish(raw, bytes);
}

uint64_t index_state_id(uint64_t raw, const dcp_tensor *tensor, uint64_t crc) {
    unsigned char words[8 * (DCP_MAX_DIMS + 2)];
    const char *dtype = dcp_dtype_name(tensor->dtype);
    put_u64(words, tensor->ndim);
    put_dims(words + 8, tensor->shape, tensor->ndim);
    put_u64(words + 8 + 8 * tensor->ndim, crc);
    raw = crc64_raw(raw, tensor->path, index_tensor_path(tensor->path));
    raw = crc64_raw(raw, dtype, strlen(dtype));
    return crc64_raw(raw, words, 16 + 8 * tensor->ndim);
}

size_t index_tensor_path(const char *dataset_path) {
    const char *at = strrchr(dataset_path, '@');
    if (!at || !at[1] || at[1 + strspn(at + 1, "0123456789")]) return strlen(dataset_path);
    return (size_t)(at - dataset_path);
}
