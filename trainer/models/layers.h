/* The layers of stages: linear layers, RMSNorm and LayerNorm; and how the type in which a model
 * computes affects their parameters and operands. */
#pragma once

#include "models/parts.h"

/* An operand of a matrix product: `narrow` if the model computes in bf16, otherwise `wide`. */
typedef struct operand {
    const float *wide;
    const uint16_t *narrow;
} operand;

/* x[n] as an operand; rounded into `to` if the model computes in bf16. */
operand model_operand_of(model_run *run, uint16_t *to, const float *x, size_t n);
/* A linear layer's weight as an operand, valid until the next call. */
operand model_operand_weight(model_run *run, const linear *l, const float *const *params);
/* Returns a parameter that is not multiplied by a matrix, as it is used: unchanged, or rounded into
 * `slot` of run->rounded, where it is valid until the slot's next use. */
const float *model_operand_rounded(model_run *run, size_t slot, const float *param, size_t n);
/* x[n] of `type`, which is fp32 or the model's type, as an operand; rounded into `to` if it is not
 * rounded yet. */
operand model_operand_typed(model_run *run, kernels_type type, uint16_t *to, const void *x,
                            size_t n);
/* The flags of a product whose result is an array of `type`. */
static inline unsigned model_operand_flags(kernels_type type) {
    return type == KERNELS_BF16 ? KERNELS_NARROW : 0;
}
void model_operand_lay_out(model_run *run, arena *a);

/* y[rows,out] = x[rows,in] weight + bias. flags: KERNELS_NARROW if y is bf16; then there is no
 * bias. */
void model_linear_forward(model_run *run, const linear *l, void *y, operand x, size_t rows,
                          const float *const *params, unsigned flags);
/* y[rows,out] = add[rows,out] + x[rows,in] weight + bias */
void model_linear_forward_onto(model_run *run, const linear *l, float *y, const float *add,
                               operand x, size_t rows, const float *const *params);
/* Like model_linear_forward in fp32, but also computes activated[rows,out], the model's activation
 * of y. */
void model_linear_forward_activated(model_run *run, const linear *l, float *y, float *activated,
                                    operand x, size_t rows, const float *const *params);
/* Computes the parameters' gradients. dy.wide is needed if the layer has a bias. */
void model_linear_backward_params(model_run *run, const linear *l, operand dy, operand x,
                                  size_t rows, float *const *grads);
/* dx[rows,in] = (or +=) the gradient of x */
void model_linear_backward_input(model_run *run, const linear *l, void *dx, operand dy, size_t rows,
                                 const float *const *params, unsigned flags);
/* Computes both the parameters' gradients and dx, which may be NULL or x. */
void model_linear_backward(model_run *run, const linear *l, void *dx, operand dy, operand x,
                           size_t rows, const float *const *params, float *const *grads,
                           unsigned flags);

/* out[rows,dim] = `in`, normalized, in the model's type; fills stats. */
void model_norm_forward(model_run *run, const norm *n, void *out, const float *in, size_t rows,
                        const float *const *params, const norm_stats *stats);
/* Computes the parameters' gradients, and dx[rows,dim] = (or +=) the gradient of `in`; dx may be
 * dout. If dx is run->dstream, its rounded form is computed, too. */
void model_norm_backward(model_run *run, const norm *n, float *dx, const float *dout,
                         const float *in, size_t rows, const float *const *params,
                         float *const *grads, const norm_stats *stats, unsigned add);
void model_norm_lay_out(const norm *n, arena *a, size_t rows, norm_stats *out);
