/* The content of a model's config.json, checked and with defaults filled in, in terms that all
 * families share. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "kernels/kernels.h"
#include "models/positions.h"

/* INPUT_SPEECH: a text, its speech as frames of several codes each, and the speaker's vector. */
typedef enum model_input { INPUT_TOKENS, INPUT_IMAGE, INPUT_VECTOR, INPUT_SPEECH } model_input;

/* Hugging Face's names of a family's parts, without ".weight" and ".bias". The two parts that are a
 * single tensor are named in full. NULL: the family has no such part. */
typedef struct family_names {
    const char *base; /* the beginning of all names; absent in files of a base model */
    const char *embed, *patches, *final_norm, *head;
    const char *positions, *class_token; /* in full */
    const char *block, *after; /* the beginning of a block's names, before and after its number */
    const char *attention_norm, *q, *k, *v, *o;
    const char *qkv; /* in place of q, k and v: all three in one */
    const char *q_norm, *k_norm;
    const char *mlp_norm, *up, *down;
    const char *gate; /* if it exists: down(f(gate) * up), otherwise down(f(up)) */
} family_names;

typedef struct model_config {
    const family_names *names; /* static */
    model_input input;
    uint64_t classes; /* the number of outputs to choose from: the size of the vocabulary, or the
                         number of classes */
    uint64_t hidden, intermediate, layers;
    uint64_t heads, kv_heads, head_dim;
    uint64_t max_positions;                /* of tokens; 0 for other inputs */
    uint64_t channels, image[2], patch[2]; /* of images; height, width */
    kernels_activation activation;
    model_rope rope;
    double norm_eps;
    double init_std;
    bool causal;
    bool tied;       /* the head's weight is the embedding's */
    bool layer_norm; /* LayerNorm with biases instead of RMSNorm */
    bool in_first;   /* linear weights are stored [in,out] */
    bool qkv_bias, o_bias, mlp_bias, head_bias;
    uint64_t *sizes; /* [layers + 2] of a plain MLP, allocated; NULL for transformers */
    /* [layers] the number of tokens that a token sees, counted backwards from itself; 0: no limit.
     * Allocated; NULL: no limit in any layer. */
    uint64_t *windows;
    struct speech_config *speech; /* for INPUT_SPEECH, allocated; otherwise NULL */
} model_config;

/* The members that only a talker's configuration uses. A talker's classes are the values of a
 * frame's first code, and special ids. */
typedef struct speech_config {
    uint64_t texts, text_hidden;             /* the text's vocabulary, and its embedding's width */
    uint64_t groups;                         /* codes per frame */
    uint64_t text_pad, text_begin, text_end; /* special ids of the text channel */
    uint64_t pad, begin, end, no_think, think_begin, think_end; /* ids of the codec channel */
    /* The configuration of the predictor, whose classes are the other codes; its `speech` is NULL.
     */
    model_config predictor;
} speech_config;
