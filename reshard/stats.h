/* Smallest, largest, mean and standard deviation of a stream of numbers. */
#ifndef RESHARD_STATS_H
#define RESHARD_STATS_H

#include <stdint.h>

typedef struct stats {
    uint64_t n;   /* numbers seen */
    uint64_t nan; /* of them not numbers; left out of the rest */
    double min, max, mean;
    double squares; /* sum of squared distances from the mean */
} stats;

void stats_add(stats *s, const double *values, uint64_t n);
double stats_std(const stats *s); /* of the population */

#endif
