/* VmHWM rather than getrusage: the latter keeps the peak of the process that started this one. */
#include "report/usage.h"

#include <stdio.h>

enum { LEAST_SIDE = 512, MOST_SIDE = 8192, TIMINGS = 5 };

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

/* A product of squares, of operands of that type. */
static void multiply(kernels *k, kernels_type type, float *memory, size_t side) {
    const float *a = memory + side * side, *b = a + side * side;
    if (type == KERNELS_BF16)
        k->matmul_bf16(k, memory, (const uint16_t *)a, (const uint16_t *)b, side, side, side, 0);
    else
        k->matmul(k, memory, a, b, side, side, side, 0);
    k->sync(k);
}

/* This rank's products a second while all ranks compute them. */
static double measure(kernels *k, kernels_type type, float *memory, size_t side, MPI_Comm comm) {
    const double at_least_s = 0.02, flop = 2.0 * (double)(side * side) * (double)side;
    MPI_Barrier(comm);
    const double start = MPI_Wtime();
    int products = 0;
    double passed;
    do {
        multiply(k, type, memory, side);
        products++;
        passed = MPI_Wtime() - start;
    } while (passed < at_least_s);
    return flop * products / passed;
}

static float *take_operands(kernels *k, size_t side) {
    const size_t elems = 3 * side * side;
    float *memory = k->alloc(k, elems * sizeof *memory);
    if (memory) k->zero(k, memory, elems);
    return memory;
}

/* Of products that take some time: a GPU is only as fast as they are large. */
static size_t choose_side(kernels *k, kernels_type type) {
    const double enough_s = 2e-4;
    for (size_t side = LEAST_SIDE; side < MOST_SIDE; side *= 2) {
        float *memory = take_operands(k, side);
        if (!memory) return LEAST_SIDE;
        multiply(k, type, memory, side); /* compiles */
        const double start = MPI_Wtime();
        multiply(k, type, memory, side);
        const double took = MPI_Wtime() - start;
        k->free(k, memory);
        if (took >= enough_s) return side;
    }
    return MOST_SIDE;
}

double usage_matmul_peak(kernels *k, kernels_type type, MPI_Comm comm) {
    const size_t side = choose_side(k, type);
    float *memory = take_operands(k, side);
    int failed = !memory;
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, comm);
    double rate = 0;
    if (!failed) multiply(k, type, memory, side);
    for (int i = 0; i < TIMINGS && !failed; i++) {
        double now = measure(k, type, memory, side, comm);
        MPI_Allreduce(MPI_IN_PLACE, &now, 1, MPI_DOUBLE, MPI_SUM, comm);
        if (now > rate) rate = now; /* whatever else the machine did meanwhile only takes away */
    }
    k->free(k, memory);
    return rate;
}
