/* Inside a model: what it consists of, and the memory of a run. */
#pragma once

#include <stddef.h>

#include "kernels/kernels.h"
#include "models/families.h"
#include "models/param.h"
#include "models/sample.h"

/* One stretch of memory, laid out twice by the same functions: first to learn its size, then for
 * its addresses. Everything lies on 64-byte boundaries. */

typedef struct arena {
    char *base; /* NULL while only the size is asked for */
    size_t used;
    int overflow;
} arena;

/* NULL while only the size is asked for. */
void *model_arena_take(arena *a, size_t rows, size_t bytes_a_row);
float *model_arena_floats(arena *a, size_t rows, size_t cols);
void *model_arena_typed(arena *a, size_t rows, size_t cols, kernels_type type);

/* `part` began as a copy of `a` and shares its place with others that did. */
void model_arena_cover(arena *a, const arena *part);

/* Inside a model: what it is made of, and the memory of a run.
 *
 * A family is its config (names, sizes, flags) and three kinds of stages, chosen from those here:
 * how samples enter, the block, how the loss comes about. Stages are made of parts, which know
 * where their parameters stand in their unit and compute forwards and backwards. */

#define NO_PLACE SIZE_MAX

typedef struct model model;
typedef struct model_run model_run;

typedef struct linear {
    size_t weight, bias; /* places in the unit; bias may be NO_PLACE */
    size_t in, out;
    int in_first; /* the weight is stored [in,out], not [out,in] */
} linear;

typedef struct norm {
    size_t weight, bias; /* places; NO_PLACE for the bias: an RMSNorm, else a LayerNorm */
    size_t dim;
    float eps;
} norm;

typedef struct root_parts {
    size_t embed, positions, class_token; /* places, or NO_PLACE */
    linear patches;
    norm final;
    linear head;
} root_parts;

/* What a talker's root has besides, and its predictor's. Places are the root's. */
typedef struct speech_parts {
    size_t text;       /* the text's table */
    linear rise, fall; /* of its embedding, with the activation between them */
    linear projection; /* of the predictor's input; out 0: its width is the talker's */
    size_t *tables;    /* [groups - 1] of codes but the first */
    linear *heads;     /* [groups - 1] likewise */
} speech_parts;

typedef struct block_parts {
    norm attention_norm, q_norm, k_norm, mlp_norm;
    linear q, k, v, qkv, o, gate, up, down;
} block_parts;

/* One kind of stage. `layer` counts blocks; elsewhere it is 0. */
typedef struct stage_kind {
    void (*keep)(model_run *run, arena *a, size_t layer); /* lays out what the backward needs */
    void (*work)(model_run *run, arena *a); /* and what no other kind uses at the same time */
    void (*forward)(model_run *run, size_t layer, const float *const *params);
    void (*backward)(model_run *run, size_t layer, const float *const *params, float *const *grads);
} stage_kind;

/* How samples enter; stage_frames, the predictor, whose rows are codes of frames. */
extern const stage_kind stage_tokens, stage_image, stage_vector, stage_speech, stage_frames;
extern const stage_kind stage_transformer, stage_dense; /* blocks */
extern const stage_kind stage_head;                     /* norm, linear, cross-entropy */
extern const stage_kind stage_codes; /* likewise, of a frame's codes but the first */

typedef struct model_unit {
    model_param *params;
    size_t n;
} model_unit;

struct model {
    model_config c;
    kernels *own, *k;  /* the CPU's; those that it computes with */
    kernels_type type; /* that it computes in */
    model_unit *units; /* [model_units] */
    root_parts root;
    block_parts block;
    const stage_kind *input, *body, *head;
    int checkpointing; /* one block's keep serves all of them */
    int packed;        /* samples of its runs are */
    /* A talker's predictor, whose stages follow. Its root is the talker's, unit 0, and that of its
     * block `layer` is units[layer + 1], as here: these are the last of the talker's. */
    model *inner;
    speech_parts speech;
    uint64_t frames; /* that a sample has room for */
};

/* What a block keeps for its backward, n rows. Cheap things (normed inputs, rotated queries and
 * keys, activations) are computed again. */
typedef struct block_run {
    void *q;        /* [n,heads,head_dim] as projected, of model_heads_type */
    void *key;      /* [n,kv_heads,head_dim] as projected, likewise */
    void *value;    /* [n,kv_heads,head_dim], likewise */
    void *attended; /* [n,heads,head_dim], likewise */
    float *lse;     /* [batch,heads,length] */
    float *middle;  /* [n,hidden] the residual stream between attention and MLP */
    void *gate;     /* [n,intermediate] of model_inner_type, of gated MLPs; its own gradient after
                       the backward */
    void *up;       /* [n,intermediate], or of a dense block [n,out] in fp32; likewise */
} block_run;

/* Attention's working memory, of model_heads_type where it is void. */
typedef struct attention_work {
    float *fused;    /* [n,(heads + 2 kv_heads) head_dim] where q, k and v are one part */
    void *q;         /* [n,heads,head_dim] normed and rotated; then the projection's gradient */
    void *key;       /* [n,kv_heads,head_dim] likewise */
    float *dq;       /* [n,heads,head_dim] of normed and rotated heads; in fp32 it is q */
    float *dkey;     /* [n,kv_heads,head_dim] likewise, always an array of its own */
    void *dvalue;    /* [n,kv_heads,head_dim] */
    void *dattended; /* [n,heads,head_dim] */
    float *scratch;
} attention_work;

/* Of a run over a text that comes piece by piece: its keys, normed and rotated, and values. */
typedef struct kv_cache {
    size_t room;  /* tokens that it can hold; 0: the run has none */
    size_t piece; /* those that come at a time, at most */
    size_t past;  /* those before the piece at hand */
    void *memory; /* [layers,2,room,kv_heads,head_dim] of model_heads_type: keys, then values */
} kv_cache;

/* What attention sees of a layer, from the first token on. */
typedef struct kv_rows {
    const void *key, *value;
} kv_rows;

/* What a norm's backward needs of its forward. */
typedef struct norm_stats {
    float *mean; /* [rows], of LayerNorm */
    float *rstd; /* [rows] */
} norm_stats;

/* A talker's samples in lists of rows, one after the other in memory. Frames are those of all
 * samples, and some more that are none: of these, and of what is not there, an id is -1. */
typedef struct speech_lists {
    int32_t *text, *codec; /* [rows] ids of both channels: the first code of a frame is of these */
    int32_t *at, *before;  /* [frames] the frame's row in the stream, and that before it */
    int32_t *codes;        /* [groups, frames] */
    int32_t *targets;      /* [groups - 1, frames] */
} speech_lists;

/* A talker's run besides a decoder's. */
typedef struct speech_run {
    size_t frames;             /* of the predictor's run: a multiple of SPEECH_FRAMES_STEP */
    speech_lists lists, host;  /* in the kernels' memory, and in the host's */
    float *text, *risen, *mid; /* [rows,text_hidden]: embedded, projected once, and activated */
    float *of_frames;          /* [frames,hidden] what codes but the first add up to */
} speech_run;

/* Its predictor's run besides. */
typedef struct frames_run {
    float *before; /* [frames,hidden] what left the talker's last block before each frame */
    norm_stats before_stats;
    float *inputs; /* [frames,groups,hidden] before the projection; NULL: the stream itself */
    float *dinputs;
    float *column; /* [frames,hidden] one row of each frame */
    float *picked; /* [groups - 1,frames,hidden of the predictor] what its heads look at */
} frames_run;

/* A multiple of this many rows of any width begins at a place that kernels take. */
enum { SPEECH_FRAMES_STEP = 32 };

struct model_run {
    const model *m;
    kernels *k;
    size_t batch;
    size_t length; /* rows of a sample in the stream: tokens, patches and the class token, or 1 */
    size_t rows;   /* batch * length */
    sample_shape shape;
    sample_batch samples; /* in the kernels' memory */
    float scale;
    model_run *inner, *outer; /* a talker's has its predictor's inside */
    speech_run speech;        /* of the outer one */
    frames_run frames;        /* of the inner one */
    double *host_losses;      /* [counted] */
    size_t kept;              /* with checkpointing: the stage whose keep is there */
    int again;                /* a forward that only fills its keep */
    void (*poll)(void *ctx);  /* may be NULL */
    void *poll_ctx;

    void *memory;
    uint64_t bytes;
    uint64_t kept_bytes; /* beside them, by the kernels: matmul_bf16_keeps */
    float **stream; /* [layers + 1]: [rows,hidden] what enters each block, and what leaves the last;
                       of an MLP [rows,sizes] */
    float *dstream; /* [rows,hidden] its gradient */
    uint16_t *dstream_rounded; /* [rows,hidden] the same in bf16, where the model computes in it and
                                  blocks are transformers */
    void *normed;              /* [rows,hidden] of the model's type */
    float *dnormed;            /* [rows,hidden] */
    norm_stats stats;          /* [rows] */
    float *unwanted;           /* [hidden or head_dim] gradients of norms that are frozen */
    float *cosines, *sines;    /* [model_positions,head_dim/2] */
    block_run *blocks;         /* [layers] */
    attention_work attention;
    kv_cache cache;
    void *mlp;        /* [rows,intermediate] */
    float *patches;   /* [batch * patches, channels * patch] */
    float *projected; /* [batch * patches, hidden] */
    size_t counted;   /* rows that the head sees: all, or one a sample: its first, or with a cache
                         its last */
    float *picked;    /* [counted,hidden] those rows, where they are not all */
    void *logits;   /* [counted,classes] of model_logits_type; their gradient after the backward */
    float *lse;     /* [counted] */
    double *losses; /* [counted] */

    /* In bf16; [0,...] in fp32: */
    uint16_t *in, *dout; /* a linear layer's input, and its output's gradient */
    uint16_t *weight;    /* the parameter at work */
    float *rounded[2];   /* parameters that are not multiplied by matrices */
};

static inline size_t model_q_dim(const model *m) { return m->c.heads * m->c.head_dim; }
static inline size_t model_kv_dim(const model *m) { return m->c.kv_heads * m->c.head_dim; }
/* Width of the stream where it enters block `layer`. */
static inline size_t model_width(const model *m, size_t layer) {
    return m->c.sizes ? m->c.sizes[layer] : m->c.hidden;
}
/* Tokens that one of the layer sees, up to itself; 0: all. */
static inline size_t model_window(const model *m, size_t layer) {
    return m->c.windows ? m->c.windows[layer] : 0;
}
static inline size_t model_patches(const model *m) {
    return (m->c.image[0] / m->c.patch[0]) * (m->c.image[1] / m->c.patch[1]);
}
static inline size_t model_patch_dim(const model *m) {
    return m->c.channels * m->c.patch[0] * m->c.patch[1];
}
/* Rows of a sample in the stream; `sequence`: tokens of a sample. */
static inline size_t model_length(const model *m, size_t sequence) {
    if (m->c.input == INPUT_IMAGE) return 1 + model_patches(m);
    return m->c.input == INPUT_TOKENS || m->c.input == INPUT_SPEECH ? sequence : 1;
}

/* What kernels get as places: NULL where samples are not packed. */
static inline const int32_t *model_places(const model_run *run) {
    return run->shape.packed ? run->samples.places : NULL;
}

/* Positions that tokens of the run may have. */
static inline size_t model_positions(const model_run *run) {
    return run->cache.room ? run->cache.room : run->length;
}

/* What the arrays between the MLP's products hold, and heads on their way from their projection
 * through attention and back: fp32 where a bias is added to them. */
static inline kernels_type model_inner_type(const model *m) {
    return m->c.mlp_bias || m->c.sizes ? KERNELS_F32 : m->type;
}
/* Rows of a table are used as parameters are: in bf16 they are rounded. */
static inline unsigned model_table_flags(const model *m) {
    return m->type == KERNELS_BF16 ? KERNELS_ROUND : 0;
}
/* Of logits, which no layer follows, only where they are so many that they would be the largest
 * array by far: their rounding is felt in every gradient. */
enum { MODEL_MANY_LOGITS = 16 }; /* for each element of the stream */
static inline kernels_type model_logits_type(const model *m) {
    const int many = m->c.classes > MODEL_MANY_LOGITS * m->c.hidden;
    return many && m->root.head.bias == NO_PLACE ? m->type : KERNELS_F32;
}
static inline kernels_type model_heads_type(const model *m) {
    return m->c.qkv_bias || m->block.qkv.out > 0 ? KERNELS_F32 : m->type;
}

/* The cache of keys and values: what attention needs of the earlier pieces of a text. */

void model_cache_lay_out(model_run *run, arena *a);

/* Where keys and values of the layer are, once the block has computed those of the piece at hand.
 * With a cache it computes them to their place behind those of earlier pieces. */
kv_rows model_cache_place(model_run *run, size_t layer);
