/* Inside a decoder: its parameters' places, and the memory of a run. */
#ifndef TRAINER_MODELS_DECODER_H
#define TRAINER_MODELS_DECODER_H

#include "kernels/kernels.h"
#include "models/config.h"
#include "models/model.h"

/* Places of a block's parameters in its unit; the last two only with qk_norm. */
enum {
    BLOCK_INPUT_NORM,
    BLOCK_Q,
    BLOCK_K,
    BLOCK_V,
    BLOCK_O,
    BLOCK_POST_NORM,
    BLOCK_GATE,
    BLOCK_UP,
    BLOCK_DOWN,
    BLOCK_Q_NORM,
    BLOCK_K_NORM,
    BLOCK_PARAMS
};

/* Places in the root unit; ROOT_HEAD only where it is not tied to ROOT_EMBED. */
enum { ROOT_EMBED, ROOT_NORM, ROOT_HEAD, ROOT_PARAMS };

struct model {
    decoder_config c;
    kernels *k;
    size_t root_params, block_params;
    model_param root[ROOT_PARAMS];
    model_param *blocks; /* [layers][block_params] */
};

/* What a block keeps for its backward, n tokens. Cheap things (normed inputs, rotated queries and
 * keys, silu(gate) * up) are computed again. */
typedef struct block_run {
    float *in;       /* [n,hidden] the residual stream that enters */
    float *q;        /* [n,heads,head_dim] as projected */
    float *key;      /* [n,kv_heads,head_dim] as projected */
    float *value;    /* [n,kv_heads,head_dim] */
    float *attended; /* [n,heads,head_dim] */
    float *lse;      /* [batch,heads,sequence] */
    float *middle;   /* [n,hidden] the residual stream between attention and MLP */
    float *gate;     /* [n,intermediate]; its own gradient after the backward */
    float *up;       /* [n,intermediate]; likewise */
} block_run;

/* Attention's working memory. */
typedef struct attention_work {
    float *q;         /* [n,heads,head_dim] normed and rotated; in the backward its gradient */
    float *key;       /* [n,kv_heads,head_dim] normed and rotated */
    float *dkey;      /* [n,kv_heads,head_dim] */
    float *dvalue;    /* [n,kv_heads,head_dim] */
    float *dattended; /* [n,heads,head_dim] */
    float *scratch;
} attention_work;

struct model_run {
    const model *m;
    kernels *k;
    size_t batch, sequence, tokens;
    const int32_t *ids, *targets;
    float scale;
    double loss;
    void (*poll)(void *ctx); /* may be NULL */
    void *poll_ctx;

    void *memory;
    uint64_t bytes;
    float *cosines, *sines; /* [sequence,head_dim/2] */
    block_run *blocks;      /* [layers] */
    float *last;            /* [n,hidden] what leaves the last block */
    float *dresidual;       /* [n,hidden] gradient of the residual stream */
    float *normed;          /* [n,hidden] */
    float *dnormed;         /* [n,hidden] */
    float *rstd;            /* [n] */
    float *q_rstd;          /* [n,heads], with qk_norm */
    float *k_rstd;          /* [n,kv_heads], with qk_norm */
    float *logits_lse;      /* [n] */
    double *losses;         /* [n] */
    /* One stretch of memory, used as one of these at a time. */
    attention_work attention;
    float *mlp;    /* [n,intermediate] */
    float *logits; /* [n,vocab]; their gradient after the backward */
};

static inline size_t decoder_q_dim(const model *m) { return m->c.heads * m->c.head_dim; }
static inline size_t decoder_kv_dim(const model *m) { return m->c.kv_heads * m->c.head_dim; }
static inline kernels_attention decoder_attention_shape(const model *m, size_t batch,
                                                        size_t sequence) {
    return (kernels_attention){.batch = batch,
                               .sequence = sequence,
                               .heads = m->c.heads,
                               .kv_heads = m->c.kv_heads,
                               .head_dim = m->c.head_dim};
}

/* A matrix product of run->k, and the poll after it. */
void decoder_product(model_run *run, float *c, const float *a, const float *b, size_t m, size_t n,
                     size_t depth, unsigned flags);
/* out[n,hidden] = RMSNorm of in; fills run->rstd. */
void decoder_norm(model_run *run, float *out, const float *in, const float *weight);
/* The block's queries and keys, normed and rotated, into run->attention. */
void decoder_rotate(model_run *run, const block_run *b, const float *const *params);
/* run->mlp = silu(gate) * up */
void decoder_activate(model_run *run, const block_run *b);
/* lm_head.weight among the root's parameters (or their gradients). */
static inline size_t decoder_head_place(const model *m) {
    return m->c.tied ? ROOT_EMBED : ROOT_HEAD;
}

#endif
