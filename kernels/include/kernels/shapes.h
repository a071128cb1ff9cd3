/* The types, shapes and options that the functions of kernels.h accept. */
#ifndef KERNELS_SHAPES_H
#define KERNELS_SHAPES_H

#include <stddef.h>
#include <stdint.h>

/* How matmul reads its operands, and similar options of other functions. */
enum {
    KERNELS_TRANSPOSE_A = 1, /* a is stored [depth, m] */
    KERNELS_TRANSPOSE_B = 2, /* b is stored [n, depth] */
    KERNELS_ADD = 4,         /* c += instead of c = */
    KERNELS_NARROW = 8,      /* matmul_bf16: c is bf16; not with KERNELS_ADD */
    KERNELS_ROUND = 16,      /* embedding_forward: rows of the table are rounded to bf16 */
};

/* The type of an array's elements. bf16 is the upper half of an fp32, in a uint16_t. */
typedef enum kernels_type { KERNELS_F32, KERNELS_BF16 } kernels_type;

/* A position whose target is KERNELS_IGNORE does not count for the loss. */
enum { KERNELS_IGNORE = -100 };

/* n floats to copy from one position of an array to a position of another array. */
typedef struct kernels_part {
    uint64_t to, from, n;
} kernels_part;

/* The most floats per part for which copy_parts is fast; a longer part takes more time than several
 * short ones. */
enum { KERNELS_PART_FLOATS = 1 << 15 };

typedef enum kernels_activation {
    KERNELS_RELU,
    KERNELS_GELU,      /* x Phi(x), by the error function */
    KERNELS_GELU_TANH, /* GELU approximated with tanh (Hendrycks and Gimpel 2016) */
    KERNELS_SILU,      /* x / (1 + exp(-x)) */
} kernels_activation;

typedef struct kernels_attention {
    size_t batch;
    size_t sequence;
    size_t heads;    /* heads of queries, a multiple of kv_heads; head h uses kv head h / (heads /
                      * kv_heads) */
    size_t kv_heads; /* heads of keys and of values */
    size_t head_dim;
    int causal; /* 1: position t sees keys 0 ... t; 0: it sees all keys */
    /* The type of q, key, value and out, and of the gradients of value and out. The gradients of q
     * and key are fp32, because they are rounded later. bf16 is computed in fp32 and rounded
     * once. */
    kernels_type type;
    /* KERNELS_BF16: a backend may round the operands of attention's products to bf16 if that is
     * faster; sums remain fp32. */
    kernels_type operands;
    size_t window; /* used only if `causal`: position t sees only keys t - window + 1 ... t; 0: no
                      limit */
    /* The number of positions before the first query: query t is at position past + t, and key and
     * value have past + sequence rows per sample. Nonzero only in the forward pass on the CPU. */
    size_t past;
    /* [batch,sequence] used only if `causal`. For samples that contain several documents: each
     * token's position in its own document, which is 0 at the document's first token and then
     * increases by one. A token sees only keys of its own document. NULL: a sample is one document.
     * Must be NULL if past is not 0. */
    const int32_t *places;
} kernels_attention;

/* Heads between a projection and attention. They are normalized (RMSNorm of each head), or rotated
 * (rotary positions), or normalized and then rotated. The rotation is defined by Su et al. 2021,
 * here in the rotate-half form: the pair (x[i], x[i + dim/2]) is rotated by the angle of (position,
 * i). */
typedef struct kernels_heads {
    size_t batch, sequence, heads, dim;
    kernels_type type;            /* of x, out and dx; the computation is in fp32 */
    const float *weight;          /* [dim] the norm's weight; NULL: no norm */
    float eps;                    /* the norm's eps */
    const float *cosines, *sines; /* [sequence,dim/2] from kernels_rope_table; NULL: no rotation; a
                                     rotation requires an even dim */
    const int32_t *places;        /* [batch,sequence] the table's row of each token, as in
                                     kernels_attention; NULL: 0, 1, ... per sample */
} kernels_heads;

/* The forward pass of a linear layer, with the additions and the activation that follow. y is the
 * output [rows,out] of kernels.linear. */
typedef struct kernels_linear {
    size_t rows, in, out;
    kernels_type operands; /* the type of x and weight; everything else is fp32 */
    const void *x;         /* [rows,in] */
    const void *weight;    /* [in,out] */
    unsigned flags;        /* KERNELS_TRANSPOSE_B: weight is stored [out,in] */
    const float *add;      /* [rows,out]; may be the array y itself; NULL: nothing is added */
    const float *bias;     /* [out], added to each row; NULL: none */
    float *activated;      /* [rows,out] = f(y); NULL: not computed */
    kernels_activation f;
} kernels_linear;

/* Images divided into patches; a remainder at the right and the bottom belongs to no patch. */
typedef struct kernels_patches {
    size_t batch, channels, height, width;
    size_t patch_height, patch_width;
} kernels_patches;

#endif
