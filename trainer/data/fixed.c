/* One batch from a safetensors file, the same at every step. Tokens: input_ids and labels, I64
 * [batch, sequence]; as in transformers, position t predicts label t + 1. Images and vectors:
 * pixel_values, F32 [batch, ...], and labels, I64 [batch]. Label -100 is ignored. */
#include "data/source.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/fail.h"
#include <dcp/safetensors.h>

typedef struct fixed {
    sample_shape shape;
    uint64_t rows;
    int64_t *ids;    /* [rows, tokens], or NULL */
    float *values;   /* [rows, numbers per sample], or NULL */
    int64_t *labels; /* [rows, targets] */
} fixed;

/* The properties that a tensor of the file must have. */
typedef struct asked {
    const char *name;
    dcp_dtype dtype;
    uint32_t ndim; /* without the dimension of rows */
    const uint64_t *dims;
} asked;

static void fixed_close(void *state) {
    fixed *f = state;
    free(f->ids);
    free(f->values);
    free(f->labels);
    free(f);
}

static void shape_text(char *text, size_t size, uint64_t rows, uint32_t ndim,
                       const uint64_t *dims) {
    size_t at = (size_t)snprintf(text, size, "[%" PRIu64, rows);
    for (uint32_t d = 0; d < ndim && at < size; d++)
        at += (size_t)snprintf(text + at, size - at, ",%" PRIu64, dims[d]);
    if (at < size) snprintf(text + at, size - at, "]");
}

/* A vector may have any shape in the file: it is flattened. */
static bool same_row(const dcp_tensor *tensor, const asked *a) {
    if (a->dtype == DCP_F32 && a->ndim == 1) {
        uint64_t n = 1;
        for (uint32_t d = 1; d < tensor->ndim; d++) n *= tensor->shape[d];
        return tensor->ndim > 1 && n == a->dims[0];
    }
    return tensor->ndim == a->ndim + 1 &&
           (!a->ndim || memcmp(tensor->shape + 1, a->dims, a->ndim * sizeof *a->dims) == 0);
}

static int check_shape(const dcp_tensor *tensor, const data_options *o, const asked *a,
                       dcp_error *err) {
    if (tensor->dtype != a->dtype || tensor->ndim == 0)
        return core_fail(err, DCP_ERR_ARG,
                         "data.path: %s: %s is %s, but must be %s with a dimension of rows; save "
                         "it in this form",
                         o->path, a->name, dcp_dtype_name(tensor->dtype), dcp_dtype_name(a->dtype));
    if (tensor->shape[0] != o->batch)
        return core_fail(err, DCP_ERR_ARG,
                         "data.path: %s: %s has %" PRIu64 " rows, but train_batch_size is %" PRIu64
                         "; make the two equal",
                         o->path, a->name, tensor->shape[0], o->batch);
    if (same_row(tensor, a)) return DCP_OK;
    char there[200], here[200];
    shape_text(there, sizeof there, tensor->shape[0], tensor->ndim - 1, tensor->shape + 1);
    shape_text(here, sizeof here, o->batch, a->ndim, a->dims);
    return core_fail(err, DCP_ERR_ARG, "data.path: %s: %s is %s, but %s requires %s; %s", o->path,
                     a->name, there, o->shape.tokens ? "data.sequence_length" : "the model", here,
                     o->shape.tokens ? "leave data.sequence_length out to use the file's length"
                                     : "set model to a model of the file's size");
}

static int read_tensor(dcp_st_reader *reader, const data_options *o, const asked *a, void **out,
                       dcp_error *err) {
    const dcp_tensor *tensor = dcp_st_find(reader, a->name);
    if (!tensor)
        return core_fail(err, DCP_ERR_ARG,
                         "data.path: %s has no tensor %s; save one under this name", o->path,
                         a->name);
    const int status = check_shape(tensor, o, a, err);
    if (status != DCP_OK) return status;
    const uint64_t bytes = dcp_tensor_bytes(tensor);
    *out = malloc(bytes + 1);
    if (!*out) return core_fail_memory(err, bytes);
    return dcp_st_read(reader, a->name, 0, bytes, *out, err);
}

/* Checks that every id or label is one of the model's tokens or classes. ignored: a value that is
 * allowed although it is none of them; pass 0 if there is no such value. */
static int check_ids(const int64_t *ids, uint64_t per_row, const char *name, const data_options *o,
                     int64_t ignored, dcp_error *err) {
    for (uint64_t i = 0; i < o->batch * per_row; i++)
        if (ids[i] != ignored && (ids[i] < 0 || (uint64_t)ids[i] >= o->shape.classes))
            return core_fail(err, DCP_ERR_ARG,
                             "data.path: %s: %s holds %" PRId64 " in row %" PRIu64
                             ", but the model has only %" PRIu64
                             " %s, counted from 0: the file may be for another model",
                             o->path, name, ids[i], i / per_row, o->shape.classes,
                             o->shape.tokens ? "tokens" : "classes");
    return DCP_OK;
}

static int read_input(fixed *f, dcp_st_reader *reader, const data_options *o, dcp_error *err) {
    const sample_shape *s = &o->shape;
    if (!s->tokens) {
        const asked numbers = {"pixel_values", DCP_F32, s->ndim, s->dims};
        return read_tensor(reader, o, &numbers, (void **)&f->values, err);
    }
    const asked ids = {"input_ids", DCP_I64, 1, &s->tokens};
    const int status = read_tensor(reader, o, &ids, (void **)&f->ids, err);
    return status == DCP_OK ? check_ids(f->ids, s->tokens, ids.name, o, 0, err) : status;
}

static int read_labels(fixed *f, dcp_st_reader *reader, const data_options *o, dcp_error *err) {
    const sample_shape *s = &o->shape;
    const asked labels = {"labels", DCP_I64, s->tokens > 0, &s->targets};
    const int status = read_tensor(reader, o, &labels, (void **)&f->labels, err);
    if (status != DCP_OK) return status;
    return check_ids(f->labels, s->targets, labels.name, o, SAMPLE_IGNORE, err);
}

static int fail_open(int status, const dcp_error *why, dcp_error *err) {
    return core_fail(err, status, "data.path: %s; give a safetensors file", why->message);
}

int data_fixed_sequence(const char *path, uint64_t *out, dcp_error *err) {
    dcp_st_reader *reader;
    dcp_error why;
    int status = dcp_st_open(path, &reader, &why);
    if (status != DCP_OK) return fail_open(status, &why, err);
    const dcp_tensor *ids = dcp_st_find(reader, "input_ids");
    if (!ids)
        status = core_fail(err, DCP_ERR_ARG,
                           "data.path: %s has no tensor input_ids; save one under this name", path);
    else if (ids->ndim != 2 || ids->shape[1] == 0)
        status = core_fail(
            err, DCP_ERR_ARG,
            "data.path: input_ids of %s is not [batch, sequence]; save it in that shape", path);
    else
        *out = ids->shape[1];
    dcp_st_close(reader);
    return status;
}

/* Returns a copy of the options. If the options accept any batch size, the copy has the file's
 * number of rows as its batch size. */
static data_options with_rows(const data_options *options, dcp_st_reader *reader) {
    data_options own = *options;
    const dcp_tensor *labels = dcp_st_find(reader, "labels");
    if (own.batch == DATA_ANY_BATCH) own.batch = labels && labels->ndim ? labels->shape[0] : 1;
    return own;
}

static int fixed_open(const data_options *options, void **state, dcp_error *err) {
    dcp_st_reader *reader;
    dcp_error why;
    int status = dcp_st_open(options->path, &reader, &why);
    if (status != DCP_OK) return fail_open(status, &why, err);
    const data_options own = with_rows(options, reader);
    fixed *f = calloc(1, sizeof *f);
    if (f) {
        f->shape = own.shape;
        f->rows = own.batch;
        status = read_input(f, reader, &own, err);
        if (status == DCP_OK) status = read_labels(f, reader, &own, err);
    } else {
        status = core_fail_memory(err, sizeof *f);
    }
    dcp_st_close(reader);
    if (status == DCP_OK)
        *state = f;
    else if (f)
        fixed_close(f);
    return status;
}

static uint64_t fixed_samples(const void *state) { return ((const fixed *)state)->rows; }

static int fixed_read(void *state, uint64_t seed, uint64_t epoch, uint64_t index,
                      const sample_batch *out, dcp_error *err) {
    (void)seed, (void)epoch, (void)err;
    const fixed *f = state;
    const uint64_t tokens = f->shape.tokens, values = model_sample_values(&f->shape);
    const int64_t *labels = f->labels + index * f->shape.targets;
    if (!tokens) {
        memcpy(out->values, f->values + index * values, values * sizeof *f->values);
        out->targets[0] = (int32_t)labels[0];
        return DCP_OK;
    }
    for (uint64_t i = 0; i < tokens; i++) {
        out->ids[i] = (int32_t)f->ids[index * tokens + i];
        out->targets[i] = i + 1 < tokens ? (int32_t)labels[i + 1] : SAMPLE_IGNORE;
    }
    return DCP_OK;
}

const data_source data_fixed = {
    .type = "safetensors",
    .tokens = true,
    .numbers = true,
    .open = fixed_open,
    .close = fixed_close,
    .samples = fixed_samples,
    .read = fixed_read,
};
