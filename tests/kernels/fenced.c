/* A stand-in for a GPU: the backend "cuda", whose memory no one but its own functions can touch.
 * Its memory is a file mapped twice. The addresses that it hands out are those of a mapping without
 * any access, so that a program which reads or writes them itself, or passes them to MPI or to a
 * file, fails at once. The functions work on the other mapping, by the CPU's. A pointer to the
 * host's memory where the device's is wanted ends the program, too, and so does an allocation when
 * a step has begun. FENCED_MEMORY: bytes of it that a process may have; FENCED_LARGEST: in a
 * piece, whatever is free. FENCED_LATER: what it says that it may yet take. FENCED_REPORT: the most
 * that it had is told at the end.
 *
 * Its clock stands but for products and updates, each of which takes FENCED_TICK seconds, and on
 * the rank FENCED_SLOW three times that. A span is over once the host has waited for it. */
#include "fenced.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fenced_memory.h"

extern const kernels kernels_cpu;
static size_t (*cpu_attention_scratch)(const kernels_attention *shape);

void *fenced_inside(const kernels *k, const void *device) {
    return fence_translate(fence_of(k), device);
}

void fenced_takes(const kernels *k, size_t bytes) { fence_check_allocation(fence_of(k), bytes); }

/* IN(p): where the functions of the CPU find what p points to; of the same type. */
#define CPU (fence_of(k)->cpu)
#define IN(p) ((__typeof__(p))fence_translate(fence_of(k), (p)))

static int fenced_open(kernels *k, unsigned number) {
    fence *f = calloc(1, sizeof *f);
    kernels *cpu = malloc(sizeof *cpu);
    if (!f || !cpu || fence_map(f)) return KERNELS_NO_MEMORY;
    *cpu = kernels_cpu;
    f->cpu = cpu;
    k->state = f;
    const int status = cpu->open(cpu, number);
    cpu_attention_scratch = cpu->attention_scratch;
    snprintf(f->description, sizeof f->description, "%s", cpu->describe(cpu));
    return status;
}

static void fenced_close(kernels *k) {
    fence *f = k->state;
    f->cpu->close(f->cpu);
    free(f->cpu);
    fence_unmap(f);
    free(f);
}

static const char *fenced_describe(const kernels *k) { return fence_of(k)->description; }

/* Shows that it was asked. */
static void fenced_allow_tf32(kernels *k, int allow) {
    fence *f = fence_of(k);
    snprintf(f->description, sizeof f->description, "%s%s", f->cpu->describe(f->cpu),
             allow ? " tf32" : "");
}

static int fenced_place(const kernels *k, void **stream) {
    *stream = (void *)k;
    return 0;
}

static const char *fenced_device(const kernels *k) {
    (void)k;
    return "fenced";
}

static void fenced_upload(kernels *k, void *memory, const void *host, size_t bytes) {
    fence_wait(fence_of(k));
    memcpy(IN(memory), host, bytes);
}

static void fenced_download(kernels *k, void *host, const void *memory, size_t bytes) {
    fence_wait(fence_of(k));
    memcpy(host, IN(memory), bytes);
}

static const char *fenced_sync(kernels *k) {
    fence_wait(fence_of(k));
    return CPU->sync(CPU);
}

static void fenced_copy(kernels *k, float *y, const float *x, size_t n) {
    CPU->copy(CPU, IN(y), IN(x), n);
}

static void fenced_zero(kernels *k, float *x, size_t n) { CPU->zero(CPU, IN(x), n); }

static void fenced_scale(kernels *k, float *x, float a, size_t n) { CPU->scale(CPU, IN(x), a, n); }

static void fenced_add(kernels *k, float *y, const float *x, size_t n) {
    CPU->add(CPU, IN(y), IN(x), n);
}

static void fenced_copy_rows(kernels *k, float *y, size_t y_stride, const float *x, size_t x_stride,
                             size_t rows, size_t dim, unsigned flags) {
    CPU->copy_rows(CPU, IN(y), y_stride, IN(x), x_stride, rows, dim, flags);
}

static void fenced_copy_parts(kernels *k, float *y, const float *x, const kernels_part *parts,
                              size_t n) {
    CPU->copy_parts(CPU, IN(y), IN(x), IN(parts), n);
}

static void fenced_sum_rows(kernels *k, float *sum, const float *x, size_t x_stride, size_t rows,
                            size_t dim) {
    CPU->sum_rows(CPU, IN(sum), IN(x), x_stride, rows, dim);
}

static void fenced_matmul(kernels *k, float *c, const float *a, const float *b, size_t m, size_t n,
                          size_t depth, unsigned flags) {
    fence_tick(fence_of(k));
    CPU->matmul(CPU, IN(c), IN(a), IN(b), m, n, depth, flags);
}

static void fenced_narrow(kernels *k, uint16_t *y, const float *x, size_t n) {
    CPU->narrow(CPU, IN(y), IN(x), n);
}

static void fenced_narrow_on(kernels *k, void *stream, uint16_t *y, const float *x, size_t n) {
    (void)stream;
    fenced_narrow(k, y, x, n);
}

static void fenced_widen(kernels *k, float *y, const uint16_t *x, size_t n) {
    CPU->widen(CPU, IN(y), IN(x), n);
}

static void fenced_widen_upper(kernels *k, float *y, size_t n) { CPU->widen_upper(CPU, IN(y), n); }

static void fenced_matmul_bf16(kernels *k, void *c, const uint16_t *a, const uint16_t *b, size_t m,
                               size_t n, size_t depth, unsigned flags) {
    fence_tick(fence_of(k));
    CPU->matmul_bf16(CPU, IN(c), IN(a), IN(b), m, n, depth, flags);
}

static void fenced_linear(kernels *k, float *y, const kernels_linear *l) {
    fence_tick(fence_of(k));
    kernels_linear inside = *l;
    inside.x = IN(l->x);
    inside.weight = IN(l->weight);
    inside.add = IN(l->add);
    inside.bias = IN(l->bias);
    inside.activated = IN(l->activated);
    CPU->linear(CPU, IN(y), &inside);
}

static void fenced_embedding_forward(kernels *k, float *out, const float *table, const int32_t *ids,
                                     size_t rows, size_t dim, unsigned flags) {
    fence_of(k)->steps = 1;
    CPU->embedding_forward(CPU, IN(out), IN(table), IN(ids), rows, dim, flags);
}

static void fenced_embedding_backward(kernels *k, float *dtable, const float *dout,
                                      const int32_t *ids, size_t rows, size_t vocab, size_t dim) {
    CPU->embedding_backward(CPU, IN(dtable), IN(dout), IN(ids), rows, vocab, dim);
}

static void fenced_patches(kernels *k, float *out, const float *images,
                           const kernels_patches *shape) {
    fence_of(k)->steps = 1;
    CPU->patches(CPU, IN(out), IN(images), shape);
}

static void fenced_rmsnorm_forward(kernels *k, void *out, kernels_type type, float *rstd,
                                   const float *x, const float *weight, size_t rows, size_t dim,
                                   float eps) {
    CPU->rmsnorm_forward(CPU, IN(out), type, IN(rstd), IN(x), IN(weight), rows, dim, eps);
}

static void fenced_rmsnorm_backward(kernels *k, float *dx, uint16_t *rounded, float *dweight,
                                    const float *dout, const float *x, const float *weight,
                                    const float *rstd, size_t rows, size_t dim, unsigned flags) {
    CPU->rmsnorm_backward(CPU, IN(dx), IN(rounded), IN(dweight), IN(dout), IN(x), IN(weight),
                          IN(rstd), rows, dim, flags);
}

static void fenced_layernorm_forward(kernels *k, void *out, kernels_type type, float *mean,
                                     float *rstd, const float *x, const float *weight,
                                     const float *bias, size_t rows, size_t dim, float eps) {
    CPU->layernorm_forward(CPU, IN(out), type, IN(mean), IN(rstd), IN(x), IN(weight), IN(bias),
                           rows, dim, eps);
}

static void fenced_layernorm_backward(kernels *k, float *dx, uint16_t *rounded, float *dweight,
                                      float *dbias, const float *dout, const float *x,
                                      const float *weight, const float *mean, const float *rstd,
                                      size_t rows, size_t dim, unsigned flags) {
    CPU->layernorm_backward(CPU, IN(dx), IN(rounded), IN(dweight), IN(dbias), IN(dout), IN(x),
                            IN(weight), IN(mean), IN(rstd), rows, dim, flags);
}

static kernels_heads heads_in(const kernels *k, const kernels_heads *h) {
    kernels_heads in = *h;
    in.weight = IN(h->weight);
    in.cosines = IN(h->cosines);
    in.sines = IN(h->sines);
    in.places = IN(h->places);
    return in;
}

static void fenced_heads_forward(kernels *k, const kernels_heads *h, void *out, const void *x) {
    const kernels_heads in = heads_in(k, h);
    CPU->heads_forward(CPU, &in, IN(out), IN(x));
}

static void fenced_heads_backward(kernels *k, const kernels_heads *h, void *dx, float *dweight,
                                  const float *dout, const void *x) {
    const kernels_heads in = heads_in(k, h);
    CPU->heads_backward(CPU, &in, IN(dx), IN(dweight), IN(dout), IN(x));
}

static size_t fenced_attention_scratch(const kernels_attention *shape) {
    return cpu_attention_scratch(shape);
}

static kernels_attention attention_in(const kernels *k, const kernels_attention *shape) {
    kernels_attention in = *shape;
    in.places = IN(shape->places);
    return in;
}

static void fenced_attention_forward(kernels *k, const kernels_attention *shape, void *out,
                                     float *lse, const void *q, const void *key, const void *value,
                                     float *scratch) {
    const kernels_attention in = attention_in(k, shape);
    CPU->attention_forward(CPU, &in, IN(out), IN(lse), IN(q), IN(key), IN(value), IN(scratch));
}

static void fenced_attention_backward(kernels *k, const kernels_attention *shape, float *dq,
                                      float *dkey, void *dvalue, const void *dout, const void *out,
                                      const float *lse, const void *q, const void *key,
                                      const void *value, float *scratch) {
    const kernels_attention in = attention_in(k, shape);
    CPU->attention_backward(CPU, &in, IN(dq), IN(dkey), IN(dvalue), IN(dout), IN(out), IN(lse),
                            IN(q), IN(key), IN(value), IN(scratch));
}

static void fenced_activation_forward(kernels *k, void *out, const void *x, size_t n,
                                      kernels_activation f, kernels_type type) {
    CPU->activation_forward(CPU, IN(out), IN(x), n, f, type);
}

static void fenced_activation_backward(kernels *k, void *out, void *dx, const void *dout,
                                       const void *x, size_t n, kernels_activation f,
                                       kernels_type type) {
    CPU->activation_backward(CPU, IN(out), IN(dx), IN(dout), IN(x), n, f, type);
}

static void fenced_gated_forward(kernels *k, void *out, const void *gate, const void *up, size_t n,
                                 kernels_activation f, kernels_type type) {
    CPU->gated_forward(CPU, IN(out), IN(gate), IN(up), n, f, type);
}

static void fenced_gated_backward(kernels *k, void *out, void *dgate, void *dup, const void *dout,
                                  const void *gate, const void *up, size_t n, kernels_activation f,
                                  kernels_type type) {
    CPU->gated_backward(CPU, IN(out), IN(dgate), IN(dup), IN(dout), IN(gate), IN(up), n, f, type);
}

static void fenced_cross_entropy_forward(kernels *k, double *losses, float *lse, const void *logits,
                                         kernels_type type, const int32_t *targets, size_t rows,
                                         size_t vocab) {
    fence_of(k)->steps = 1;
    CPU->cross_entropy_forward(CPU, IN(losses), IN(lse), IN(logits), type, IN(targets), rows,
                               vocab);
}

static void fenced_cross_entropy_backward(kernels *k, void *dlogits, const void *logits,
                                          kernels_type type, const float *lse,
                                          const int32_t *targets, size_t rows, size_t vocab,
                                          float scale) {
    CPU->cross_entropy_backward(CPU, IN(dlogits), IN(logits), type, IN(lse), IN(targets), rows,
                                vocab, scale);
}

static void fenced_update(kernels *k, const kernels_update *u, float *param, void *const *slots,
                          const float *grad, size_t n) {
    fence_tick(fence_of(k));
    void *inside[KERNELS_MAX_SLOTS];
    for (int i = 0; i < KERNELS_MAX_SLOTS; i++) inside[i] = IN(slots[i]);
    CPU->update(CPU, u, IN(param), inside, IN(grad), n);
}

static void fenced_row_sumsq(kernels *k, double *out, const float *x, size_t rows, size_t dim) {
    CPU->row_sumsq(CPU, IN(out), IN(x), rows, dim);
}

static void fenced_exact_add(kernels *k, uint64_t *sum, const double *x, size_t n) {
    CPU->exact_add(CPU, IN(sum), IN(x), n);
}

extern const kernels kernels_cuda;
const kernels kernels_cuda = {
    .name = "cuda",
    .open = fenced_open,
    .close = fenced_close,
    .describe = fenced_describe,
    .place = fenced_place,
    .allow_tf32 = fenced_allow_tf32,
    .device = fenced_device,
    .room = fence_room,
    .peak = fence_peak,
    .span = fence_span,
    .spans = fence_spans,
    .alloc = fence_alloc,
    .free = fence_free,
    .alloc_host = fence_alloc_host,
    .free_host = fence_free_host,
    .upload = fenced_upload,
    .download = fenced_download,
    .sync = fenced_sync,
    .copy = fenced_copy,
    .zero = fenced_zero,
    .scale = fenced_scale,
    .add = fenced_add,
    .copy_rows = fenced_copy_rows,
    .copy_parts = fenced_copy_parts,
    .sum_rows = fenced_sum_rows,
    .matmul = fenced_matmul,
    .narrow = fenced_narrow,
    .narrow_on = fenced_narrow_on,
    .widen = fenced_widen,
    .widen_upper = fenced_widen_upper,
    .matmul_bf16 = fenced_matmul_bf16,
    .linear = fenced_linear,
    .embedding_forward = fenced_embedding_forward,
    .embedding_backward = fenced_embedding_backward,
    .patches = fenced_patches,
    .rmsnorm_forward = fenced_rmsnorm_forward,
    .rmsnorm_backward = fenced_rmsnorm_backward,
    .layernorm_forward = fenced_layernorm_forward,
    .layernorm_backward = fenced_layernorm_backward,
    .heads_forward = fenced_heads_forward,
    .heads_backward = fenced_heads_backward,
    .attention_scratch = fenced_attention_scratch,
    .attention_forward = fenced_attention_forward,
    .attention_backward = fenced_attention_backward,
    .activation_forward = fenced_activation_forward,
    .activation_backward = fenced_activation_backward,
    .gated_forward = fenced_gated_forward,
    .gated_backward = fenced_gated_backward,
    .cross_entropy_forward = fenced_cross_entropy_forward,
    .cross_entropy_backward = fenced_cross_entropy_backward,
    .update = fenced_update,
    .row_sumsq = fenced_row_sumsq,
    .exact_add = fenced_exact_add,
};
