/* The angles of rotary positions, on the host for every backend. Frequency and angle are rounded to
 * fp32 as transformers does, since models were trained with those roundings. */
#include <math.h>

#include "kernels/kernels.h"

void kernels_rope_table(float *cosines, float *sines, size_t sequence, size_t dim, double theta) {
    size_t half = dim / 2;
    for (size_t i = 0; i < half; i++) {
        float frequency = (float)(1.0 / pow(theta, 2.0 * (double)i / (double)dim));
        for (size_t t = 0; t < sequence; t++) {
            float angle = (float)t * frequency;
            cosines[t * half + i] = (float)cos((double)angle);
            sines[t * half + i] = (float)sin((double)angle);
        }
    }
}
