/* RMSNorm and LayerNorm. */
#ifndef TRAINER_MODELS_NORM_H
#define TRAINER_MODELS_NORM_H

#include "models/parts.h"

/* out[rows,dim] = the norm of in, in the model's type; fills stats. */
void model_norm_forward(model_run *run, const norm *n, void *out, const float *in, size_t rows,
                        const float *const *params, const norm_stats *stats);
/* The parameters' gradients, and dx[rows,dim] = (or +=) that of in; dx may be dout. Where dx is
 * run->dstream its rounded form follows. */
void model_norm_backward(model_run *run, const norm *n, float *dx, const float *dout,
                         const float *in, size_t rows, const float *const *params,
                         float *const *grads, const norm_stats *stats, unsigned add);
void model_norm_lay_out(const norm *n, arena *a, size_t rows, norm_stats *out);

#endif
