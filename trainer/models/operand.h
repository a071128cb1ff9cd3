/* Parameters and operands of matrix products in the type that a model computes in. */
#ifndef TRAINER_MODELS_OPERAND_H
#define TRAINER_MODELS_OPERAND_H

#include "models/parts.h"

/* What a matrix product reads: `narrow` where the model computes in bf16, else `wide`. */
typedef struct operand {
    const float *wide;
    const uint16_t *narrow;
} operand;

/* x[n] as an operand; in bf16 it is rounded into `to`. */
operand model_operand_of(model_run *run, uint16_t *to, const float *x, size_t n);
/* A linear layer's weight likewise, until the next call. */
operand model_operand_weight(model_run *run, const linear *l, const float *const *params);
/* A parameter that is not multiplied by a matrix, as it is used: itself, or rounded into `slot` of
 * run->rounded, until the slot's next use. */
const float *model_operand_rounded(model_run *run, size_t slot, const float *param, size_t n);
/* x[n] of `type`, which is fp32 or the model's, as an operand; rounded into `to` where it is not
 * rounded yet. */
operand model_operand_typed(model_run *run, kernels_type type, uint16_t *to, const void *x,
                            size_t n);
/* What a product needs to be told that leaves an array of `type`. */
static inline unsigned model_operand_flags(kernels_type type) {
    return type == KERNELS_BF16 ? KERNELS_NARROW : 0;
}
void model_operand_lay_out(model_run *run, arena *a);

#endif
