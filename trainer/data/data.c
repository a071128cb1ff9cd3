/* Samples by global number: sample g is number g % samples of epoch g / samples. */
#include "data/data.h"

#include <stdlib.h>
#include <string.h>

#include "data/fixed.h"
#include "data/idx.h"
#include "data/sequences.h"
#include "programs/fail.h"

struct data {
    const data_source *source;
    void *state;
    sample_shape shape;
};

static int find_source(const data_options *options, const data_source **out, dcp_error *err) {
    static const data_source *const sources[] = {&data_text, &data_tokens, &data_idx, &data_fixed};
    const int tokens = options->shape.tokens > 0;
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        if (strcmp(sources[i]->type, options->type) != 0) continue;
        *out = sources[i];
        if (tokens ? sources[i]->tokens : sources[i]->numbers) return DCP_OK;
        return core_fail(err, DCP_ERR_ARG, "data.type: %s gives %s, the model takes %s",
                         options->type, tokens ? "images" : "tokens",
                         tokens ? "tokens" : "images or vectors");
    }
    return core_fail(err, DCP_ERR_UNSUPPORTED, "data.type: %s is not built", options->type);
}

int data_open(const data_options *options, data **out, dcp_error *err) {
    data *d = calloc(1, sizeof *d);
    if (!d) return core_fail_memory(err, sizeof *d);
    d->shape = options->shape;
    int status = find_source(options, &d->source, err);
    if (status == DCP_OK) status = d->source->open(options, &d->state, err);
    if (status == DCP_OK)
        *out = d;
    else
        free(d);
    return status;
}

void data_close(data *d) {
    if (!d) return;
    d->source->close(d->state);
    free(d);
}

uint64_t data_samples(const data *d) { return d->source->samples(d->state); }

uint64_t data_fingerprint(const data *d) { return d->source->fingerprint(d->state); }

int data_read(data *d, uint64_t seed, uint64_t first, uint64_t n, const sample_batch *out,
              uint64_t *counted, dcp_error *err) {
    const uint64_t samples = data_samples(d);
    for (uint64_t g = first; g < first + n; g++) {
        const sample_batch at = model_sample_batch_at(out, &d->shape, g - first);
        const int status = d->source->read(d->state, seed, g / samples, g % samples, &at, err);
        if (status != DCP_OK) return status;
    }
    uint64_t count = 0;
    for (uint64_t i = 0; i < n * d->shape.targets; i++) count += out->targets[i] != SAMPLE_IGNORE;
    *counted = count;
    return DCP_OK;
}
