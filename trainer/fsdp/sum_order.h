/* The order in which a step's gradients are added up: a function of the number of micro-batches
 * alone, so that the bits depend on neither ranks nor strategy. Micro-batches of a small block are
 * added one after another, small blocks of a large block are, and large blocks are. So one sum of
 * each kind is all that has to be kept, and the error is that of pairwise summation within a
 * third up to 4,096 micro-batches (tests/trainer/fsdp_sum_order.c): n additions in a row lose
 * sqrt(n / 2) roundings, three rows of n^(1/3) lose no more than the logarithm does. */
#pragma once

#include <stdint.h>

/* Sizes of blocks, in micro-batches. The second is a multiple of the first. */
typedef struct fsdp_sum_order {
    uint64_t small, large;
} fsdp_sum_order;

/* Consecutive micro-batches that stand for one sum. */
typedef struct fsdp_part {
    uint64_t first, n;
} fsdp_part;

/* Of a step of n micro-batches. Blocks divide n where its odd part is at most FSDP_ODD_BLOCK, and
 * the three rows are as short as they can be. */
fsdp_sum_order fsdp_sum_order_of(uint64_t n);
/* One after another, in one sum. */
fsdp_sum_order fsdp_sum_order_running(void);

enum { FSDP_ODD_BLOCK = 15 };

/* Whether the newer sum is added to the older one, which ends where it begins. */
int fsdp_sum_order_joins(const fsdp_sum_order *o, fsdp_part older, fsdp_part newer);
/* What of the micro-batches first ... end - 1 becomes one sum, from the first on. */
fsdp_part fsdp_sum_order_part(const fsdp_sum_order *o, uint64_t first, uint64_t end);
/* How many sums they become. */
uint64_t fsdp_sum_order_parts(const fsdp_sum_order *o, uint64_t first, uint64_t end);
