/* Samples of speech from a file of records, for tests of models. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "dcp/safetensors.h"
#include "models/sample.h"

typedef struct golden_speech {
    size_t samples, sequence, frames, counted[2];
    int64_t *texts, *codes; /* [samples + 1] where text and frames begin */
    sample_batch batch;
} golden_speech;

static inline void *golden_speech_tensor(dcp_st_reader *from, const char *name, size_t *n) {
    const dcp_tensor *t = dcp_st_find(from, name);
    assert_non_null(t);
    void *data = malloc(dcp_tensor_bytes(t));
    assert_int_equal(dcp_st_read(from, name, 0, dcp_tensor_bytes(t), data, NULL), DCP_OK);
    *n = t->shape[0];
    return data;
}

static inline size_t golden_speech_text(const golden_speech *s, size_t i) {
    return (size_t)(s->texts[i + 1] - s->texts[i]);
}
static inline size_t golden_speech_frames(const golden_speech *s, size_t i) {
    return (size_t)(s->codes[i + 1] - s->codes[i]);
}

/* Ids that are not there, and targets that do not count. */
static inline void golden_speech_fill(int32_t *to, size_t n, int32_t with) {
    for (size_t i = 0; i < n; i++) to[i] = with;
}

static inline void golden_speech_put(golden_speech *s, const sample_shape *shape, size_t i,
                                     const uint32_t *ids, const uint16_t *codes) {
    const sample_batch at = model_sample_batch_at(&s->batch, shape, i);
    const size_t t = golden_speech_text(s, i), T = golden_speech_frames(s, i), g = shape->groups;
    for (size_t j = 0; j < t; j++) at.ids[j] = (int32_t)ids[(size_t)s->texts[i] + j];
    const uint16_t *own = codes + (size_t)s->codes[i] * g;
    for (size_t j = 0; j < T * g; j++) at.ids[shape->tokens + j] = own[j];
    for (size_t j = 0; j < T; j++) {
        at.targets[t + SAMPLE_SPEECH_AROUND - 1 + j] = own[j * g];
        for (size_t c = 1; c < g; c++)
            at.targets[shape->tokens + j * (g - 1) + c - 1] = own[j * g + c];
    }
    at.targets[t + SAMPLE_SPEECH_AROUND - 1 + T] = (int32_t)shape->end;
    s->counted[0] += T + 1;
    s->counted[1] += T * (g - 1);
}

/* Finds the sizes first, so that a model can be told. */
static inline void golden_speech_open(golden_speech *s, dcp_st_reader *records) {
    size_t n;
    *s = (golden_speech){0};
    s->texts = golden_speech_tensor(records, "text_starts", &n);
    s->codes = golden_speech_tensor(records, "frame_starts", &n);
    s->samples = n - 1;
    for (size_t i = 0; i < s->samples; i++) {
        const size_t t = golden_speech_text(s, i), T = golden_speech_frames(s, i);
        const size_t length = t + T + SAMPLE_SPEECH_AROUND;
        if (length > s->sequence) s->sequence = length;
        if (T > s->frames) s->frames = T;
    }
}

static inline void golden_speech_load(golden_speech *s, dcp_st_reader *records,
                                      const sample_shape *shape) {
    size_t n;
    const size_t ids = s->samples * model_sample_ids(shape), width = shape->dims[0];
    uint32_t *text = golden_speech_tensor(records, "text_ids", &n);
    uint16_t *codes = golden_speech_tensor(records, "codes", &n);
    uint32_t *speaker = golden_speech_tensor(records, "speaker_ids", &n);
    float *vectors = golden_speech_tensor(records, "speakers", &n);
    s->batch.ids = malloc(ids * sizeof *s->batch.ids);
    s->batch.values = malloc(s->samples * width * sizeof *s->batch.values);
    s->batch.targets = malloc(s->samples * shape->targets * sizeof *s->batch.targets);
    golden_speech_fill(s->batch.ids, ids, -1);
    golden_speech_fill(s->batch.targets, s->samples * shape->targets, SAMPLE_IGNORE);
    for (size_t i = 0; i < s->samples; i++) {
        golden_speech_put(s, shape, i, text, codes);
        for (size_t j = 0; j < width; j++)
            s->batch.values[i * width + j] = vectors[speaker[i] * width + j];
    }
    free(text);
    free(codes);
    free(speaker);
    free(vectors);
}

static inline void golden_speech_close(golden_speech *s) {
    free(s->texts);
    free(s->codes);
    free(s->batch.ids);
    free(s->batch.values);
    free(s->batch.targets);
}
