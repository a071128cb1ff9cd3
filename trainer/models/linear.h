/* Linear layers: y = x weight + bias. */
#ifndef TRAINER_MODELS_LINEAR_H
#define TRAINER_MODELS_LINEAR_H

#include "models/operand.h"

/* y[rows,out] = x[rows,in] weight + bias. flags: KERNELS_NARROW where y is bf16; then there is no
 * bias. */
void model_linear_forward(model_run *run, const linear *l, void *y, operand x, size_t rows,
                          const float *const *params, unsigned flags);
/* y[rows,out] = add[rows,out] + x[rows,in] weight + bias */
void model_linear_forward_onto(model_run *run, const linear *l, float *y, const float *add,
                               operand x, size_t rows, const float *const *params);
/* The first, in fp32, and activated[rows,out] = the model's activation of y. */
void model_linear_forward_activated(model_run *run, const linear *l, float *y, float *activated,
                                    operand x, size_t rows, const float *const *params);
/* The parameters' gradients. dy.wide is needed where the layer has a bias. */
void model_linear_backward_params(model_run *run, const linear *l, operand dy, operand x,
                                  size_t rows, float *const *grads);
/* dx[rows,in] = (or +=) the gradient of x */
void model_linear_backward_input(model_run *run, const linear *l, void *dx, operand dy, size_t rows,
                                 const float *const *params, unsigned flags);
/* Both; dx may be NULL, and may be x. */
void model_linear_backward(model_run *run, const linear *l, void *dx, operand dy, operand x,
                           size_t rows, const float *const *params, float *const *grads,
                           unsigned flags);

#endif
