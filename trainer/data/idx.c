/* Images, or vectors, and their classes from idx files. Of a folder or glob, the files with
 * "images" in their names count, and where some of these begin with "train" only those, so that a
 * folder of MNIST trains on its training images. Labels lie beside: the same name with "labels" in
 * place of "images", and idx1 in place of another idx and digit. Every epoch has its own order. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/idxfile.h"
#include "data/source.h"
#include "programs/fail.h"
#include "random/random.h"

enum { LABELS_AT_ONCE = 4096 };

typedef struct idx {
    idx_array images, labels;
    sample_shape shape;
    uint8_t *image; /* as in the file */
} idx;

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int is_images(const char *path) {
    const char *name = base_name(path), *end = name + strlen(name);
    return strstr(name, "images") && (end - name < 3 || strcmp(end - 3, ".gz") != 0);
}

static int is_train(const char *path) { return strncmp(base_name(path), "train", 5) == 0; }

static int any(const data_files *files, int (*is)(const char *path)) {
    for (size_t i = 0; i < files->n; i++)
        if (is(files->list[i].path)) return 1;
    return 0;
}

static int find_images(const char *path, data_files *files, dcp_error *err) {
    const int status = data_files_find(path, files, err);
    if (status != DCP_OK || (files->n == 1 && strcmp(files->list[0].path, path) == 0))
        return status;
    const size_t found = files->n;
    if (found == 0) return core_fail(err, DCP_ERR_NOT_FOUND, "data.path: %s is empty", path);
    data_files_keep(files, is_images);
    if (any(files, is_train)) data_files_keep(files, is_train);
    if (files->n > 0) return DCP_OK;
    return core_fail(err, DCP_ERR_NOT_FOUND,
                     "data.path: none of the %zu files of %s has images in its name, as "
                     "train-images-idx3-ubyte has; compressed ones (.gz) are to be unpacked",
                     found, path);
}

/* Where the labels of an image file should be; `one`: with idx1 in place of idx3. */
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
        return core_fail(err, DCP_ERR_ARG, "data.path: %s is empty", path);
    }
    return core_fail(err, DCP_ERR_NOT_FOUND,
                     "data.path: no labels beside %s; its name with labels in place of images "
                     "(and idx1 of idx3) is looked for",
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
                         "data.path: %s holds no labels: one dimension of integers is asked for",
                         path);
    for (size_t i = 0; i < x->images.files.n; i++)
        if (x->images.parts[i].items != x->labels.parts[i].items)
            return core_fail(err, DCP_ERR_ARG,
                             "data.path: %s holds %" PRIu64 " images, %s %" PRIu64 " labels",
                             x->images.files.list[i].path, x->images.parts[i].items,
                             x->labels.files.list[i].path, x->labels.parts[i].items);
    return DCP_OK;
}

/* An image may leave out a single channel; a vector takes the elements of any image. */
static int has_shape(const idx_array *a, const sample_shape *shape) {
    const uint64_t elems = a->item_bytes / idx_type_bytes(a->type);
    if (shape->ndim == 1) return elems == shape->dims[0];
    const uint32_t missing = shape->ndim - a->ndim;
    if (a->ndim > shape->ndim || missing > 1 || (missing == 1 && shape->dims[0] != 1)) return 0;
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
    return core_fail(err, DCP_ERR_ARG, "data.path: an item of %s is %s; the model takes %s%s",
                     x->images.files.list[0].path, *there ? there : "a single number", here,
                     x->shape.ndim == 3 ? " (channels, height, width)" : "");
}

static int check_label(const idx *x, uint64_t item, int64_t label, dcp_error *err) {
    if (label >= 0 && (uint64_t)label < x->shape.classes) return DCP_OK;
    uint64_t within;
    const char *path = idx_at(&x->labels, item, &within);
    return core_fail(err, DCP_ERR_ARG,
                     "data.path: %s: the label at byte %" PRIu64 " is %" PRId64
                     "; the model has %" PRIu64 " classes",
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
        status = core_fail(err, DCP_ERR_ARG, "data.path: %s holds no image", path);
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

static uint64_t idx_fingerprint(const void *state) {
    const idx *x = state;
    return data_files_fingerprint(&x->images.files) ^ ~data_files_fingerprint(&x->labels.files);
}

static int fail_number(const idx *x, uint64_t item, uint64_t i, dcp_error *err) {
    uint64_t within;
    const char *path = idx_at(&x->images, item, &within);
    return core_fail(err, DCP_ERR_ARG,
                     "data.path: %s: the number at byte %" PRIu64 " is not finite as fp32", path,
                     within + i * idx_type_bytes(x->images.type));
}

static int idx_source_read(void *state, uint64_t seed, uint64_t epoch, uint64_t index,
                           const sample_batch *out, dcp_error *err) {
    idx *x = state;
    uint8_t label[4];
    const uint64_t item = random_permute(index, x->images.items, seed, epoch);
    int status = idx_read(&x->images, item, 1, x->image, err);
    if (status == DCP_OK) status = idx_read(&x->labels, item, 1, label, err);
    if (status != DCP_OK) return status;
    const uint32_t width = idx_type_bytes(x->images.type);
    const uint64_t n = x->images.item_bytes / width;
    for (uint64_t i = 0; i < n; i++) {
        out->values[i] = idx_float(x->images.type, x->image + i * width);
        if (!isfinite(out->values[i])) return fail_number(x, item, i, err);
    }
    const int64_t class = idx_integer(x->labels.type, label);
    out->targets[0] = (int32_t) class;
    return check_label(x, item, class, err); /* the file may have changed since the start */
}

const data_source data_idx = {
    .type = "idx",
    .numbers = 1,
    .open = idx_source_open,
    .close = idx_source_close,
    .samples = idx_samples,
    .fingerprint = idx_fingerprint,
    .read = idx_source_read,
};
