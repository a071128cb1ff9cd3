/* Bytes as tokens. Window w is bytes [w * sequence, (w + 1) * sequence]: windows share one byte, so
 * that each byte but the first is predicted once an epoch. Every epoch has its own order. */
#include <inttypes.h>
#include <stdlib.h>

#include "../fail.h"
#include "../random/random.h"
#include "files.h"
#include "source.h"

enum { VOCABULARY = 256 };

typedef struct text {
    data_files files;
    uint64_t sequence;
    uint8_t *window; /* [sequence + 1] */
} text;

static void text_close(void *state) {
    text *t = state;
    data_files_close(&t->files);
    free(t->window);
    free(t);
}

static int text_check(const text *t, const data_options *options, dcp_error *err) {
    if (options->shape.classes < VOCABULARY)
        return trainer_fail(err, DCP_ERR_ARG,
                            "model: a vocabulary of %" PRIu64
                            " is too small for data.type text, whose tokens are 256 byte values",
                            options->shape.classes);
    if (t->files.bytes < t->sequence + 1)
        return trainer_fail(err, DCP_ERR_ARG,
                            "data.path: %s holds %" PRIu64 " bytes in %zu files; a sample of "
                            "data.sequence_length %" PRIu64 " takes %" PRIu64,
                            options->path, t->files.bytes, t->files.n, t->sequence,
                            t->sequence + 1);
    return DCP_OK;
}

static int text_open(const data_options *options, void **state, dcp_error *err) {
    text *t = calloc(1, sizeof *t);
    if (!t) return trainer_fail_memory(err, sizeof *t);
    t->files.fd = -1;
    t->sequence = options->shape.tokens;
    t->window = malloc(options->shape.tokens + 1);
    int status = t->window ? data_files_find(options->path, &t->files, err)
                           : trainer_fail_memory(err, options->shape.tokens + 1);
    if (status == DCP_OK) status = text_check(t, options, err);
    if (status == DCP_OK)
        *state = t;
    else
        text_close(t);
    return status;
}

static uint64_t text_samples(const void *state) {
    const text *t = state;
    return (t->files.bytes - 1) / t->sequence;
}

static uint64_t text_fingerprint(const void *state) {
    return data_files_fingerprint(&((const text *)state)->files);
}

static int text_read(void *state, uint64_t seed, uint64_t epoch, uint64_t index,
                     const sample_batch *out, dcp_error *err) {
    text *t = state;
    const uint64_t w = random_permute(index, text_samples(t), seed, epoch);
    const int status = data_files_read(&t->files, w * t->sequence, t->sequence + 1, t->window, err);
    if (status != DCP_OK) return status;
    for (uint64_t i = 0; i < t->sequence; i++) {
        out->ids[i] = t->window[i];
        out->targets[i] = t->window[i + 1];
    }
    return DCP_OK;
}

const data_source data_text = {
    .type = "text",
    .tokens = 1,
    .open = text_open,
    .close = text_close,
    .samples = text_samples,
    .fingerprint = text_fingerprint,
    .read = text_read,
};
