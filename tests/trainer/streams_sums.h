/* A backend that copies and adds on the kernels' stream of streams.h: what a reduction asks for.
 * Its memory is the host's, and what it is given happens late. */
#ifndef TESTS_TRAINER_STREAMS_SUMS_H
#define TESTS_TRAINER_STREAMS_SUMS_H

#include "kernels/kernels.h"

/* device: as kernels' `device` tells; borrowed. */
kernels streams_sums_kernels(const char *device);

#endif
