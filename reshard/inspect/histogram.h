/* How many numbers are of which magnitude: a bin for each power of two, so that one pass over any
 * numbers will do. */
#ifndef RESHARD_HISTOGRAM_H
#define RESHARD_HISTOGRAM_H

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#define HISTOGRAM_BINS 2048 /* exponents of fp64 */

typedef struct histogram {
    uint64_t positive[HISTOGRAM_BINS], negative[HISTOGRAM_BINS]; /* without zero, NaN, infinity */
} histogram;

void histogram_add(histogram *h, const double *values, uint64_t n);
void histogram_join(histogram *h, const histogram *more);

/* Draws negative and positive numbers on both sides of an axis, a row for one or more powers of
 * two, `rows` at most; `total` is what percentages are of. Nothing where there are no numbers. */
void histogram_draw(const histogram *h, uint64_t total, int rows, FILE *out);

/* {"log2": the first bin's exponent, "negative": [...], "positive": [...]}: bin i has magnitudes
 * from 2^(log2 + i) to twice that. null where there are no numbers. */
json_t *histogram_json(const histogram *h);

#endif
