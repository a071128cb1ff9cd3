/* What the calls of kernels.h take besides arrays: types, shapes, options. */
#ifndef KERNELS_SHAPES_H
#define KERNELS_SHAPES_H

#include <stddef.h>
#include <stdint.h>

/* How matmul takes its operands, and what other functions do with theirs. */
enum {
    KERNELS_TRANSPOSE_A = 1, /* a is stored [depth, m] */
    KERNELS_TRANSPOSE_B = 2, /* b is stored [n, depth] */
    KERNELS_ADD = 4,         /* c += instead of c = */
    KERNELS_NARROW = 8,      /* matmul_bf16: c is bf16; not with KERNELS_ADD */
    KERNELS_ROUND = 16,      /* embedding_forward: rows of the table are rounded to bf16 */
};

/* What the elements of an array are. bf16 is the upper half of an fp32, in a uint16_t. */
typedef enum kernels_type { KERNELS_F32, KERNELS_BF16 } kernels_type;

/* A place whose target is KERNELS_IGNORE does not count for the loss. */
enum { KERNELS_IGNORE = -100 };

/* n floats from one place of an array to one of another. */
typedef struct kernels_part {
    uint64_t to, from, n;
} kernels_part;

/* What copy_parts copies at once; longer parts are slower than several. */
enum { KERNELS_PART_FLOATS = 1 << 15 };

typedef enum kernels_activation {
    KERNELS_RELU,
    KERNELS_GELU,      /* x Phi(x), by the error function */
    KERNELS_GELU_TANH, /* its approximation by tanh (Hendrycks and Gimpel 2016) */
    KERNELS_SILU,      /* x / (1 + exp(-x)) */
} kernels_activation;

typedef struct kernels_attention {
    size_t batch;
    size_t sequence;
    size_t heads; /* of queries: a multiple of kv_heads; head h uses key h / (heads / kv_heads) */
    size_t kv_heads; /* of keys and values */
    size_t head_dim;
    int causal; /* 1: position t sees keys 0 ... t; 0: all */
    /* Of q, key, value and out, and of the gradients of value and out; those of q and key, which
     * are on their way to another rounding, are fp32. bf16 is computed in fp32, rounded once. */
    kernels_type type;
    /* KERNELS_BF16: a backend may round the operands of attention's products to bf16, where that is
     * faster; sums stay fp32. */
    kernels_type operands;
    size_t window; /* causal: position t sees keys t - window + 1 ... t alone; 0: all of 0 ... t */
    /* Keys that stand before those of the queries: query t is position past + t, and key and value
     * have past + sequence rows a sample. Forwards on the CPU alone; 0 elsewhere. */
    size_t past;
    /* [batch,sequence] causal, of samples that hold several documents: the place of each token in
     * its own, which is 0 or one more than that of the token before. It sees keys of its own
     * document alone. NULL: a sample is one document. Not with past. */
    const int32_t *places;
} kernels_attention;

/* Heads on their way from a projection to attention: normed (RMSNorm of each head), turned by
 * rotary positions (Su et al. 2021, rotate-half form: the pair (x[i], x[i + dim/2]) turns by the
 * angle of (position, i)), or both, the norm first. */
typedef struct kernels_heads {
    size_t batch, sequence, heads, dim;
    kernels_type type;            /* of x, out and dx; computed in fp32 */
    const float *weight;          /* [dim] of the norm; NULL: no norm */
    float eps;                    /* of the norm */
    const float *cosines, *sines; /* [sequence,dim/2] kernels_rope_table's; NULL: no turn. dim is
                                     even where there is one. */
    const int32_t *places; /* [batch,sequence] the table's row of each token, as kernels_attention
                              has them; NULL: each sample's tokens have rows 0, 1 and so on */
} kernels_heads;

/* A linear layer forwards, with what follows it. */
typedef struct kernels_linear {
    size_t rows, in, out;
    kernels_type operands; /* of x and weight; all else is fp32 */
    const void *x;         /* [rows,in] */
    const void *weight;    /* [in,out] */
    unsigned flags;        /* KERNELS_TRANSPOSE_B: weight is stored [out,in] */
    const float *add;      /* [rows,out]; may be y; NULL: nothing is added */
    const float *bias;     /* [out], added to each row; NULL: none */
    float *activated;      /* [rows,out] = f(y); NULL: not wanted */
    kernels_activation f;
} kernels_linear;

/* Images cut into patches; what is left over at the right and the bottom belongs to none. */
typedef struct kernels_patches {
    size_t batch, channels, height, width;
    size_t patch_height, patch_width;
} kernels_patches;

#endif
