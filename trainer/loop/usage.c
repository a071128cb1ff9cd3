/* VmHWM rather than getrusage: the latter keeps the peak of the process that started this one. */
#include "usage.h"

#include <stdio.h>

enum { SIDE = 512, TIMINGS = 5 };

uint64_t usage_peak_bytes(void) {
    FILE *file = fopen("/proc/self/status", "re");
    if (!file) return 0;
    char line[256];
    unsigned long long kib = 0;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "VmHWM: %llu", &kib) == 1) break;
    fclose(file);
    return (uint64_t)kib * 1024;
}

/* c = a b, of operands of that type. */
static void multiply(kernels *k, kernels_type type, float *c, const float *a, const float *b) {
    if (type == KERNELS_BF16)
        k->matmul_bf16(k, c, (const uint16_t *)a, (const uint16_t *)b, SIDE, SIDE, SIDE, 0);
    else
        k->matmul(k, c, a, b, SIDE, SIDE, SIDE, 0);
    k->sync(k);
}

/* This rank's products a second while all ranks compute them. */
static double measure(kernels *k, kernels_type type, float *memory, MPI_Comm comm) {
    const double at_least_s = 0.02, flop = 2.0 * SIDE * SIDE * SIDE;
    MPI_Barrier(comm);
    const double start = MPI_Wtime();
    int products = 0;
    double passed;
    do {
        multiply(k, type, memory, memory + SIDE * SIDE, memory + 2 * SIDE * SIDE);
        products++;
        passed = MPI_Wtime() - start;
    } while (passed < at_least_s);
    return flop * products / passed;
}

double usage_matmul_peak(kernels *k, kernels_type type, MPI_Comm comm) {
    const size_t elems = (size_t)SIDE * SIDE;
    float *memory = k->alloc(k, 3 * elems * sizeof *memory);
    int failed = !memory;
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, comm);
    double rate = 0;
    if (!failed) {
        k->zero(k, memory, 3 * elems);
        multiply(k, type, memory, memory + elems, memory + 2 * elems); /* compiles */
    }
    for (int i = 0; i < TIMINGS && !failed; i++) {
        double now = measure(k, type, memory, comm);
        MPI_Allreduce(MPI_IN_PLACE, &now, 1, MPI_DOUBLE, MPI_SUM, comm);
        if (now > rate) rate = now; /* whatever else the machine did meanwhile only takes away */
    }
    k->free(k, memory);
    return rate;
}
