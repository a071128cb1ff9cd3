/* Counting what the library takes from the heap: its allocations go through here (--wrap). */
#ifndef TESTS_BENCH_SCALE_HEAP_H
#define TESTS_BENCH_SCALE_HEAP_H

#include <stddef.h>

/* What was taken and not freed since, and the most that this was. Less than nothing where memory is
 * given back that was taken elsewhere or before. */
typedef struct heap {
    ptrdiff_t now, peak;
} heap;

/* From now on `to` counts; NULL: the one that counts at first. Returns what counted before. */
heap *heap_use(heap *to);

/* Large blocks are taken from the system and given back to it, so that what is zeroed in them and
 * never used takes no memory. */
void heap_keep_untouched(void);

/* Counts from zero. */
void heap_start(void);
/* Bytes taken and not freed since, and the most that were. */
size_t heap_now(void);
size_t heap_peak(void);
/* As many more, or fewer, of memory that is taken another way. */
void heap_add(ptrdiff_t bytes);

#endif
