/* Smallest, largest, mean and standard deviation of a stream of numbers, and how many are zero, NaN
 * or infinite. */
#ifndef RESHARD_STATS_H
#define RESHARD_STATS_H

#include <stdint.h>

typedef struct stats {
    uint64_t n; /* numbers seen */
    uint64_t zeros, nan, inf;
    double min, max, mean; /* of finite ones */
    double squares;        /* sum of squared distances from the mean */
} stats;

void stats_add(stats *s, const double *values, uint64_t n);
/* Joins what was seen apart. */
void stats_join(stats *s, const stats *more);
uint64_t stats_finite(const stats *s);
double stats_std(const stats *s); /* of the population */

#endif
