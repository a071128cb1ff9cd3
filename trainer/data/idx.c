/* Images, or vectors, and their classes from idx files. In a folder or glob, only files with
 * "images" in their names are used. If the names of some of them begin with "train", only these are
 * used, so a folder of MNIST gives its training images. The labels lie in the same folder, in a
 * file whose name has "labels" in place of "images" and, as in MNIST, "idx1" in place of "idx3".
 * Every epoch has its own order. */
#include "data/source.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/joined_files.h"
#include "programs/fail.h"
#include "random/random.h"

enum { LABELS_AT_ONCE = 4096 };

/* Files of the IDX format, read as one array. A file begins with the bytes 00 00, a type, the
 * number of dimensions, and each dimension as a big-endian u32. The first dimension is the number
 * of items. The elements follow, big-endian, in row-major order. */
enum { IDX_MAX_DIMS = 4 };

typedef enum idx_type {
    IDX_U8 = 0x08,
    IDX_I8 = 0x09,
    IDX_I16 = 0x0b,
    IDX_I32 = 0x0c,
    IDX_F32 = 0x0d,
    IDX_F64 = 0x0e,
} idx_type;

typedef struct idx_part {
    uint64_t first, items; /* the index of its first item in the array; its number of items */
    uint64_t begin;        /* the offset of its first element in `files` */
} idx_part;

typedef struct idx_array {
    data_files files;
    idx_part *parts; /* [files.n] */
    uint64_t items;
    idx_type type;
    uint32_t ndim; /* per item; equal in all files */
    uint64_t dims[IDX_MAX_DIMS];
    uint64_t item_bytes;
} idx_array;

enum { MAGIC_BYTES = 4 };

typedef struct idx_header {
    idx_type type;
    uint32_t ndim; /* including the dimension of items */
    uint64_t dims[IDX_MAX_DIMS];
    uint64_t bytes, item_bytes; /* of the header; of an item */
} idx_header;

static uint32_t idx_type_bytes(idx_type type) {
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

static bool idx_is_integer(idx_type type) { return type != IDX_F32 && type != IDX_F64; }

static uint64_t big_endian(const uint8_t *bytes, uint32_t n) {
    uint64_t value = 0;
    for (uint32_t i = 0; i < n; i++) value = value << 8 | bytes[i];
    return value;
}

static int64_t idx_integer(idx_type type, const uint8_t *element) {
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

/* Scales u8 to [0, 1]; other elements are converted without scaling. */
static float idx_float(idx_type type, const uint8_t *element) {
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
                         "data.path: %s is not an idx file of 1 to %d dimensions: it begins with "
                         "%02x %02x %02x %02x; give files in MNIST's format",
                         path, IDX_MAX_DIMS, magic[0], magic[1], magic[2], magic[3]);
    return DCP_OK;
}

/* The file's size must match its dimensions exactly. */
static int check_size(const data_file *file, idx_header *h, dcp_error *err) {
    uint64_t whole;
    h->item_bytes = idx_type_bytes(h->type);
    bool huge = false;
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
                     "data.path: %s holds %" PRIu64
                     " bytes, but its header describes %s elements of %" PRIu32
                     " bytes: the file may be truncated; make it again",
                     file->path, file->bytes, dims, idx_type_bytes(h->type));
}

static int read_header(data_files *files, const data_file *file, idx_header *h, dcp_error *err) {
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
    idx_header h = {0};
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
                         "data.path: %s has elements or dimensions that differ from those of %s; "
                         "all files must have the same type and dimensions",
                         file->path, a->files.list[0].path);
    a->parts[i] = (idx_part){a->items, h.dims[0], file->begin + h.bytes};
    a->items += h.dims[0];
    return DCP_OK;
}

/* Reads the headers of a->files, and checks that they agree with the files' sizes and with each
 * other. The array owns a->files even after an error. */
static int idx_open(idx_array *a, dcp_error *err) {
    a->parts = calloc(a->files.n, sizeof *a->parts);
    if (!a->parts) return core_fail_memory(err, a->files.n * sizeof *a->parts);
    int status = DCP_OK;
    for (size_t i = 0; i < a->files.n && status == DCP_OK; i++) status = add_part(a, i, err);
    return status;
}

static void idx_close(idx_array *a) {
    data_files_close(&a->files);
    free(a->parts);
}

/* Returns the item's offset in a->files. */
static uint64_t offset_of(const idx_array *a, uint64_t item) {
    const idx_part *part =
        &a->parts[data_sorted_last(&a->parts->first, a->files.n, sizeof *a->parts, item)];
    return part->begin + (item - part->first) * a->item_bytes;
}

/* Returns the path of the file that contains item number `item`. *within: the item's offset in that
 * file. */
static const char *idx_at(const idx_array *a, uint64_t item, uint64_t *within) {
    return data_files_at(&a->files, offset_of(a, item), within);
}

/* Reads n items, which must be in one file, without converting them: out[n, item_bytes]. */
static int idx_read(idx_array *a, uint64_t item, uint64_t n, void *out, dcp_error *err) {
    return data_files_read(&a->files, offset_of(a, item), n * a->item_bytes, out, err);
}

typedef struct idx {
    idx_array images, labels;
    sample_shape shape;
    sample_normalization normalization;
    uint8_t *image; /* as in the file */
} idx;

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static bool is_images(const char *path) {
    const char *name = base_name(path), *end = name + strlen(name);
    return strstr(name, "images") && (end - name < 3 || strcmp(end - 3, ".gz") != 0);
}

static bool is_train(const char *path) { return strncmp(base_name(path), "train", 5) == 0; }

static bool any(const data_files *files, bool (*is)(const char *path)) {
    for (size_t i = 0; i < files->n; i++)
        if (is(files->list[i].path)) return true;
    return false;
}

static int find_images(const char *path, data_files *files, dcp_error *err) {
    const int status = data_files_find(path, files, err);
    if (status != DCP_OK || (files->n == 1 && strcmp(files->list[0].path, path) == 0))
        return status;
    const size_t found = files->n;
    if (found == 0)
        return core_fail(err, DCP_ERR_NOT_FOUND,
                         "data.path: %s is empty; give a folder with images", path);
    data_files_keep(files, is_images);
    if (any(files, is_train)) data_files_keep(files, is_train);
    if (files->n > 0) return DCP_OK;
    return core_fail(err, DCP_ERR_NOT_FOUND,
                     "data.path: none of the %zu files of %s has \"images\" in its name, as "
                     "train-images-idx3-ubyte has; unpack compressed files (.gz)",
                     found, path);
}

/* Writes the path of an image file's labels to `out`. Returns 0, or -1 if there is no such path.
 * one: also replace the digit in "idx3" by 1. */
static int labels_path(const char *images, int one, char *out, size_t size) {
    const char *at = NULL;
    for (const char *next = base_name(images); (next = strstr(next, "images")); next++) at = next;
    if (!at) return -1;
    const int n = snprintf(out, size, "%.*slabels%s", (int)(at - images), images, at + 6);
    if (n < 0 || (size_t)n >= size) return -1;
    char *idx_at_name = strstr(out + (at - images), "idx");
    if (!one) return 0;
    if (!idx_at_name || idx_at_name[3] < '2' || idx_at_name[3] > '4') return -1;
    idx_at_name[3] = '1';
    return 0;
}

static int add_labels(const char *images, data_files *labels, dcp_error *err) {
    char path[4096];
    const size_t before = labels->n;
    for (int one = 1; one >= 0; one--) {
        if (labels_path(images, one, path, sizeof path) != 0 || access(path, F_OK) != 0) continue;
        const int status = data_files_append(labels, path, err);
        if (status != DCP_OK || labels->n > before) return status;
        return core_fail(err, DCP_ERR_ARG, "data.path: %s is empty; put labels there", path);
    }
    return core_fail(err, DCP_ERR_NOT_FOUND,
                     "data.path: no labels beside %s; put them into the same folder, in a file of "
                     "the same name with labels in place of images (and idx1 in place of idx3)",
                     images);
}

static int open_images(idx *x, const data_options *o, dcp_error *err) {
    int status = find_images(o->path, &x->images.files, err);
    if (status == DCP_OK) status = idx_open(&x->images, err);
    return status;
}

static int open_labels(idx *x, dcp_error *err) {
    int status = DCP_OK;
    for (size_t i = 0; i < x->images.files.n && status == DCP_OK; i++)
        status = add_labels(x->images.files.list[i].path, &x->labels.files, err);
    if (status == DCP_OK) status = idx_open(&x->labels, err);
    if (status != DCP_OK) return status;
    const char *path = x->labels.files.list[0].path;
    if (x->labels.ndim != 0 || !idx_is_integer(x->labels.type))
        return core_fail(err, DCP_ERR_ARG,
                         "data.path: %s holds no labels: one dimension of integers is required",
                         path);
    for (size_t i = 0; i < x->images.files.n; i++)
        if (x->images.parts[i].items != x->labels.parts[i].items)
            return core_fail(err, DCP_ERR_ARG,
                             "data.path: %s holds %" PRIu64 " images, but %s holds %" PRIu64
                             " labels; each image needs one label",
                             x->images.files.list[i].path, x->images.parts[i].items,
                             x->labels.files.list[i].path, x->labels.parts[i].items);
    return DCP_OK;
}

/* Returns true if the items can be read as samples of this shape. Images with a single channel may
 * lack the dimension of channels. A vector may come from an image with as many elements. */
static bool has_shape(const idx_array *a, const sample_shape *shape) {
    const uint64_t elems = a->item_bytes / idx_type_bytes(a->type);
    if (shape->ndim == 1) return elems == shape->dims[0];
    const uint32_t missing = shape->ndim - a->ndim;
    if (a->ndim > shape->ndim || missing > 1 || (missing == 1 && shape->dims[0] != 1)) return false;
    return memcmp(a->dims, shape->dims + missing, a->ndim * sizeof *a->dims) == 0;
}

static void dims_text(char *text, size_t size, const uint64_t *dims, uint32_t n) {
    text[0] = '\0';
    for (uint32_t d = 0; d < n; d++) {
        const size_t at = strlen(text);
        snprintf(text + at, size - at, "%s%" PRIu64, d ? " x " : "", dims[d]);
    }
}

static int check_shape(const idx *x, dcp_error *err) {
    if (has_shape(&x->images, &x->shape)) return DCP_OK;
    char there[128], here[128];
    dims_text(there, sizeof there, x->images.dims, x->images.ndim);
    dims_text(here, sizeof here, x->shape.dims, x->shape.ndim);
    return core_fail(
        err, DCP_ERR_ARG,
        "data.path: an item of %s is %s, but the model takes %s%s; change one of the two",
        x->images.files.list[0].path, *there ? there : "a single number", here,
        x->shape.ndim == 3 ? " (channels, height, width)" : "");
}

static int check_label(const idx *x, uint64_t item, int64_t label, dcp_error *err) {
    if (label >= 0 && (uint64_t)label < x->shape.classes) return DCP_OK;
    uint64_t within;
    const char *path = idx_at(&x->labels, item, &within);
    return core_fail(err, DCP_ERR_ARG,
                     "data.path: %s: the label at byte %" PRIu64 " is %" PRId64
                     ", but the model has only %" PRIu64
                     " classes, counted from 0: give the model more, or correct the label",
                     path, within, label, x->shape.classes);
}

static int check_labels_of(idx *x, const idx_part *part, dcp_error *err) {
    uint8_t bytes[LABELS_AT_ONCE * 4];
    const uint32_t width = idx_type_bytes(x->labels.type);
    for (uint64_t at = 0, n; at < part->items; at += n) {
        n = part->items - at < LABELS_AT_ONCE ? part->items - at : LABELS_AT_ONCE;
        int status = idx_read(&x->labels, part->first + at, n, bytes, err);
        for (uint64_t i = 0; i < n && status == DCP_OK; i++)
            status = check_label(x, part->first + at + i,
                                 idx_integer(x->labels.type, bytes + i * width), err);
        if (status != DCP_OK) return status;
    }
    return DCP_OK;
}

static int check_content(idx *x, const char *path, dcp_error *err) {
    int status = check_shape(x, err);
    if (status == DCP_OK && x->images.items == 0)
        status = core_fail(err, DCP_ERR_ARG, "data.path: %s holds no image; give some", path);
    for (size_t i = 0; i < x->labels.files.n && status == DCP_OK; i++)
        status = check_labels_of(x, &x->labels.parts[i], err);
    return status;
}

static void idx_source_close(void *state) {
    idx *x = state;
    idx_close(&x->images);
    idx_close(&x->labels);
    free(x->image);
    free(x);
}

static int idx_source_open(const data_options *options, void **state, dcp_error *err) {
    idx *x = calloc(1, sizeof *x);
    if (!x) return core_fail_memory(err, sizeof *x);
    x->images.files.fd = x->labels.files.fd = -1;
    x->shape = options->shape;
    int status = open_images(x, options, err);
    if (status == DCP_OK) status = open_labels(x, err);
    if (status == DCP_OK) status = check_content(x, options->path, err);
    if (status == DCP_OK && !(x->image = malloc(x->images.item_bytes)))
        status = core_fail_memory(err, x->images.item_bytes);
    if (status == DCP_OK)
        *state = x;
    else
        idx_source_close(x);
    return status;
}

static uint64_t idx_samples(const void *state) { return ((const idx *)state)->images.items; }

static int fail_number(const idx *x, uint64_t item, uint64_t i, dcp_error *err) {
    uint64_t within;
    const char *path = idx_at(&x->images, item, &within);
    return core_fail(err, DCP_ERR_ARG,
                     "data.path: %s: the number at byte %" PRIu64
                     " is not finite as fp32; correct it",
                     path, within + i * idx_type_bytes(x->images.type));
}

/* Returns element i of an image of n elements, normalized. */
static float image_value(const idx *x, uint64_t i, uint64_t n) {
    const sample_normalization *how = &x->normalization;
    const idx_type type = x->images.type;
    if (type != IDX_U8 || !how->channels)
        return idx_float(type, x->image + i * idx_type_bytes(type));
    const uint64_t channel = i / (n / how->channels);
    return ((float)(x->image[i] * how->scale) - how->mean[channel]) / how->std[channel];
}

static int idx_source_read(void *state, uint64_t seed, uint64_t epoch, uint64_t index,
                           const sample_batch *out, dcp_error *err) {
    idx *x = state;
    uint8_t label[4];
    const uint64_t item = random_permute(index, x->images.items, seed, epoch);
    int status = idx_read(&x->images, item, 1, x->image, err);
    if (status == DCP_OK) status = idx_read(&x->labels, item, 1, label, err);
    if (status != DCP_OK) return status;
    const uint64_t n = x->images.item_bytes / idx_type_bytes(x->images.type);
    for (uint64_t i = 0; i < n; i++) {
        out->values[i] = image_value(x, i, n);
        if (!isfinite(out->values[i])) return fail_number(x, item, i, err);
    }
    const int64_t class = idx_integer(x->labels.type, label);
    out->targets[0] = (int32_t) class;
    return check_label(x, item, class, err); /* the file may have changed since the start */
}

static void idx_source_normalize(void *state, const sample_normalization *how) {
    ((idx *)state)->normalization = *how;
}

const data_source data_idx = {
    .type = "idx",
    .numbers = true,
    .open = idx_source_open,
    .close = idx_source_close,
    .samples = idx_samples,
    .read = idx_source_read,
    .normalize = idx_source_normalize,
};
