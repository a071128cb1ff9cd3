/* The user block. Its own checksum is checked first; nothing else in it is used before that. */
#include "format/index.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/box.h"
#include "core/bytes.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "core/state_dict.h"

static const unsigned char magic[8] = {0x89, 'D', 'C', 'P', '\r', '\n', 0x1a, '\n'};

enum { /* byte offsets */
       AT_VERSION = 8,
       AT_LAYOUT = 12,
       AT_FILE = 16,
       AT_ROWS = 24,
       AT_ROW = 32,
       AT_INDEX = 40,
       AT_BLOCKS = 64,
       AT_META = 88,
       AT_OUTSIDE = 112,
       AT_UNUSED = 120,
       AT_CRC = USERBLOCK_BYTES - 8,
};

static void put_range(unsigned char *p, const format_range *r) {
    core_put_u64(p, r->offset);
    core_put_u64(p + 8, r->bytes);
    core_put_u64(p + 16, r->crc);
}

static format_range get_range(const unsigned char *p) {
    return (format_range){core_get_u64(p), core_get_u64(p + 8), core_get_u64(p + 16)};
}

void format_userblock_encode(const format_userblock *ub, unsigned char *out) {
    memset(out, 0, USERBLOCK_BYTES);
    memcpy(out, magic, sizeof magic);
    core_put_u32(out + AT_VERSION, FORMAT_VERSION);
    core_put_u32(out + AT_LAYOUT, (uint32_t)ub->layout);
    core_put_u64(out + AT_FILE, ub->file_bytes);
    core_put_u64(out + AT_ROWS, ub->rows);
    core_put_u64(out + AT_ROW, ub->row_bytes);
    put_range(out + AT_INDEX, &ub->index);
    put_range(out + AT_BLOCKS, &ub->blocks);
    put_range(out + AT_META, &ub->meta);
    core_put_u64(out + AT_OUTSIDE, ub->outside_crc);
    core_put_u64(out + AT_CRC, core_crc64(out, AT_CRC));
}

static bool in_file(const format_range *r, uint64_t file_bytes) {
    return r->offset >= USERBLOCK_BYTES && r->offset % PAGE_BYTES == 0 && r->offset <= file_bytes &&
           r->bytes <= file_bytes - r->offset;
}

static bool overlap(const format_range *a, const format_range *b) {
    return a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
}

/* Returns which sizes contradict each other; NULL: none. */
static const char *sizes_wrong(const format_userblock *ub) {
    uint64_t rows_bytes, blocks = ub->blocks.bytes / 8;
    if (ub->file_bytes % PAGE_BYTES) return "the file's size is no multiple of a page";
    if (ub->file_bytes > MAX_FILE_BYTES) return "no file is that large";
    if (!in_file(&ub->index, ub->file_bytes)) return "the index lies outside the file";
    if (!in_file(&ub->blocks, ub->file_bytes)) return "the blocks table lies outside the file";
    if (!in_file(&ub->meta, ub->file_bytes)) return "meta lies outside the file";
    if (overlap(&ub->index, &ub->blocks) || overlap(&ub->index, &ub->meta) ||
        overlap(&ub->blocks, &ub->meta))
        return "tables overlap";
    if (__builtin_mul_overflow(ub->rows, ub->row_bytes, &rows_bytes) ||
        rows_bytes != ub->index.bytes)
        return "the index does not have the size of its rows";
    if (ub->rows > MAX_ROWS) return "no index has that many rows";
    if (ub->meta.bytes > MAX_META_BYTES) return "no meta is that large";
    if (ub->blocks.bytes % 8 || blocks > ub->rows + ub->file_bytes / BLOCK_BYTES)
        return "the blocks table does not have the size of what it covers";
    return NULL;
}

static int decode_body(const unsigned char *in, uint64_t file_bytes, const char *path,
                       format_userblock *ub, dcp_error *err) {
    uint32_t layout = core_get_u32(in + AT_LAYOUT);
    *ub = (format_userblock){.layout = layout ? DCP_LAYOUT_SHARDED : DCP_LAYOUT_GLOBAL,
                             .file_bytes = core_get_u64(in + AT_FILE),
                             .rows = core_get_u64(in + AT_ROWS),
                             .row_bytes = core_get_u64(in + AT_ROW),
                             .index = get_range(in + AT_INDEX),
                             .blocks = get_range(in + AT_BLOCKS),
                             .meta = get_range(in + AT_META),
                             .outside_crc = core_get_u64(in + AT_OUTSIDE)};
    if (ub->file_bytes != file_bytes)
        return core_fail_at(err, DCP_ERR_CORRUPT, path,
                            "size: the file has %llu bytes, but its user block says %llu",
                            (unsigned long long)file_bytes, (unsigned long long)ub->file_bytes);
    const char *wrong = layout > 1 ? "its layout is unknown" : sizes_wrong(ub);
    for (size_t i = AT_UNUSED; i < AT_CRC && !wrong; i++)
        if (in[i]) wrong = "bytes that should be zero are not";
    return wrong ? core_fail_at(err, DCP_ERR_CORRUPT, path, "user block: %s", wrong) : DCP_OK;
}

int format_userblock_decode(const unsigned char *in, uint64_t file_bytes, const char *path,
                            format_userblock *out, dcp_error *err) {
    if (memcmp(in, magic, sizeof magic))
        return core_fail_at(err, DCP_ERR_CORRUPT, path,
                            "user block: not a checkpoint's file (wrong magic)");
    if (core_crc64(in, AT_CRC) != core_get_u64(in + AT_CRC))
        return core_fail_at(err, DCP_ERR_CORRUPT, path, "user block: its checksum is wrong");
    if (core_get_u32(in + AT_VERSION) != FORMAT_VERSION)
        return core_fail_at(err, DCP_ERR_VERSION, path,
                            "the file has format version %u, but this library reads version %d: "
                            "use a newer library",
                            core_get_u32(in + AT_VERSION), FORMAT_VERSION);
    format_userblock ub;
    int status = decode_body(in, file_bytes, path, &ub, err);
    if (status) return status;
    *out = ub;
    return DCP_OK;
}

/* The bytes of the index table. Rows are packed: path, dtype[8], ndim u32, shape u64[8], offset
 * u64, bytes u64, crc64 u64 and, in shards, start u64[8], count u64[8]; all little-endian. */

enum { DTYPE_BYTES = 8, FIXED_BYTES = DTYPE_BYTES + 4 + 8 * DCP_MAX_DIMS + 24 };
#define BOX_BYTES (16 * DCP_MAX_DIMS)

bool format_index_shared(const format_row *row, const dcp_box *box, box_copy *out) {
    const dcp_box held = format_index_row_box(row);
    return row->bytes && core_box_copy_between(out, row->tensor.ndim,
                                               dcp_dtype_bytes(row->tensor.dtype), &held, box);
}

uint64_t format_index_path_bytes(const format_row *rows, size_t n) {
    size_t longest = 0;
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(rows[i].tensor.path);
        if (length > longest) longest = length;
    }
    return (longest + 16) / 16 * 16;
}

uint64_t format_index_row_bytes(uint64_t path_bytes, dcp_layout layout) {
    return path_bytes + FIXED_BYTES + (layout == DCP_LAYOUT_SHARDED ? BOX_BYTES : 0);
}

static void put_dims(unsigned char *p, const uint64_t *dims, uint32_t n) {
    for (uint32_t d = 0; d < n; d++) core_put_u64(p + 8 * d, dims[d]);
}

static void get_dims(const unsigned char *p, uint64_t *dims) {
    for (uint32_t d = 0; d < DCP_MAX_DIMS; d++) dims[d] = core_get_u64(p + 8 * d);
}

void format_index_encode(const format_row *rows, size_t n, uint64_t path_bytes, dcp_layout layout,
                         unsigned char *out) {
    uint64_t row_bytes = format_index_row_bytes(path_bytes, layout);
    memset(out, 0, n * row_bytes);
    for (size_t i = 0; i < n; i++, out += row_bytes) {
        const format_row *r = &rows[i];
        unsigned char *p = out + path_bytes;
        memcpy(out, r->tensor.path, strlen(r->tensor.path));
        const char *dtype = dcp_dtype_name(r->tensor.dtype);
        memcpy(p, dtype, strlen(dtype));
        core_put_u32(p + 8, r->tensor.ndim);
        put_dims(p + 12, r->tensor.shape, r->tensor.ndim);
        core_put_u64(p + 76, r->offset);
        core_put_u64(p + 84, r->bytes);
        core_put_u64(p + 92, r->crc);
        if (layout != DCP_LAYOUT_SHARDED) continue;
        dcp_box box = format_index_row_box(r);
        put_dims(p + FIXED_BYTES, box.start, r->tensor.ndim);
        put_dims(p + FIXED_BYTES + 8 * DCP_MAX_DIMS, box.count, r->tensor.ndim);
    }
}

static bool decode_dtype(const unsigned char *p, dcp_dtype *out) {
    char name[DTYPE_BYTES + 1] = {0};
    memcpy(name, p, DTYPE_BYTES);
    return dcp_dtype_parse(name, out) == DCP_OK;
}

/* Decodes the row's box; in layout sharded, `box` is the memory for it. Returns what is wrong with
 * its size or place, or NULL. */
static const char *decode_box(const unsigned char *p, const format_userblock *ub, dcp_box *box,
                              format_row *r) {
    uint64_t tensor_bytes;
    if (!core_tensor_size(r->tensor.dtype, r->tensor.ndim, r->tensor.shape, &tensor_bytes))
        return "its shape overflows";
    if (!r->tensor.ndim) r->tensor.shape[0] = 1;
    dcp_box held = dcp_box_whole(&r->tensor);
    if (ub->layout == DCP_LAYOUT_SHARDED && r->tensor.ndim) {
        get_dims(p, box->start);
        get_dims(p + 8 * DCP_MAX_DIMS, box->count);
        for (uint32_t d = 0; d < r->tensor.ndim; d++)
            if (box->start[d] > r->tensor.shape[d] ||
                box->count[d] > r->tensor.shape[d] - box->start[d])
                return "its box lies outside of its tensor";
        r->box = box;
        held = *box;
    }
    uint64_t elems = tensor_bytes ? dcp_box_elems(&held, r->tensor.ndim) : 0;
    if (r->bytes != elems * dcp_dtype_bytes(r->tensor.dtype))
        return "its size does not match its shape";
    if (!r->bytes) return r->offset ? "it has an offset, but no bytes" : NULL;
    if (r->offset < USERBLOCK_BYTES || r->offset > ub->file_bytes ||
        r->bytes > ub->file_bytes - r->offset)
        return "its data lies outside the file";
    return NULL;
}

/* Decodes the fields that require no checks. `path` has room for path_bytes + 1. */
static void read_row(const unsigned char *in, uint64_t path_bytes, char *path, format_row *r) {
    const unsigned char *p = in + path_bytes;
    *r = (format_row){.tensor = {.path = path, .ndim = core_get_u32(p + 8)},
                      .offset = core_get_u64(p + 76),
                      .bytes = core_get_u64(p + 84),
                      .crc = core_get_u64(p + 92)};
    memcpy(path, in, path_bytes);
    path[path_bytes] = 0;
    get_dims(p + 12, r->tensor.shape);
}

/* In a shard, the row's path is its tensor's path, possibly followed by "@" and the number of the
 * box. */
static bool row_path_valid(char *path, const format_userblock *ub, const char **wrong) {
    if (!core_path_valid(path, wrong)) return false;
    const size_t length = format_index_tensor_path(path);
    if (ub->layout != DCP_LAYOUT_SHARDED || !path[length]) return true;
    path[length] = 0;
    const bool valid = core_path_valid(path, wrong);
    path[length] = '@';
    return valid;
}

/* Decodes a row. Returns what is wrong with it, regardless of other rows, or NULL. */
static const char *decode_row(const unsigned char *in, uint64_t path_bytes,
                              const format_userblock *ub, char *path, dcp_box *box, format_row *r) {
    unsigned char again[FORMAT_LONGEST_ROW];
    const unsigned char *p = in + path_bytes;
    const char *wrong;
    read_row(in, path_bytes, path, r);
    if (!row_path_valid(path, ub, &wrong)) return wrong;
    if (r->tensor.ndim > DCP_MAX_DIMS) return "it has more than 8 dimensions";
    if (!decode_dtype(p, &r->tensor.dtype)) return "its dtype is unknown";
    wrong = decode_box(p + FIXED_BYTES, ub, box, r);
    if (wrong) return wrong;
    format_index_encode(r, 1, path_bytes, ub->layout, again);
    return memcmp(again, in, ub->row_bytes) ? "bytes that should be zero are not" : NULL;
}

/* Decodes a row that another rank checks. Its values must not be used if that check fails. */
static void take_row(const unsigned char *in, uint64_t path_bytes, const format_userblock *ub,
                     char *path, dcp_box *box, format_row *r) {
    const unsigned char *p = in + path_bytes;
    read_row(in, path_bytes, path, r);
    decode_dtype(p, &r->tensor.dtype);
    if (!r->tensor.ndim) {
        r->tensor.shape[0] = 1;
    } else if (ub->layout == DCP_LAYOUT_SHARDED) {
        get_dims(p + FIXED_BYTES, box->start);
        get_dims(p + FIXED_BYTES + 8 * DCP_MAX_DIMS, box->count);
        r->box = box;
    }
}

/* Rows begin with their paths, padded with NUL, so comparing bytes compares paths. */
static int check_row(const unsigned char *table, uint64_t i, uint64_t path_bytes,
                     const format_userblock *ub, const char *file, char *path, dcp_box *box,
                     format_row *r, dcp_error *err) {
    const unsigned char *row = table + i * ub->row_bytes;
    const char *wrong = decode_row(row, path_bytes, ub, path, box, r);
    if (!wrong && i && memcmp(row - ub->row_bytes, row, path_bytes) >= 0)
        wrong = "its path does not follow that of the row before it";
    if (!wrong) return DCP_OK;
    return core_fail_at(err, DCP_ERR_CORRUPT, file, "index: row %llu is not valid: %s",
                        (unsigned long long)i, wrong);
}

static int check_row_bytes(const format_userblock *ub, const char *file, uint64_t *path_bytes,
                           dcp_error *err) {
    uint64_t fixed = format_index_row_bytes(0, ub->layout);
    *path_bytes = ub->row_bytes - fixed;
    if (ub->row_bytes > fixed && *path_bytes % 16 == 0 && *path_bytes <= FORMAT_LONGEST_PATH &&
        ub->rows <= ub->index.bytes)
        return DCP_OK;
    return core_fail_at(err, DCP_ERR_CORRUPT, file, "index: rows of %llu bytes are not valid",
                        (unsigned long long)ub->row_bytes);
}

static int by_row_offset(const void *a, const void *b) {
    const format_row *x = *(const format_row *const *)a, *y = *(const format_row *const *)b;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

static bool shares_bytes(const format_row *r, const format_range *table) {
    return r->offset + r->bytes > table->offset && r->offset < table->offset + table->bytes;
}

/* `order` contains the rows that have bytes, sorted by offset. */
static int check_disjoint(const format_row **order, size_t n, const format_userblock *ub,
                          const char *file, dcp_error *err) {
    for (size_t i = 0; i < n; i++) {
        const format_row *r = order[i];
        if (i && order[i - 1]->offset + order[i - 1]->bytes > r->offset)
            return core_fail_tensor(core_fail_at(err, DCP_ERR_CORRUPT, file,
                                                 "index: datasets %.300s and %.300s overlap",
                                                 order[i - 1]->tensor.path, r->tensor.path),
                                    order[i - 1]->tensor.path, err);
        if (shares_bytes(r, &ub->index) || shares_bytes(r, &ub->blocks) ||
            shares_bytes(r, &ub->meta))
            return core_fail_tensor(core_fail_at(err, DCP_ERR_CORRUPT, file,
                                                 "index: dataset %.600s overlaps a table",
                                                 r->tensor.path),
                                    r->tensor.path, err);
    }
    return DCP_OK;
}

/* Everything that is neither dataset nor table is HDF5's metadata and padding: a few hundred bytes
 * per dataset, and up to a kilobyte for each folder in its path. More than that would be a hole in
 * the file; computing the checksum of its zeros would only waste time. `order` contains disjoint
 * rows, which do not overlap the tables. */
static int check_rest(const format_row **order, size_t n, const format_userblock *ub,
                      const char *file, dcp_error *err) {
    uint64_t rest = ub->file_bytes - ub->index.bytes - ub->blocks.bytes - ub->meta.bytes;
    for (size_t i = 0; i < n; i++) rest -= order[i]->bytes;
    if (rest <= MOST_REST + ub->rows * MOST_ROW_REST) return DCP_OK;
    return core_fail_at(err, DCP_ERR_CORRUPT, file,
                        "index: %llu bytes of the file belong to no dataset or table, too many for "
                        "%llu datasets",
                        (unsigned long long)rest, (unsigned long long)ub->rows);
}

/* In HDF5 a path names either a dataset or a group. `open` contains the rows whose paths are
 * prefixes of the current row's path, each longer than the previous one, so there are at most as
 * many as a path has bytes. Only the longest prefix has to be checked: after a shorter prefix, the
 * current path continues as the longest prefix does, and the longest prefix was checked when it was
 * the current path itself. */
static int check_folders(const format_row *rows, size_t n, const char *file, dcp_error *err) {
    const char *open[DCP_MAX_PATH + 1];
    size_t depth = 0;
    for (size_t i = 0; i < n; i++) {
        const char *path = rows[i].tensor.path;
        while (depth && strncmp(path, open[depth - 1], strlen(open[depth - 1]))) depth--;
        if (depth && path[strlen(open[depth - 1])] == '/')
            return core_fail_tensor(core_fail_at(err, DCP_ERR_CORRUPT, file,
                                                 "index: dataset %.300s is the folder of %.300s",
                                                 open[depth - 1], path),
                                    open[depth - 1], err);
        open[depth++] = path;
    }
    return DCP_OK;
}

int format_index_sort(const format_row *rows, size_t n, const format_row ***out, size_t *n_out,
                      dcp_error *err) {
    const format_row **order = core_array(n + 1, sizeof *order);
    if (!order) return core_fail_memory(err, n * sizeof *order);
    *n_out = 0;
    for (size_t i = 0; i < n; i++)
        if (rows[i].bytes) order[(*n_out)++] = &rows[i];
    qsort(order, *n_out, sizeof *order, by_row_offset);
    *out = order;
    return DCP_OK;
}

static int check_whole(const format_row *rows, uint64_t path_bytes, const format_userblock *ub,
                       uint64_t blocks, const char *file, dcp_error *err) {
    if (path_bytes != format_index_path_bytes(rows, ub->rows))
        return core_fail_at(
            err, DCP_ERR_CORRUPT, file,
            "index: its rows have room for paths of %llu bytes, but no path is that long",
            (unsigned long long)path_bytes);
    if (blocks != ub->blocks.bytes / 8)
        return core_fail_at(err, DCP_ERR_CORRUPT, file,
                            "index: its tensors have %llu blocks, but the blocks table has %llu",
                            (unsigned long long)blocks, (unsigned long long)ub->blocks.bytes / 8);
    const format_row **order = NULL;
    size_t n = 0;
    int status = check_folders(rows, ub->rows, file, err);
    if (!status) status = format_index_sort(rows, ub->rows, &order, &n, err);
    if (status) return status;
    status = check_disjoint(order, n, ub, file, err);
    if (!status) status = check_rest(order, n, ub, file, err);
    free(order);
    return status;
}

int format_index_decode_row(const unsigned char *row, const format_userblock *ub, const char *file,
                            char *path, dcp_box *box, format_row *out, dcp_error *err) {
    uint64_t path_bytes;
    int status = check_row_bytes(ub, file, &path_bytes, err);
    return status ? status : check_row(row, 0, path_bytes, ub, file, path, box, out, err);
}

uint64_t format_index_bytes_of(const unsigned char *row, const format_userblock *ub) {
    return core_get_u64(row + ub->row_bytes - format_index_row_bytes(0, ub->layout) + 84);
}

int format_index_check_rows(const unsigned char *table, uint64_t first, uint64_t end,
                            const format_userblock *ub, const char *file, dcp_error *err) {
    uint64_t path_bytes;
    char path[FORMAT_LONGEST_PATH + 1];
    dcp_box box;
    format_row row;
    int status = check_row_bytes(ub, file, &path_bytes, err);
    for (uint64_t i = first; i < end && !status; i++)
        status = check_row(table, i, path_bytes, ub, file, path, &box, &row, err);
    return status;
}

int format_index_decode(const unsigned char *table, const format_userblock *ub, const char *file,
                        int checked, format_row **out, dcp_error *err) {
    uint64_t path_bytes, blocks = 0;
    int status = check_row_bytes(ub, file, &path_bytes, err);
    if (status) return status;
    size_t box_bytes = ub->layout == DCP_LAYOUT_SHARDED ? sizeof(dcp_box) : 0;
    size_t row_memory = sizeof(format_row) + box_bytes + path_bytes + 1;
    format_row *rows = calloc(ub->rows + 1, row_memory);
    if (!rows) return core_fail_memory(err, ub->rows * row_memory);
    dcp_box *boxes = (dcp_box *)(rows + ub->rows + 1);
    char *paths = (char *)boxes + (ub->rows + 1) * box_bytes;
    for (uint64_t i = 0; i < ub->rows && !status; i++) {
        char *path = paths + i * (path_bytes + 1);
        dcp_box *box = box_bytes ? &boxes[i] : NULL;
        if (checked)
            take_row(table + i * ub->row_bytes, path_bytes, ub, path, box, &rows[i]);
        else
            status = check_row(table, i, path_bytes, ub, file, path, box, &rows[i], err);
        rows[i].first_block = blocks;
        blocks += format_index_blocks(rows[i].bytes);
    }
    if (!status && !checked) status = check_whole(rows, path_bytes, ub, blocks, file, err);
    if (status)
        free(rows);
    else
        *out = rows;
    return status;
}

uint64_t format_index_join_blocks(const uint64_t *crcs, uint64_t bytes) {
    if (bytes && bytes <= BLOCK_BYTES) return crcs[0];
    uint64_t raw = 0;
    for (uint64_t b = 0; b < format_index_blocks(bytes); b++) {
        uint64_t size = format_index_block_bytes(bytes, b);
        raw = core_crc64_shift(raw, size) ^ core_crc64_unfinish(crcs[b], size);
    }
    return core_crc64_finish(raw, bytes);
}

uint64_t format_index_join_sums(const uint64_t *sums, uint64_t bytes) {
    uint64_t raw = 0;
    for (uint64_t b = 0; b < format_index_blocks(bytes); b++)
        raw = core_crc64_shift(raw, format_index_block_bytes(bytes, b)) ^ sums[b];
    return core_crc64_finish(raw, bytes);
}

uint64_t format_index_state_id(uint64_t raw, const dcp_tensor *tensor, uint64_t crc) {
    unsigned char words[8 * (DCP_MAX_DIMS + 2)];
    const char *dtype = dcp_dtype_name(tensor->dtype);
    core_put_u64(words, tensor->ndim);
    put_dims(words + 8, tensor->shape, tensor->ndim);
    core_put_u64(words + 8 + 8 * tensor->ndim, crc);
    raw = core_crc64_raw(raw, tensor->path, strlen(tensor->path));
    raw = core_crc64_raw(raw, dtype, strlen(dtype));
    return core_crc64_raw(raw, words, 16 + 8 * tensor->ndim);
}

size_t format_index_tensor_path(const char *dataset_path) {
    const char *at = strrchr(dataset_path, '@');
    if (!at || !at[1] || at[1 + strspn(at + 1, "0123456789")]) return strlen(dataset_path);
    return (size_t)(at - dataset_path);
}
