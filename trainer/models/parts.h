/* Inside a model: its parts, and the memory of a run. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "kernels/kernels.h"
#include "models/families.h"
#include "models/param.h"
#include "models/sample.h"

/* A contiguous block of memory that the same functions lay out twice: first to compute its size,
 * then to assign addresses. Everything is aligned to 64 bytes. */

typedef struct arena {
    char *base; /* NULL while only the size is computed */
    size_t used;
    bool overflow;
} arena;

/* Returns NULL while only the size is computed. */
void *model_arena_allocate(arena *a, size_t rows, size_t bytes_a_row);
float *model_arena_floats(arena *a, size_t rows, size_t cols);
void *model_arena_typed(arena *a, size_t rows, size_t cols, kernels_type type);

/* Extends `a` to the end of `part`, which began as a copy of an earlier state of `a`. Parts that
 * begin as copies of the same state use the same memory. */
void model_arena_cover(arena *a, const arena *part);

/* A family is its config (names, sizes, flags) and three kinds of stages, chosen from the kinds
 * below: how samples enter, the block, and how the loss is computed. Stages consist of parts, which
 * know where their parameters are in their unit and compute the forward and backward passes. */

#define NO_PLACE SIZE_MAX

typedef struct model model;
typedef struct model_run model_run;

typedef struct linear {
    size_t weight, bias; /* places in the unit; bias may be NO_PLACE */
    size_t in, out;
    bool in_first; /* the weight is stored [in,out], not [out,in] */
} linear;

typedef struct norm {
    size_t weight, bias; /* places; an RMSNorm if the bias is NO_PLACE, otherwise a LayerNorm */
    size_t dim;
    float eps;
} norm;

typedef struct root_parts {
    size_t embed, positions, class_token; /* places, or NO_PLACE */
    linear patches;
    norm final;
    linear head;
} root_parts;

/* The parts that a talker's root has and a decoder's root does not have, including the parts of the
 * predictor. Places are in the root. */
typedef struct speech_parts {
    size_t text;       /* the text's table */
    linear rise, fall; /* applied to the text's embedding, with the activation between them */
    linear projection; /* applied to the predictor's input; out is 0 if both models have the same
                          width */
    size_t *tables;    /* [groups - 1] of all codes except the first */
    linear *heads;     /* [groups - 1] of all codes except the first */
} speech_parts;

typedef struct block_parts {
    norm attention_norm, q_norm, k_norm, mlp_norm;
    linear q, k, v, qkv, o, gate, up, down;
} block_parts;

/* One kind of stage. `layer` is the index of a block; elsewhere it is 0. */
typedef struct stage_kind {
    void (*keep)(model_run *run, arena *a, size_t layer); /* lays out what backward needs */
    void (*work)(model_run *run, arena *a); /* lays out memory that all kinds use in turn */
    void (*forward)(model_run *run, size_t layer, const float *const *params);
    void (*backward)(model_run *run, size_t layer, const float *const *params, float *const *grads);
} stage_kind;

/* How samples enter. stage_frames: the input of the predictor, whose rows are codes of frames. */
extern const stage_kind stage_tokens, stage_image, stage_vector, stage_speech, stage_frames;
extern const stage_kind stage_transformer, stage_dense; /* blocks */
extern const stage_kind stage_head;                     /* norm, linear, cross-entropy */
extern const stage_kind stage_codes; /* as stage_head, for all codes of a frame except the first */

typedef struct model_unit {
    model_param *params;
    size_t n;
} model_unit;

struct model {
    model_config c;
    kernels *own, *k;  /* the CPU's, which the model owns; the kernels that it computes with */
    kernels_type type; /* the type in which it computes */
    model_unit *units; /* [model_units] */
    root_parts root;
    block_parts block;
    const stage_kind *input, *body, *head;
    bool checkpointing; /* all blocks share one block's memory of activations */
    bool packed;        /* samples of its runs are packed */
    /* A talker's predictor, whose stages follow the talker's. Its root is the talker's unit 0. The
     * unit of its block `layer` is units[layer + 1], as in any model; the units of its blocks are
     * the talker's last units. */
    model *inner;
    speech_parts speech;
    uint64_t frames; /* the number of frames for which a sample has room */
};

/* The arrays of n rows that a block stores for its backward pass. Arrays that are cheap to compute
 * (normed inputs, rotated queries and keys, activations) are computed again instead. */
typedef struct block_run {
    void *q;        /* [n,heads,head_dim] as projected, of model_heads_type */
    void *key;      /* [n,kv_heads,head_dim] as projected, of model_heads_type */
    void *value;    /* [n,kv_heads,head_dim] of model_heads_type */
    void *attended; /* [n,heads,head_dim] of model_heads_type */
    float *lse;     /* [batch,heads,length] */
    float *middle;  /* [n,hidden] the residual stream between attention and MLP */
    /* [n,intermediate] of model_inner_type, in gated MLPs. Holds its own gradient after the
     * backward pass. */
    void *gate;
    /* [n,intermediate] of model_inner_type, or in a dense block [n,out] in fp32. Holds its own
     * gradient after the backward pass. */
    void *up;
} block_run;

/* Attention's working memory. Members of type void are of model_heads_type. */
typedef struct attention_work {
    float *fused; /* [n,(heads + 2 kv_heads) head_dim] if q, k and v are one part */
    void *q;      /* [n,heads,head_dim] normed and rotated; later the projection's gradient */
    void *key;    /* [n,kv_heads,head_dim] normed and rotated; later the projection's gradient */
    float *dq;    /* [n,heads,head_dim] of normed and rotated heads; if q is fp32, the array q */
    float *dkey;  /* [n,kv_heads,head_dim] of normed and rotated heads; always a separate array */
    void *dvalue; /* [n,kv_heads,head_dim] */
    void *dattended; /* [n,heads,head_dim] */
    float *scratch;
} attention_work;

/* The normed and rotated keys, and the values, of a run over a text that arrives in pieces. */
typedef struct kv_cache {
    size_t capacity; /* tokens for which it has room; 0: the run has no cache */
    size_t piece;    /* tokens per piece, at most */
    size_t past;     /* tokens before the current piece */
    void *memory;    /* [layers,2,room,kv_heads,head_dim] of model_heads_type: keys, then values */
} kv_cache;

/* A layer's keys and values for attention, starting at the first token. */
typedef struct kv_rows {
    const void *key, *value;
} kv_rows;

/* The results of a norm's forward pass that its backward pass needs. */
typedef struct norm_stats {
    float *mean; /* [rows], of LayerNorm */
    float *rstd; /* [rows] */
} norm_stats;

/* A talker's samples as lists of rows, contiguous in memory. The lists contain the frames of all
 * samples, and some unused frames. An id that does not exist, such as the id of an unused frame, is
 * -1. */
typedef struct speech_lists {
    int32_t *text, *codec; /* [rows] ids of both channels; codec: also first codes of frames */
    int32_t *at, *before;  /* [frames] the frame's row in the stream, and the row before it */
    int32_t *codes;        /* [groups, frames] */
    int32_t *targets;      /* [groups - 1, frames] */
} speech_lists;

/* The members that only a talker's run uses. */
typedef struct speech_run {
    size_t frames;             /* of the predictor's run: a multiple of SPEECH_FRAMES_STEP */
    speech_lists lists, host;  /* in the kernels' memory, and in the host's */
    float *text, *risen, *mid; /* [rows,text_hidden]: embedded, projected once, and activated */
    float *of_frames; /* [frames,hidden] the sum of the embeddings of all codes except the first */
} speech_run;

/* The additional members of the predictor's run. */
typedef struct frames_run {
    float *before; /* [frames,hidden] the talker's last block's output before each frame */
    norm_stats before_stats;
    float *inputs; /* [frames,groups,hidden] the input of the projection; without one, the stream
                      itself */
    float *dinputs;
    float *column; /* [frames,hidden] one row of each frame */
    float *picked; /* [groups - 1,frames,hidden of the predictor] the input of its heads */
} frames_run;

/* A multiple of this many rows of any width is aligned as kernels require. */
enum { SPEECH_FRAMES_STEP = 32 };

struct model_run {
    const model *m;
    kernels *k;
    size_t batch;
    size_t length; /* rows of a sample in the stream: tokens; patches and the class token; or 1 */
    size_t rows;   /* batch * length */
    sample_shape shape;
    sample_batch samples; /* in the kernels' memory */
    float scale;
    model_run *inner, *outer; /* a talker's run contains its predictor's */
    speech_run speech;        /* of the outer run */
    frames_run frames;        /* of the inner run */
    double *host_losses;      /* [counted] */
    size_t kept;              /* with checkpointing: the stage whose activations are stored */
    bool again; /* set in a forward pass that only computes again what the backward pass needs */
    void (*poll)(void *ctx); /* may be NULL */
    void *poll_ctx;

    void *memory;
    uint64_t bytes;
    uint64_t kept_bytes; /* bytes that the kernels allocate in addition: matmul_bf16_keeps */
    /* [layers + 1]: [rows,hidden] the input of each block, and the output of the last; [rows,sizes]
     * for an MLP. */
    float **stream;
    float *dstream; /* [rows,hidden] the stream's gradient */
    /* [rows,hidden] the stream's gradient in bf16, if the model computes in bf16 and its blocks are
     * transformers */
    uint16_t *dstream_rounded;
    void *normed;           /* [rows,hidden] of the model's type */
    float *dnormed;         /* [rows,hidden] */
    norm_stats stats;       /* [rows] */
    float *unwanted;        /* [hidden or head_dim] gradients of frozen norms */
    float *cosines, *sines; /* [model_positions,head_dim/2] */
    block_run *blocks;      /* [layers] */
    attention_work attention;
    kv_cache cache;
    void *mlp;        /* [rows,intermediate] */
    float *patches;   /* [batch * patches, channels * patch] */
    float *projected; /* [batch * patches, hidden] */
    /* The number of rows that the head reads: all rows, or one row per sample (its first row or,
     * with a cache, its last). */
    size_t counted;
    float *picked; /* [counted,hidden] these rows; unused if they are all rows */
    /* [counted,classes] of model_logits_type. Holds the logits' gradient after the backward
     * pass. */
    void *logits;
    float *lse;     /* [counted] */
    double *losses; /* [counted] */

    /* Operands in bf16; empty arrays if the model computes in fp32: */
    uint16_t *in, *dout; /* a linear layer's input, and its output's gradient */
    uint16_t *weight;    /* the current parameter */
    float *rounded[2];   /* parameters that are rounded but not used in matrix products */
};

static inline size_t model_q_dim(const model *m) { return m->c.heads * m->c.head_dim; }
static inline size_t model_kv_dim(const model *m) { return m->c.kv_heads * m->c.head_dim; }
/* The width of the stream at the input of block `layer`. */
static inline size_t model_width(const model *m, size_t layer) {
    return m->c.sizes ? m->c.sizes[layer] : m->c.hidden;
}
/* The number of tokens that a token sees in the layer, counted backwards from itself; 0: no
 * limit. */
static inline size_t model_window(const model *m, size_t layer) {
    return m->c.windows ? m->c.windows[layer] : 0;
}
static inline size_t model_patches(const model *m) {
    return (m->c.image[0] / m->c.patch[0]) * (m->c.image[1] / m->c.patch[1]);
}
static inline size_t model_patch_dim(const model *m) {
    return m->c.channels * m->c.patch[0] * m->c.patch[1];
}
/* Rows of a sample in the stream. sequence: tokens per sample. */
static inline size_t model_length(const model *m, size_t sequence) {
    if (m->c.input == INPUT_IMAGE) return 1 + model_patches(m);
    return m->c.input == INPUT_TOKENS || m->c.input == INPUT_SPEECH ? sequence : 1;
}

/* The places for kernels; NULL if samples are not packed. */
static inline const int32_t *model_places(const model_run *run) {
    return run->shape.packed ? run->samples.places : NULL;
}

/* The number of positions that tokens of the run can have. */
static inline size_t model_positions(const model_run *run) {
    return run->cache.capacity ? run->cache.capacity : run->length;
}

/* model_inner_type is the type of the arrays between the MLP's products. model_heads_type is the
 * type of heads, from their projection through attention and back. Each is fp32 if a bias is added
 * to its arrays. */
static inline kernels_type model_inner_type(const model *m) {
    return m->c.mlp_bias || m->c.sizes ? KERNELS_F32 : m->type;
}
/* Rows of a table are used like other parameters: in bf16 they are rounded. */
static inline unsigned model_table_flags(const model *m) {
    return m->type == KERNELS_BF16 ? KERNELS_ROUND : 0;
}
/* The type of logits. No layer follows them, and their rounding affects every gradient, so they are
 * bf16 only if there are so many that they would be by far the largest array. */
enum { MODEL_MANY_LOGITS = 16 }; /* for each element of the stream */
static inline kernels_type model_logits_type(const model *m) {
    const bool many = m->c.classes > MODEL_MANY_LOGITS * m->c.hidden;
    return many && m->root.head.bias == NO_PLACE ? m->type : KERNELS_F32;
}
static inline kernels_type model_heads_type(const model *m) {
    return m->c.qkv_bias || m->block.qkv.out > 0 ? KERNELS_F32 : m->type;
}

/* The cache of keys and values: what attention needs from the earlier pieces of a text. */

void model_cache_lay_out(model_run *run, arena *a);

/* Returns the memory of the layer's keys and values. The memory is complete after the block has
 * computed the keys and values of the current piece. With a cache, the block stores them in this
 * memory, after the keys and values of earlier pieces. */
kv_rows model_cache_rows(model_run *run, size_t layer);
