/* The computations of training: one interface, several backends. Training is tested with the
 * backend "cpu". The backend "cuda" is experimental: it is compiled, and tested on an emulator, but
 * has never run on a GPU.
 *
 * kernels_open("cpu", &k) makes a struct of functions, which are called like k->matmul(k, ...).
 * Matrices are dense and row-major. Below, x[rows,dim] names an array and its shape; elements are
 * fp32 unless a comment says otherwise. "=" means that an output is overwritten, and its old
 * contents are never read; "+=" means that the result is added to it. Pointers are to the backend's
 * memory (k->alloc), except those called host. The arrays of a call must not overlap, unless a
 * comment says that two may be equal.
 *
 * Promise: the bits of a result depend only on the arguments. They do not depend on addresses, on
 * what ran before, on the environment or on the number of processes. Addresses must be multiples of
 * 64 bytes; the CPU accepts any. Each sum has a fixed order, which may depend on the kind of
 * processor and on the shape. A rank computes with one thread.
 *
 * Work may be asynchronous; upload, download and sync wait for all work that was requested before.
 * Other calls return no error: a product that fails fills its output with NaN, and sync reports the
 * failure. */
#ifndef KERNELS_KERNELS_H
#define KERNELS_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/rules.h"
#include "kernels/shapes.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct kernels kernels;

enum {
    KERNELS_OK = 0,
    KERNELS_UNKNOWN = 1,   /* this build has no backend of that name */
    KERNELS_NO_DEVICE = 2, /* the backend's device is missing */
    KERNELS_NO_MEMORY = 3,
};

enum { KERNELS_HOST = -1 };

enum { KERNELS_SPANS = 16, KERNELS_NO_SPAN = KERNELS_SPANS };

/* A backend's functions: kernels_open sets all members. */
struct kernels {
    const char *name;
    void *state; /* the backend's own */

    /* Sets the other members. Returns KERNELS_OK, or the reason for the failure. Called by
     * kernels_open. number: selects device `number` modulo the number of devices. */
    int (*open)(kernels *k, unsigned number);
    void (*close)(kernels *k);
    /* Describes the library and the device or processor that compute, for people and for
     * about.json, such as "oneDNN 2.6.3 avx512_core". Valid until the close. If the text differs,
     * the bits of results may differ. */
    const char *(*describe)(const kernels *k);

    /* Returns where the memory is: KERNELS_HOST, or the device's number. *stream: the cudaStream_t
     * that other libraries must use; NULL on the host. */
    int (*place)(const kernels *k, void **stream);
    /* Returns a text that identifies the device on this host: ranks of a host that get the same
     * text share one device, even if its number differs between processes. Valid until the
     * close. */
    const char *(*device)(const kernels *k);
    /* Reports bytes of the device's memory: free, in total, and the part of the free bytes that
     * this backend may still use while it computes, in addition to alloc. All are 0 on the host. */
    void (*room)(kernels *k, uint64_t *unused, uint64_t *all, uint64_t *later);
    /* Returns the most bytes that were allocated with alloc at any time since the open, plus the
     * bytes that the backend itself used at that time; 0 on the host. */
    uint64_t (*peak)(const kernels *k);

    /* Assigns all work that is requested after this call to a span: a number that the caller
     * chooses, below KERNELS_SPANS. KERNELS_NO_SPAN: to no span, as before the first call. */
    void (*span)(kernels *k, unsigned span);
    /* seconds[KERNELS_SPANS]: the time that the device has worked on each span since the open, by
     * the device's clock. Counts only work that has ended; does not wait. Returns 0, and sets
     * nothing, if calls return only when their work has ended, so that the caller can measure the
     * time itself. */
    int (*spans)(kernels *k, double *seconds);

    /* Allows or forbids products of fp32 to round their operands to tf32 (10 bits after the leading
     * one) if that is faster; sums remain fp32. At first, this rounding is forbidden. The text of
     * describe says whether products round their operands. */
    void (*allow_tf32)(kernels *k, int allow);

    /* Returns memory with undefined contents, aligned to 64 bytes; NULL if out of memory. */
    void *(*alloc)(kernels *k, size_t bytes);
    void (*free)(kernels *k, void *memory); /* ignores NULL */
    /* Allocates memory of the host, page-locked if the device has memory of its own. The host uses
     * it like any other memory. Kernels accept it in place of the device's memory, at the speed of
     * the bus. Call sync between accesses of the host and of kernels. */
    void *(*alloc_host)(kernels *k, size_t bytes);
    void (*free_host)(kernels *k, void *memory); /* ignores NULL */
    void (*upload)(kernels *k, void *memory, const void *host, size_t bytes);
    void (*download)(kernels *k, void *host, const void *memory, size_t bytes);
    /* Waits for all work. Returns NULL, or static text about what has failed since the open. */
    const char *(*sync)(kernels *k);

    /* y[n] = x[n] */
    void (*copy)(kernels *k, float *y, const float *x, size_t n);
    /* x[n] = 0 */
    void (*zero)(kernels *k, float *x, size_t n);
    /* x[n] = a * x[n] */
    void (*scale)(kernels *k, float *x, float a, size_t n);
    /* y[n] += x[n] */
    void (*add)(kernels *k, float *y, const float *x, size_t n);

    /* y[rows,dim] = (or +=, with KERNELS_ADD) x[rows,dim]; rows begin y_stride and x_stride floats
     * apart. With x_stride 0 every row of y gets x[dim]. */
    void (*copy_rows)(kernels *k, float *y, size_t y_stride, const float *x, size_t x_stride,
                      size_t rows, size_t dim, unsigned flags);
    /* For each of parts[n], which are in the backend's memory: y[to ...] = x[from ...]. Parts must
     * not overlap in y. */
    void (*copy_parts)(kernels *k, float *y, const float *x, const kernels_part *parts, size_t n);
    /* sum[dim] += the rows of x[rows,dim], which begin x_stride floats apart. */
    void (*sum_rows)(kernels *k, float *sum, const float *x, size_t x_stride, size_t rows,
                     size_t dim);

    /* c[m,n] = (or +=, with KERNELS_ADD) a[m,depth] b[depth,n]; flags: KERNELS_TRANSPOSE_A etc.
     * Sums are fp32. */
    void (*matmul)(kernels *k, float *c, const float *a, const float *b, size_t m, size_t n,
                   size_t depth, unsigned flags);

    /* y[n] = x[n], rounded to bf16 (to nearest even); NaN stays NaN. */
    void (*narrow)(kernels *k, uint16_t *y, const float *x, size_t n);
    /* Like narrow, but the work is put on `stream`, another stream of the device; see place. */
    void (*narrow_on)(kernels *k, void *stream, uint16_t *y, const float *x, size_t n);
    /* y[n] = x[n], exactly. */
    void (*widen)(kernels *k, float *y, const uint16_t *x, size_t n);
    /* y[n] = the n elements of bf16 that are in the upper half of y's memory, exactly. */
    void (*widen_upper)(kernels *k, float *y, size_t n);
    /* Like matmul, for bf16 a[m,depth] and b[depth,n]. Products are exact. Sums are fp32; a device
     * may truncate them instead of rounding. c is fp32 or, with KERNELS_NARROW, bf16 that is
     * rounded once. */
    void (*matmul_bf16)(kernels *k, void *c, const uint16_t *a, const uint16_t *b, size_t m,
                        size_t n, size_t depth, unsigned flags);
    /* Returns the bytes of memory that matmul_bf16 needs in the forward and backward pass of a
     * layer of [n,depth] with m rows. The backend allocates this memory at the first such product,
     * and retains it until the close. Several layers share it, so only the largest result counts.
     * NULL: the backend retains nothing. */
    size_t (*matmul_bf16_keeps)(const kernels *k, size_t m, size_t n, size_t depth);

    /* y[rows,out] = x weight + add + bias, and activated = f(y), in one pass if the backend
     * supports that. Sums are fp32. With operands in bf16, a backend may compute the tanh of
     * KERNELS_GELU_TANH with the precision of bf16. */
    void (*linear)(kernels *k, float *y, const kernels_linear *l);

    /* out[rows,dim] = (or +=, with KERNELS_ADD) table[ids[rows],dim], rounded to bf16 with
     * KERNELS_ROUND. ids must lie inside the table, or be negative; the row of a negative id is
     * zero. */
    void (*embedding_forward)(kernels *k, float *out, const float *table, const int32_t *ids,
                              size_t rows, size_t dim, unsigned flags);
    /* dtable[ids[row],dim] += dout[row,dim], for each row in order, where dtable is [vocab,dim].
     * Skips rows with negative ids. */
    void (*embedding_backward)(kernels *k, float *dtable, const float *dout, const int32_t *ids,
                               size_t rows, size_t vocab, size_t dim);

    /* out[batch * patches, channels * patch_height * patch_width] from
     * images[batch,channels,height,width]: patches in reading order. A patch has the layout of a
     * convolution's kernel, so the convolution is a product of matrices. */
    void (*patches)(kernels *k, float *out, const float *images, const kernels_patches *shape);

    /* RMSNorm (Zhang and Sennrich 2019, equation 4), as transformers computes it in fp32:
     * rstd[rows] = (mean(x^2) + eps)^-1/2; out[rows,dim] = weight[dim] * (x[rows,dim] * rstd), of
     * `type`. */
    void (*rmsnorm_forward)(kernels *k, void *out, kernels_type type, float *rstd, const float *x,
                            const float *weight, size_t rows, size_t dim, float eps);
    /* With g = dout * weight and xhat = x * rstd:
     *   dx[rows,dim] = (or +=, with KERNELS_ADD) rstd * (g - xhat * mean(g * xhat))
     *   dweight[dim] += sum over rows of dout * xhat
     *
     * rounded[rows,dim] = the resulting dx, in bf16; NULL: not computed. dx may equal dout or x. */
    void (*rmsnorm_backward)(kernels *k, float *dx, uint16_t *rounded, float *dweight,
                             const float *dout, const float *x, const float *weight,
                             const float *rstd, size_t rows, size_t dim, unsigned flags);

    /* LayerNorm (Ba et al. 2016): mean[rows], rstd[rows] = (mean((x - mean)^2) + eps)^-1/2;
     * out[rows,dim] = (x - mean) * rstd * weight[dim] + bias[dim], of `type`. */
    void (*layernorm_forward)(kernels *k, void *out, kernels_type type, float *mean, float *rstd,
                              const float *x, const float *weight, const float *bias, size_t rows,
                              size_t dim, float eps);
    /* With g = dout * weight and xhat = (x - mean) * rstd:
     *   dx[rows,dim] = (or +=, with KERNELS_ADD) rstd * (g - mean(g) - xhat * mean(g * xhat))
     *   dweight[dim] += sum over rows of dout * xhat;  dbias[dim] += sum over rows of dout
     *
     * rounded as above. dx may equal dout or x. */
    void (*layernorm_backward)(kernels *k, float *dx, uint16_t *rounded, float *dweight,
                               float *dbias, const float *dout, const float *x, const float *weight,
                               const float *mean, const float *rstd, size_t rows, size_t dim,
                               unsigned flags);

    /* out[batch*sequence,heads,dim] = x, normed and rotated; out may equal x. */
    void (*heads_forward)(kernels *k, const kernels_heads *h, void *out, const void *x);
    /* dx = the gradient of x; dweight[dim] += the gradient of the norm's weight. x is the input of
     * the forward pass; it is read only if there is a norm. dx may equal x or, in fp32, dout. */
    void (*heads_backward)(kernels *k, const kernels_heads *h, void *dx, float *dweight,
                           const float *dout, const void *x);

    /* Grouped-query attention: for each batch, head, position t, and all j that t sees
     *   s[j] = q[t] . k[j] / sqrt(head_dim);  out[t] = sum of softmax(s)[j] v[j]
     *
     * q, out [batch,sequence,heads,head_dim]; key, value [batch,sequence,kv_heads,head_dim]; lse
     * [batch,heads,sequence] = log sum exp s, the only part of the softmax that the backward pass
     * requires. scratch: attention_scratch(shape) floats. */
    size_t (*attention_scratch)(const kernels_attention *shape);
    void (*attention_forward)(kernels *k, const kernels_attention *shape, void *out, float *lse,
                              const void *q, const void *key, const void *value, float *scratch);
    /* Computes the softmax again from lse (Dao et al. 2022, algorithm 4). With p = softmax(s),
     * delta[t] = dout[t] . out[t] and ds[t,j] = p[t,j] (dout[t] . v[j] - delta[t]):
     *   dq = ds k / sqrt(head_dim);  dkey = ds^T q / sqrt(head_dim);  dvalue = p^T dout
     *
     * dq may equal q in fp32. dkey and dvalue are sums over the query heads that share a key, in
     * order. */
    void (*attention_backward)(kernels *k, const kernels_attention *shape, float *dq, float *dkey,
                               void *dvalue, const void *dout, const void *out, const float *lse,
                               const void *q, const void *key, const void *value, float *scratch);

    /* Activations and gates; all arrays are of `type`. bf16 is computed in fp32 and rounded once.
     * activation_forward: out[n] = f(x[n]); out may equal x. */
    void (*activation_forward)(kernels *k, void *out, const void *x, size_t n, kernels_activation f,
                               kernels_type type);
    /* dx[n] = dout[n] * f'(x[n]). Also computes out[n] = f(x[n]) again, so that a layer need not
     * store it; out NULL: not computed. dx may equal x, and out may equal dout; if out is NULL, dx
     * may equal dout. */
    void (*activation_backward)(kernels *k, void *out, void *dx, const void *dout, const void *x,
                                size_t n, kernels_activation f, kernels_type type);
    /* Gated units (Shazeer 2020; SwiGLU with f = silu): out[n] = f(gate[n]) * up[n] */
    void (*gated_forward)(kernels *k, void *out, const void *gate, const void *up, size_t n,
                          kernels_activation f, kernels_type type);
    /* dgate[n] = dout * up * f'(gate); dup[n] = dout * f(gate). Also computes out[n] of
     * gated_forward again. dgate may equal gate, dup may equal up, and out may equal dout. */
    void (*gated_backward)(kernels *k, void *out, void *dgate, void *dup, const void *dout,
                           const void *gate, const void *up, size_t n, kernels_activation f,
                           kernels_type type);

    /* Cross-entropy with its softmax, for logits[rows,vocab] of `type`. lse[rows] = log sum exp of
     * the row's logits. losses[rows] (fp64) = lse - the logit of the target, or 0 if the target is
     * KERNELS_IGNORE. */
    void (*cross_entropy_forward)(kernels *k, double *losses, float *lse, const void *logits,
                                  kernels_type type, const int32_t *targets, size_t rows,
                                  size_t vocab);
    /* dlogits[rows,vocab] = scale * (exp(logits - lse) - (1 if the column is the target, else 0));
     * 0 in rows whose target is KERNELS_IGNORE. dlogits is also of `type`, and may equal logits. */
    void (*cross_entropy_backward)(kernels *k, void *dlogits, const void *logits, kernels_type type,
                                   const float *lse, const int32_t *targets, size_t rows,
                                   size_t vocab, float scale);

    /* One update by an optimizer's rule. Changes param[n] and the rule's slots, slots[i][n],
     * element by element, so the bits do not depend on how a tensor is divided. slots has
     * KERNELS_MAX_SLOTS members; members that the rule does not use are NULL. */
    void (*update)(kernels *k, const kernels_update *u, float *param, void *const *slots,
                   const float *grad, size_t n);
    /* out[rows] (fp64) = sum of squares of x[rows,dim], added in fp64 in an order that depends only
     * on dim. */
    void (*row_sumsq)(kernels *k, double *out, const float *x, size_t rows, size_t dim);
    /* Adds x[n] (fp64, each >= 0 or not finite) to an exact sum, which is an array of KERNELS_LIMBS
     * + 1 elements: the limbs (limbs.h), and the number of values that were not finite. Does not
     * carry: each value adds less than 2^32 to a limb. */
    void (*exact_add)(kernels *k, uint64_t *sum, const double *x, size_t n);
};

/* Returns true if the backend's memory is the host's. */
static inline int kernels_on_host(const kernels *k) {
    void *stream;
    return k->place(k, &stream) == KERNELS_HOST;
}

/* Opens a backend: "cpu", or "cuda" if it was built. Returns KERNELS_OK, or the reason for the
 * failure. */
int kernels_open(const char *name, kernels **out);
/* Opens a backend on device `number` modulo the number of devices; kernels_open uses the first
 * device. */
int kernels_open_on(const char *name, unsigned number, kernels **out);
/* Returns static text that says why the last open failed; NULL if no reason was given. */
const char *kernels_why(void);
/* For backends: sets the text for kernels_why before an open fails. */
void kernels_set_why(const char *text);
/* Ignores NULL. Free the memory of k->alloc first. */
void kernels_close(kernels *k);

/* For backends: computes `linear` in single steps (copy, multiply, add, activate), by the backend's
 * other functions. */
void kernels_linear_unfused(kernels *k, float *y, const kernels_linear *l);

/* cosines and sines, [sequence,half] in the host's memory, = scale times the cosine and sine of
 * position * frequencies[half]. Angles are rounded to fp32 as in transformers, since models were
 * trained with that rounding. */
void kernels_rope_table(float *cosines, float *sines, size_t sequence, size_t half,
                        const float *frequencies, float scale);

#ifdef __cplusplus
}
#endif
#endif
