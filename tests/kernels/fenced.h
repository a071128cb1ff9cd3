/* The stand-in for a GPU; see fenced.c. A program that is linked with it and a registry that knows
 * CUDA takes it for one. */
#ifndef TESTS_KERNELS_FENCED_H
#define TESTS_KERNELS_FENCED_H

#include "kernels/kernels.h"

/* Where what the device's memory holds can be touched. */
void *fenced_inside(const kernels *k, const void *device);
/* Whoever else takes memory or a stream for the device says so: it ends the program in a step. */
void fenced_takes(const kernels *k, size_t bytes);

#endif
