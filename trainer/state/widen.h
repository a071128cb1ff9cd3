/* From the types that weights come in to fp32; exact for all of them. */
#ifndef TRAINER_STATE_WIDEN_H
#define TRAINER_STATE_WIDEN_H

#include <stddef.h>

#include <dcp/tensor.h>

/* out[n] = in[n]; dtype: F32, BF16 or F16. They may not overlap. */
void widen(float *out, const void *in, size_t n, dcp_dtype dtype);

#endif
