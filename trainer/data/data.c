/* Samples by global number: sample g is number g % samples of epoch g / samples. */
#include "data/data.h"

#include <stdlib.h>
#include <string.h>

#include "data/fixed.h"
#include "data/idx.h"
#include "data/sequences.h"
#include "programs/fail.h"

/* Samples of the checksum: all where they are few and small, else some. */
enum { ALL_SAMPLES = 4096, SOME_SAMPLES = 256, CHECKED_BYTES = 16 << 20 };

struct data {
    const data_source *source;
    void *state;
    uint64_t fingerprint;
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

static uint64_t count_checked(uint64_t samples, uint64_t sample_bytes) {
    const uint64_t most = CHECKED_BYTES / sample_bytes,
                   some = most < SOME_SAMPLES ? most : SOME_SAMPLES;
    if (samples <= most && samples <= ALL_SAMPLES) return samples;
    return some == 0 ? 1 : some < samples ? some : samples;
}

/* FNV-1a, of n words of 4 bytes. */
static uint64_t hash_words(uint64_t hash, const void *memory, uint64_t n) {
    const char *at = memory;
    uint32_t word;
    for (uint64_t i = 0; at && i < n; i++) {
        memcpy(&word, at + i * sizeof word, sizeof word);
        hash = (hash ^ word) * 0x100000001b3;
    }
    return hash;
}

/* `room`: of one sample. The order of epoch 0 with seed 0 spreads the first samples. */
static int hash_samples(data *d, const sample_batch *room, uint64_t words, dcp_error *err) {
    const uint64_t samples = data_samples(d), n = count_checked(samples, words * 4);
    uint64_t hash = hash_words(0xcbf29ce484222325, &samples, 2);
    for (uint64_t i = 0; i < n; i++) {
        const int status = d->source->read(d->state, 0, 0, i, room, err);
        if (status != DCP_OK) return status;
        hash = hash_words(hash, room->ids, d->shape.tokens);
        hash = hash_words(hash, room->values, model_sample_values(&d->shape));
        hash = hash_words(hash, room->targets, d->shape.targets);
    }
    d->fingerprint = hash;
    return DCP_OK;
}

static int take_fingerprint(data *d, dcp_error *err) {
    const uint64_t values = model_sample_values(&d->shape), tokens = d->shape.tokens;
    const uint64_t words = tokens + values + d->shape.targets;
    uint32_t *memory = malloc(words * sizeof *memory);
    if (!memory) return core_fail_memory(err, words * sizeof *memory);
    sample_batch room = {.targets = (int32_t *)memory + tokens + values};
    if (tokens) room.ids = (int32_t *)memory;
    if (values) room.values = (float *)memory + tokens;
    const int status = hash_samples(d, &room, words, err);
    free(memory);
    return status;
}

int data_open(const data_options *options, data **out, dcp_error *err) {
    data *d = calloc(1, sizeof *d);
    if (!d) return core_fail_memory(err, sizeof *d);
    d->shape = options->shape;
    int status = find_source(options, &d->source, err);
    if (status == DCP_OK) status = d->source->open(options, &d->state, err);
    if (status != DCP_OK) {
        free(d);
        return status;
    }
    status = take_fingerprint(d, err);
    if (status == DCP_OK)
        *out = d;
    else
        data_close(d);
    return status;
}

void data_close(data *d) {
    if (!d) return;
    d->source->close(d->state);
    free(d);
}

uint64_t data_samples(const data *d) { return d->source->samples(d->state); }

uint64_t data_fingerprint(const data *d) { return d->fingerprint; }

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
