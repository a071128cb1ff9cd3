/* What a process uses, and what the processor could do. */
#ifndef TRAINER_REPORT_USAGE_H
#define TRAINER_REPORT_USAGE_H

#include <mpi.h>
#include <stdint.h>

#include "kernels/kernels.h"

/* Peak resident memory of this process in bytes; 0 where the system does not tell. */
uint64_t usage_peak_bytes(void);

/* Floating-point operations a second of matrix products of that type, all ranks together while all
 * of them compute: what mfu is a share of. Collective; takes some 50 ms. 0: out of memory. */
double usage_matmul_peak(kernels *k, kernels_type type, MPI_Comm comm);

#endif
