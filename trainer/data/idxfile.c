#include "data/idxfile.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/fail.h"

enum { MAGIC_BYTES = 4 };

typedef struct header {
    idx_type type;
    uint32_t ndim; /* with that of the items */
    uint64_t dims[IDX_MAX_DIMS];
    uint64_t bytes, item_bytes; /* of the header; of an item */
} header;

uint32_t idx_type_bytes(idx_type type) {
    switch (type) {
    case IDX_U8:
    case IDX_I8:
        return 1;
    case IDX_I16:
        return 2;
    case IDX_I32:
    case IDX_F32:
        return 4;
    case IDX_F64:
        return 8;
    }
    return 0;
}

int idx_is_integer(idx_type type) { return type != IDX_F32 && type != IDX_F64; }

static uint64_t big_endian(const uint8_t *bytes, uint32_t n) {
    uint64_t value = 0;
    for (uint32_t i = 0; i < n; i++) value = value << 8 | bytes[i];
    return value;
}

int64_t idx_integer(idx_type type, const uint8_t *element) {
    const uint64_t bits = big_endian(element, idx_type_bytes(type));
    switch (type) {
    case IDX_I8:
        return (int8_t)bits;
    case IDX_I16:
        return (int16_t)bits;
    case IDX_I32:
        return (int32_t)bits;
    default:
        return (int64_t)bits;
    }
}

float idx_float(idx_type type, const uint8_t *element) {
    if (type == IDX_U8) return (float)*element / 255.0f;
    if (idx_is_integer(type)) return (float)idx_integer(type, element);
    const uint64_t bits = big_endian(element, idx_type_bytes(type));
    if (type == IDX_F32) {
        const uint32_t half = (uint32_t)bits;
        float value;
        memcpy(&value, &half, sizeof value);
        return value;
    }
    double value;
    memcpy(&value, &bits, sizeof value);
    return (float)value;
}

static int check_magic(const char *path, const uint8_t *magic, dcp_error *err) {
    if (magic[0] == 0x1f && magic[1] == 0x8b)
        return core_fail(err, DCP_ERR_ARG,
                         "data.path: %s is compressed; unpack it with gunzip first", path);
    if (magic[0] || magic[1] || !idx_type_bytes(magic[2]) || magic[3] < 1 ||
        magic[3] > IDX_MAX_DIMS)
        return core_fail(err, DCP_ERR_ARG,
                         "data.path: %s is no idx file of 1 to %d dimensions: it begins with "
                         "%02x %02x %02x %02x",
                         path, IDX_MAX_DIMS, magic[0], magic[1], magic[2], magic[3]);
    return DCP_OK;
}

/* The file must be as long as its dimensions say, to the byte. */
static int check_size(const data_file *file, header *h, dcp_error *err) {
    uint64_t whole;
    h->item_bytes = idx_type_bytes(h->type);
    int huge = 0;
    for (uint32_t d = 1; d < h->ndim; d++)
        huge |= __builtin_mul_overflow(h->item_bytes, h->dims[d], &h->item_bytes);
    huge |= __builtin_mul_overflow(h->item_bytes, h->dims[0], &whole);
    huge |= __builtin_add_overflow(whole, h->bytes, &whole);
    if (!huge && whole == file->bytes && h->item_bytes > 0) return DCP_OK;
    char dims[64] = "";
    for (uint32_t d = 0, at = 0; d < h->ndim; d++)
        at += (uint32_t)snprintf(dims + at, sizeof dims - at, "%s%" PRIu64, d ? " x " : "",
                                 h->dims[d]);
    return core_fail(err, DCP_ERR_ARG,
                     "data.path: %s holds %" PRIu64 " bytes; its header says %s elements of "
                     "%" PRIu32,
                     file->path, file->bytes, dims, idx_type_bytes(h->type));
}

static int read_header(data_files *files, const data_file *file, header *h, dcp_error *err) {
    uint8_t bytes[MAGIC_BYTES + 4 * IDX_MAX_DIMS] = {0};
    const uint64_t there = file->bytes < sizeof bytes ? file->bytes : sizeof bytes;
    int status = data_files_read(files, file->begin, there, bytes, err);
    if (status == DCP_OK) status = check_magic(file->path, bytes, err);
    if (status != DCP_OK) return status;
    h->type = bytes[2];
    h->ndim = bytes[3];
    h->bytes = MAGIC_BYTES + 4 * h->ndim;
    for (uint32_t d = 0; d < h->ndim; d++) h->dims[d] = big_endian(bytes + MAGIC_BYTES + 4 * d, 4);
    return check_size(file, h, err);
}

static int add_part(idx_array *a, size_t i, dcp_error *err) {
    const data_file *file = &a->files.list[i];
    header h = {0};
    const int status = read_header(&a->files, file, &h, err);
    if (status != DCP_OK) return status;
    const size_t dims_bytes = (h.ndim - 1) * sizeof *h.dims;
    if (i == 0) {
        a->type = h.type;
        a->ndim = h.ndim - 1;
        a->item_bytes = h.item_bytes;
        memcpy(a->dims, h.dims + 1, dims_bytes);
    }
    if (h.type != a->type || h.ndim - 1 != a->ndim || memcmp(a->dims, h.dims + 1, dims_bytes) != 0)
        return core_fail(err, DCP_ERR_ARG,
                         "data.path: %s has elements or dimensions that differ from those of %s",
                         file->path, a->files.list[0].path);
    a->parts[i] = (idx_part){a->items, h.dims[0], file->begin + h.bytes};
    a->items += h.dims[0];
    return DCP_OK;
}

int idx_open(idx_array *a, dcp_error *err) {
    a->parts = calloc(a->files.n, sizeof *a->parts);
    if (!a->parts) return core_fail_memory(err, a->files.n * sizeof *a->parts);
    int status = DCP_OK;
    for (size_t i = 0; i < a->files.n && status == DCP_OK; i++) status = add_part(a, i, err);
    return status;
}

void idx_close(idx_array *a) {
    data_files_close(&a->files);
    free(a->parts);
}

/* Its place in the whole of the files. */
static uint64_t offset_of(const idx_array *a, uint64_t item) {
    size_t low = 0, high = a->files.n;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (a->parts[middle].first <= item)
            low = middle;
        else
            high = middle;
    }
    return a->parts[low].begin + (item - a->parts[low].first) * a->item_bytes;
}

const char *idx_at(const idx_array *a, uint64_t item, uint64_t *within) {
    return data_files_at(&a->files, offset_of(a, item), within);
}

int idx_read(idx_array *a, uint64_t item, uint64_t n, void *out, dcp_error *err) {
    return data_files_read(&a->files, offset_of(a, item), n * a->item_bytes, out, err);
}
