/* The list of backends, and functions that all backends share. No other file outside a backend's
 * folder refers to a particular backend. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"

#ifdef KERNELS_CPU
extern const kernels kernels_cpu;
#endif
#ifdef KERNELS_CUDA
extern const kernels kernels_cuda;
#endif

static const kernels *const backends[] = {
#ifdef KERNELS_CPU
    &kernels_cpu,
#endif
#ifdef KERNELS_CUDA
    &kernels_cuda,
#endif
    NULL,
};

static const char *why;

const char *kernels_why(void) { return why; }
void kernels_set_why(const char *text) { why = text; }

static const kernels *find_backend(const char *name) {
    for (size_t i = 0; backends[i]; i++)
        if (!strcmp(backends[i]->name, name)) return backends[i];
    return NULL;
}

int kernels_open(const char *name, kernels **out) { return kernels_open_on(name, 0, out); }

int kernels_open_on(const char *name, unsigned number, kernels **out) {
    const kernels *backend = find_backend(name);
    if (!backend) return KERNELS_UNKNOWN;
    kernels *k = malloc(sizeof *k);
    if (!k) return KERNELS_NO_MEMORY;
    *k = *backend;
    why = NULL;
    int status = k->open(k, number);
    if (status != KERNELS_OK) {
        free(k);
        return status;
    }
    *out = k;
    return KERNELS_OK;
}

void kernels_close(kernels *k) {
    if (!k) return;
    k->close(k);
    free(k);
}

void kernels_linear_unfused(kernels *k, float *y, const kernels_linear *l) {
    const unsigned flags = l->flags | (l->add ? KERNELS_ADD : 0);
    const size_t n = l->rows * l->out;
    if (l->add && l->add != y) k->copy(k, y, l->add, n);
    if (l->operands == KERNELS_BF16)
        k->matmul_bf16(k, y, l->x, l->weight, l->rows, l->out, l->in, flags);
    else
        k->matmul(k, y, l->x, l->weight, l->rows, l->out, l->in, flags);
    if (l->bias) k->copy_rows(k, y, l->out, l->bias, 0, l->rows, l->out, KERNELS_ADD);
    if (l->activated) k->activation_forward(k, l->activated, y, n, l->f, KERNELS_F32);
}

/* The table is computed on the host for every backend. */
void kernels_rope_table(float *cosines, float *sines, size_t sequence, size_t half,
                        const float *frequencies, float scale) {
    for (size_t i = 0; i < half; i++)
        for (size_t t = 0; t < sequence; t++) {
            const float angle = (float)t * frequencies[i];
            cosines[t * half + i] = scale * (float)cos((double)angle);
            sines[t * half + i] = scale * (float)sin((double)angle);
        }
}
