/* What one training sample is: a model asks for a shape, the data fills batches of it. A language
 * model's sample is a row of tokens, each with the token that it is to predict; a classifier's is
 * an image or a vector of numbers, with one class. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { SAMPLE_IGNORE = -100 }; /* a target that does not count */

typedef struct sample_shape {
    uint64_t tokens; /* ids that go in; 0 where numbers do */
    uint32_t ndim;   /* of the numbers: 3, an image [channels, height, width]; 1, a vector */
    uint64_t dims[3];
    uint64_t targets; /* as many as tokens, or 1 */
    uint64_t classes; /* ids and targets lie below: the vocabulary, or the number of classes */
    int packed;       /* a sample of tokens may hold several documents */
} sample_shape;

/* Samples one after the other. */
typedef struct sample_batch {
    int32_t *ids;     /* [n, tokens]; NULL without tokens */
    float *values;    /* [n, dims]; NULL with tokens */
    int32_t *targets; /* [n, targets] */
    int32_t *places; /* [n, tokens] of packed samples, each token's place in its document: 0, or one
                        more than that of the token before; NULL for others */
} sample_batch;

enum { SAMPLE_MOST_CHANNELS = 16 };

/* How a byte of an image becomes a number: (byte * scale - mean) / std of its channel. */
typedef struct sample_normalization {
    uint64_t channels; /* 0: it is byte / 255 */
    double scale;
    float mean[SAMPLE_MOST_CHANNELS], std[SAMPLE_MOST_CHANNELS];
} sample_normalization;

/* Numbers of one sample; 0 for tokens. */
static inline uint64_t model_sample_values(const sample_shape *shape) {
    uint64_t n = shape->ndim > 0;
    for (uint32_t d = 0; d < shape->ndim; d++) n *= shape->dims[d];
    return n;
}

/* The batch from its i-th sample on. */
static inline sample_batch model_sample_batch_at(const sample_batch *batch,
                                                 const sample_shape *shape, uint64_t i) {
    return (sample_batch){.ids = batch->ids ? batch->ids + i * shape->tokens : NULL,
                          .values =
                              batch->values ? batch->values + i * model_sample_values(shape) : NULL,
                          .targets = batch->targets + i * shape->targets,
                          .places = batch->places ? batch->places + i * shape->tokens : NULL};
}
