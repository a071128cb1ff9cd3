/* The list of backends: the only place outside a backend's folder that knows which were built. */
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
void kernels_say_why(const char *text) { why = text; }

static const kernels *find(const char *name) {
    for (size_t i = 0; backends[i]; i++)
        if (!strcmp(backends[i]->name, name)) return backends[i];
    return NULL;
}

int kernels_open(const char *name, kernels **out) { return kernels_open_on(name, 0, out); }

int kernels_open_on(const char *name, unsigned number, kernels **out) {
    const kernels *backend = find(name);
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
