/* One batch from a safetensors file, the same at every step: input_ids and labels, I64 [batch,
 * sequence]. As in transformers, position t is to predict label t + 1; -100 is ignored. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../fail.h"
#include "dcp/safetensors.h"
#include "source.h"

typedef struct fixed {
    uint64_t rows, sequence;
    int64_t *ids, *labels; /* [rows, sequence] */
} fixed;

static void fixed_close(void *state) {
    fixed *f = state;
    free(f->ids);
    free(f->labels);
    free(f);
}

static int check_shape(const dcp_tensor *tensor, const data_options *o, dcp_error *err) {
    if (tensor->dtype != DCP_I64 || tensor->ndim != 2)
        return trainer_fail(err, DCP_ERR_ARG, "data.path: %s: %s is not I64 with two dimensions",
                            o->path, tensor->path);
    if (tensor->shape[0] != o->batch)
        return trainer_fail(err, DCP_ERR_ARG,
                            "data.path: %s has %" PRIu64 " rows, train_batch_size is %" PRIu64,
                            tensor->path, tensor->shape[0], o->batch);
    if (tensor->shape[1] != o->sequence)
        return trainer_fail(err, DCP_ERR_ARG,
                            "data.path: %s has %" PRIu64
                            " tokens a row, data.sequence_length is %" PRIu64,
                            tensor->path, tensor->shape[1], o->sequence);
    return DCP_OK;
}

static int check_ids(const int64_t *ids, uint64_t n, const char *name, const data_options *o,
                     int64_t ignored, dcp_error *err) {
    for (uint64_t i = 0; i < n; i++)
        if (ids[i] != ignored && (ids[i] < 0 || (uint64_t)ids[i] >= o->vocab))
            return trainer_fail(err, DCP_ERR_ARG,
                                "data.path: %s holds %" PRId64 " in row %" PRIu64
                                "; the vocabulary has %" PRIu64,
                                name, ids[i], i / o->sequence, o->vocab);
    return DCP_OK;
}

/* `ignored`: a value that may stand there although it is no token; 0: none. */
static int read_tensor(dcp_st_reader *reader, const char *name, const data_options *o,
                       int64_t ignored, int64_t **out, dcp_error *err) {
    const dcp_tensor *tensor = dcp_st_find(reader, name);
    if (!tensor) return trainer_fail(err, DCP_ERR_ARG, "data.path: %s holds no %s", o->path, name);
    int status = check_shape(tensor, o, err);
    if (status != DCP_OK) return status;
    const uint64_t bytes = dcp_tensor_bytes(tensor);
    *out = malloc(bytes);
    if (!*out) return trainer_fail_memory(err, bytes);
    status = dcp_st_read(reader, name, 0, bytes, *out, err);
    if (status != DCP_OK) return status;
    return check_ids(*out, bytes / sizeof **out, name, o, ignored, err);
}

static int fixed_open(const data_options *options, void **state, dcp_error *err) {
    dcp_st_reader *reader;
    dcp_error why;
    int status = dcp_st_open(options->path, &reader, &why);
    if (status != DCP_OK) return trainer_fail(err, status, "data.path: %s", why.message);
    fixed *f = calloc(1, sizeof *f);
    if (f) {
        f->rows = options->batch;
        f->sequence = options->sequence;
        status = read_tensor(reader, "input_ids", options, 0, &f->ids, err);
        if (status == DCP_OK)
            status = read_tensor(reader, "labels", options, DATA_IGNORE, &f->labels, err);
    } else {
        status = trainer_fail_memory(err, sizeof *f);
    }
    dcp_st_close(reader);
    if (status == DCP_OK)
        *state = f;
    else if (f)
        fixed_close(f);
    return status;
}

static uint64_t fixed_samples(const void *state) { return ((const fixed *)state)->rows; }

static uint64_t fixed_fingerprint(const void *state) {
    const fixed *f = state;
    uint64_t hash = 0xcbf29ce484222325;
    for (uint64_t i = 0; i < f->rows * f->sequence; i++) {
        hash = (hash ^ (uint64_t)f->ids[i]) * 0x100000001b3;
        hash = (hash ^ (uint64_t)f->labels[i]) * 0x100000001b3;
    }
    return hash;
}

static int fixed_read(void *state, uint64_t seed, uint64_t epoch, uint64_t index, int32_t *ids,
                      int32_t *targets, dcp_error *err) {
    (void)seed, (void)epoch, (void)err;
    const fixed *f = state;
    const int64_t *row = f->ids + index * f->sequence, *labels = f->labels + index * f->sequence;
    for (uint64_t i = 0; i < f->sequence; i++) {
        ids[i] = (int32_t)row[i];
        targets[i] = i + 1 < f->sequence ? (int32_t)labels[i + 1] : DATA_IGNORE;
    }
    return DCP_OK;
}

const data_source data_fixed = {
    .type = "safetensors",
    .open = fixed_open,
    .close = fixed_close,
    .samples = fixed_samples,
    .fingerprint = fixed_fingerprint,
    .read = fixed_read,
};
