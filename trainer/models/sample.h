/* The shape of a training sample, which the model specifies, and batches of samples, which are
 * filled from the data. A language model's sample is a row of tokens, each with the token that it
 * should predict. A classifier's sample is an image or a vector of numbers, with one class. A
 * talker's sample of speech has the ids of a text, the codes of its speech, and the speaker's
 * vector. Some positions predict the first code of a frame, or the end; a frame predicts its other
 * codes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SAMPLE_IGNORE = -100 }; /* a target that does not count */

typedef struct sample_shape {
    uint64_t tokens; /* ids of the input; 0 if it is numbers */
    uint32_t ndim;   /* of the numbers: 3 for an image [channels, height, width], 1 for a vector */
    uint64_t dims[3];
    uint64_t targets; /* tokens, or 1; for speech, tokens + frames * (groups - 1) */
    uint64_t classes; /* ids and targets are below it: the vocabulary, or the number of classes */
    bool packed;      /* a sample of tokens may hold several documents */
    /* Used only for speech, otherwise 0. With speech, the tokens are the positions that both
     * channels share, and the numbers are the speaker's vector: */
    uint64_t frames, groups; /* the largest number of frames, and codes in each */
    uint64_t texts, codes;   /* ids of text, and codes, are below these */
    uint64_t end;            /* the class that is predicted after the last frame */
} sample_shape;

/* AROUND: the number of positions that hold neither an id of the text nor a frame. HEADER: the
 * number of ids before the text itself. LEAST_TEXT: the smallest number of ids. */
enum { SAMPLE_SPEECH_AROUND = 7, SAMPLE_SPEECH_HEADER = 3, SAMPLE_SPEECH_LEAST_TEXT = 4 };

/* Samples, contiguous. */
typedef struct sample_batch {
    /* [n, tokens], for speech [n, tokens + frames * groups]: the ids of the text, then the codes of
     * frames, both padded with -1. NULL without tokens. */
    int32_t *ids;
    float *values;    /* [n, dims]; NULL if there are only tokens */
    int32_t *targets; /* [n, targets], for speech [n, tokens + frames * (groups - 1)] */
    /* [n, tokens] For packed samples, each token's place in its document: 0, or one more than the
     * place of the previous token. NULL for samples that are not packed. */
    int32_t *places;
} sample_batch;

enum { SAMPLE_MAX_CHANNELS = 16 };

/* How a byte of an image becomes a number: (byte * scale - mean) / std of its channel. */
typedef struct sample_normalization {
    uint64_t channels; /* 0: the number is byte / 255 */
    double scale;
    float mean[SAMPLE_MAX_CHANNELS], std[SAMPLE_MAX_CHANNELS];
} sample_normalization;

/* One of the losses of a sample. Each is a separate mean, and has a weight in the sum of all
 * losses. */
typedef struct sample_loss {
    const char *name;
    double weight;
} sample_loss;

enum { SAMPLE_MAX_LOSSES = 2 };

static inline size_t model_sample_losses(const sample_shape *shape) {
    return shape->frames ? 2 : 1;
}
static inline sample_loss model_sample_loss(const sample_shape *shape, size_t i) {
    static const sample_loss speech[] = {{"talker", 1.0}, {"predictor", 0.3}};
    return shape->frames ? speech[i] : (sample_loss){"loss", 1.0};
}
/* The index of the loss to which target i of a sample belongs. */
static inline size_t model_sample_loss_of(const sample_shape *shape, uint64_t i) {
    return shape->frames && i >= shape->tokens;
}

/* The number of ids of one sample; 0 if the input is only numbers. */
static inline uint64_t model_sample_ids(const sample_shape *shape) {
    return shape->tokens + shape->frames * shape->groups;
}

/* The number of tokens that count as consumed with each sample. */
static inline uint64_t model_sample_tokens(const sample_shape *shape) {
    return shape->frames ? shape->tokens : shape->targets;
}

/* How many numbers one sample has; 0 for tokens. */
static inline uint64_t model_sample_values(const sample_shape *shape) {
    uint64_t n = shape->ndim > 0;
    for (uint32_t d = 0; d < shape->ndim; d++) n *= shape->dims[d];
    return n;
}

/* The part of the batch that starts at its i-th sample. */
static inline sample_batch model_sample_batch_at(const sample_batch *batch,
                                                 const sample_shape *shape, uint64_t i) {
    return (sample_batch){.ids = batch->ids ? batch->ids + i * model_sample_ids(shape) : NULL,
                          .values =
                              batch->values ? batch->values + i * model_sample_values(shape) : NULL,
                          .targets = batch->targets + i * shape->targets,
                          .places = batch->places ? batch->places + i * shape->tokens : NULL};
}
