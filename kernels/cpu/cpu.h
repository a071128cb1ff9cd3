/* Declarations that the files of the CPU backend share. The files implement the functions of the
 * struct in kernels/kernels.h, in groups. Each group has a function that sets the group's pointers
 * in the struct: norm.c, for example, contains cpu_norm_fill and cpu_loss_fill. */
#pragma once

#include <stdbool.h>

#include "kernels/kernels.h"

typedef struct cpu_bf16 cpu_bf16;

typedef struct cpu_state {
    char description[64];
    bool product_failed;
    cpu_bf16 *bf16; /* NULL if the processor cannot multiply bf16 */
    float *wide;    /* if bf16 is NULL: room for widened operands */
    size_t wide_elems;
} cpu_state;

/* c = alpha op(a) op(b) + beta c, row-major, with leading dimensions. If beta is 0, c is not
 * read. */
typedef struct cpu_product {
    char transpose_a, transpose_b; /* 'N' or 'T' */
    size_t m, n, depth;
    float alpha, beta;
    size_t lda, ldb, ldc;
} cpu_product;

void cpu_matmul_run(kernels *k, const cpu_product *p, const float *a, const float *b, float *c);
void cpu_matmul_describe(char *text, size_t size);
void cpu_matmul_fail(kernels *k);

/* Returns NULL if the processor has no instructions that multiply bf16, or if memory runs out. */
cpu_bf16 *cpu_bf16_open(void);
void cpu_bf16_close(cpu_bf16 *b);

void cpu_activation_fill(kernels *k);
void cpu_attention_fill(kernels *k);
void cpu_bf16_fill(kernels *k);
void cpu_embedding_fill(kernels *k);
void cpu_heads_fill(kernels *k);
void cpu_loss_fill(kernels *k);
void cpu_matmul_fill(kernels *k);
void cpu_norm_fill(kernels *k);
void cpu_optimizer_fill(kernels *k);
void cpu_vector_fill(kernels *k);
