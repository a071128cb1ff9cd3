/* The memory of the stand-in for a GPU (fenced.c): a file mapped twice, and memory of the host that
 * its functions reach. */
#ifndef TESTS_KERNELS_FENCED_MEMORY_H
#define TESTS_KERNELS_FENCED_MEMORY_H

#include "kernels/kernels.h"

enum { MOST_PINNED = 64 };

typedef struct fence {
    kernels *cpu;
    int fd;
    char *outside, *inside;
    size_t used;
    size_t held, peak;    /* bytes that were asked for */
    size_t most, largest; /* and that may be */
    int steps;            /* the first one has begun */
    double tick;          /* seconds of its clock that a product or an update takes */
    unsigned span;
    double asked[KERNELS_SPANS + 1]; /* seconds of each span; of none */
    double over[KERNELS_SPANS + 1];  /* those that the host has waited for */
    struct {
        char *at;
        size_t bytes;
    } pinned[MOST_PINNED]; /* of the host, but reached; NULL: none */
    char description[96];
} fence;

static inline fence *fence_of(const kernels *k) { return k->state; }

/* Nonzero: it cannot be had. */
int fence_map(fence *f);
void fence_unmap(fence *f);
/* Where the host finds what the device's `device` points to; ends the program where that is none.
 */
void *fence_translate(const fence *f, const void *device);

/* The clock goes on by a product or an update; the host has waited for all of them. */
void fence_tick(fence *f);
void fence_wait(fence *f);

/* Ends the program where a step has begun. */
void fence_check_allocation(const fence *f, size_t bytes);

/* Functions of the backend. */
void fence_span(kernels *k, unsigned span);
int fence_spans(kernels *k, double *seconds);
uint64_t fence_peak(const kernels *k);
void fence_room(kernels *k, uint64_t *unused, uint64_t *all, uint64_t *later);
void *fence_alloc(kernels *k, size_t bytes);
void fence_free(kernels *k, void *memory);
void *fence_alloc_host(kernels *k, size_t bytes);
void fence_free_host(kernels *k, void *memory);

#endif
