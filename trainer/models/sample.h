/* What one training sample is: a model asks for a shape, the data fills batches of it. A language
 * model's sample is a row of tokens, each with the token that it is to predict; a classifier's is
 * an image or a vector of numbers, with one class. One of speech is what a talker is given: the ids
 * of a text, the codes that say it and the speaker's vector; at places it is to predict the first
 * code of a frame, or the end, and in frames the other codes. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { SAMPLE_IGNORE = -100 }; /* a target that does not count */

typedef struct sample_shape {
    uint64_t tokens; /* ids that go in; 0 where numbers do */
    uint32_t ndim;   /* of the numbers: 3, an image [channels, height, width]; 1, a vector */
    uint64_t dims[3];
    uint64_t targets; /* as many as tokens, or 1; of speech one more for each code but the first */
    uint64_t classes; /* ids and targets lie below: the vocabulary, or the number of classes */
    int packed;       /* a sample of tokens may hold several documents */
    /* Of speech, whose tokens are positions of both channels together, and whose numbers are the
     * speaker's vector; elsewhere 0: */
    uint64_t frames, groups; /* room for frames, and codes of each */
    uint64_t texts, codes;   /* ids of text, and codes, lie below */
    uint64_t end;            /* the class behind the last frame */
} sample_shape;

/* Positions beside those of a text's ids and frames; the ids that stand first; and the fewest. */
enum { SAMPLE_SPEECH_AROUND = 7, SAMPLE_SPEECH_HEADER = 3, SAMPLE_SPEECH_LEAST_TEXT = 4 };

/* Samples one after the other. */
typedef struct sample_batch {
    int32_t *ids;     /* [n, tokens], of speech [n, tokens + frames * groups]: those of the text,
                         then the codes of frames, -1 behind either; NULL without tokens */
    float *values;    /* [n, dims]; NULL with tokens alone */
    int32_t *targets; /* [n, targets], of speech [n, tokens + frames * (groups - 1)] */
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

/* What a loss is the mean of, on its own, and how it counts beside others. */
typedef struct sample_loss {
    const char *name;
    double weight;
} sample_loss;

enum { SAMPLE_MOST_LOSSES = 2 };

static inline size_t model_sample_losses(const sample_shape *shape) {
    return shape->frames ? 2 : 1;
}
static inline sample_loss model_sample_loss(const sample_shape *shape, size_t i) {
    static const sample_loss speech[] = {{"talker", 1.0}, {"predictor", 0.3}};
    return shape->frames ? speech[i] : (sample_loss){"loss", 1.0};
}
/* Which of them target i of a sample belongs to. */
static inline size_t model_sample_loss_of(const sample_shape *shape, uint64_t i) {
    return shape->frames && i >= shape->tokens;
}

/* Ids of one sample; 0 where numbers alone go in. */
static inline uint64_t model_sample_ids(const sample_shape *shape) {
    return shape->tokens + shape->frames * shape->groups;
}

/* What a sample counts as, of tokens consumed. */
static inline uint64_t model_sample_tokens(const sample_shape *shape) {
    return shape->frames ? shape->tokens : shape->targets;
}

/* Numbers of one sample; 0 for tokens. */
static inline uint64_t model_sample_values(const sample_shape *shape) {
    uint64_t n = shape->ndim > 0;
    for (uint32_t d = 0; d < shape->ndim; d++) n *= shape->dims[d];
    return n;
}

/* The batch from its i-th sample on. */
static inline sample_batch model_sample_batch_at(const sample_batch *batch,
                                                 const sample_shape *shape, uint64_t i) {
    return (sample_batch){.ids = batch->ids ? batch->ids + i * model_sample_ids(shape) : NULL,
                          .values =
                              batch->values ? batch->values + i * model_sample_values(shape) : NULL,
                          .targets = batch->targets + i * shape->targets,
                          .places = batch->places ? batch->places + i * shape->tokens : NULL};
}
