/* Each group of ranks has a word, and its slowest one's figure and number in it; one more word has
 * the most bytes that a rank wrote. All are complements, as the least of all ranks' is taken. */
#include "save/slow.h"

#include <stdlib.h>
#include <string.h>

#define GROUPS (SAVE_SLOW_WORDS - 1)
#define RANK_BITS 24
#define MOST_FIGURE 1e12 /* has room above the rank */
#define MIB 1048576.0
#define LEAST_PART 8 /* of a fair share: ranks that wrote less say little */
static const double least_ratio = 3, least_s = 0.5;

void save_slow_tell(const dcp_comm *comm, double own_s, uint64_t bytes, uint64_t total,
                    uint64_t words[SAVE_SLOW_WORDS]) {
    const uint64_t size = (uint64_t)comm->size, rank = (uint64_t)comm->rank;
    memset(words, 0xff, SAVE_SLOW_WORDS * sizeof *words);
    words[GROUPS] = ~bytes;
    if (!bytes || own_s <= 0 || bytes < total / size / LEAST_PART) return;
    const uint64_t group = size <= GROUPS ? rank : rank * GROUPS / size;
    double figure = own_s * 1e9 / ((double)bytes / MIB); /* nanoseconds a MiB */
    if (figure > MOST_FIGURE) figure = MOST_FIGURE;
    words[group] = ~((uint64_t)figure << RANK_BITS | rank);
}

static int compare_words(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

void save_slow_find(const uint64_t words[SAVE_SLOW_WORDS], dcp_report *report) {
    uint64_t told[GROUPS];
    size_t n = 0;
    for (size_t i = 0; i < GROUPS; i++)
        if (words[i] != UINT64_MAX) told[n++] = ~words[i];
    if (n < 2) return;
    qsort(told, n, sizeof *told, compare_words);
    const double each = (double)~words[GROUPS] / MIB / 1e9; /* seconds from nanoseconds a MiB */
    const double most = (double)(told[n - 1] >> RANK_BITS) * each,
                 median = (double)(told[(n - 1) / 2] >> RANK_BITS) * each;
    if (most < least_ratio * median || most - median < least_s || median <= 0) return;
    report->slow_ratio = most / median;
    report->slow_s = most;
    report->median_s = median;
    report->slow_rank = (int)(told[n - 1] & ((1u << RANK_BITS) - 1));
}
