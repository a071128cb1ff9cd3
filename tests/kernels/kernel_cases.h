/* The conformance suite's tools: guarded memory of a backend, fp64 references, gradients by
 * differences. A case is run several times, with its memory at other addresses and after other
 * work; everything that it fetches must have the same bits each time. */
#ifndef TESTS_KERNEL_CASES_H
#define TESTS_KERNEL_CASES_H

#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

enum { CONFORM_BUFFERS = 512 };

typedef struct conform_buffer {
    unsigned char *base; /* guard, data, guard */
    size_t before, bytes;
} conform_buffer;

typedef struct conform {
    kernels *k;
    const char *what; /* for messages: set by the case */
    uint64_t random;
    size_t shift;    /* elements by which data is moved off its boundary */
    int again;       /* not the first run: bits are compared, gradients were checked */
    uint64_t digest; /* of everything fetched */
    size_t n_buffers, n_host;
    conform_buffer buffers[CONFORM_BUFFERS];
    void *host[CONFORM_BUFFERS];
} conform;

typedef void conform_case(conform *c);
conform_case case_vectors, case_rows, case_patches, case_matmul, case_embedding, case_norm_forward,
    case_norm_backward, case_layernorm_forward, case_layernorm_backward, case_heads,
    case_attention_forward, case_attention_backward, case_attention_alone, case_activation,
    case_gated, case_loss, case_loss_extremes, case_adamw, case_sgd, case_row_sumsq, case_bf16,
    case_matmul_bf16, case_activations_bf16, case_exact_add, case_host_memory, case_device,
    case_tf32, case_layer;

/* Host memory that lives until the case ends: zeros, random values in [-1,1), a copy in fp64. */
void *conform_host(conform *c, size_t n, size_t elem_bytes);
float *conform_random(conform *c, size_t n);
double *conform_wide(conform *c, const float *x, size_t n);

/* The backend's memory between guards: filled with NaN, or a copy of host memory. */
void *conform_poisoned(conform *c, size_t n, size_t elem_bytes);
void *conform_given(conform *c, const void *host, size_t n, size_t elem_bytes);
float *conform_floats(conform *c, const float *host, size_t n);

/* The same of an array of `type`; and a host array's numbers made such that it holds them. */
void *conform_poisoned_typed(conform *c, size_t n, kernels_type type);
void *conform_typed(conform *c, const float *host, size_t n, kernels_type type);
void conform_round(float *host, size_t n, kernels_type type);

/* A host copy of the backend's memory; it enters the digest. */
void *conform_fetch(conform *c, const void *memory, size_t n, size_t elem_bytes);
float *conform_fetch_floats(conform *c, const float *memory, size_t n);

/* The same of an array of `type`, as fp32. */
float *conform_fetch_typed(conform *c, const void *memory, size_t n, kernels_type type);

/* Fails unless narrow[n] is wide[n] rounded; both in the backend's memory. */
void conform_rounded(conform *c, const uint16_t *narrow, const float *wide, size_t n);

/* Fails unless every |got - want| <= tolerance * largest |want|. */
void conform_close(conform *c, const char *output, const float *got, const double *want, size_t n,
                   double tolerance);

/* Fails unless got[n] is the gradient of loss(ctx) by x[n], at up to 60 random places. */
typedef double conform_loss(void *ctx);
void conform_gradient(conform *c, const char *output, const float *got, double *x, size_t n,
                      conform_loss *loss, void *ctx, double tolerance);

/* Frees all; fails where a guard was touched or the backend reports a failure. */
void conform_finish(conform *c);

#endif
