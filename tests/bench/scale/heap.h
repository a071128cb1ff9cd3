/* Counting what the library takes from the heap: its allocations go through here (--wrap). */
#ifndef TESTS_BENCH_SCALE_HEAP_H
#define TESTS_BENCH_SCALE_HEAP_H

#include <stddef.h>

/* Counts from zero. */
void heap_start(void);
/* Bytes taken and not freed since, and the most that were. */
size_t heap_now(void);
size_t heap_peak(void);

#endif
