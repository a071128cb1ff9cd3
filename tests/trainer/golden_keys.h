/* Without rotary positions softmax ignores a key's bias: its gradient is rounding noise, and so are
 * Adam's steps on it. Such entries are compared with zero in the gradient, and not after steps. */
#ifndef TESTS_GOLDEN_KEYS_H
#define TESTS_GOLDEN_KEYS_H

#include <math.h>
#include <stddef.h>
#include <string.h>

#define GOLDEN_KEY_NOISE 1e-7 /* above what may stand there, far below any real gradient */

static inline int golden_ends_in(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

/* Sets [*first, *last) to the entries of a tensor [n] that belong to keys' biases. */
static inline void golden_keys(const char *name, size_t n, size_t *first, size_t *last) {
    *first = *last = 0;
    if (golden_ends_in(name, ".attention.key.bias")) *last = n;
    if (golden_ends_in(name, ".attn.c_attn.bias")) {
        *first = n / 3;
        *last = n / 3 * 2;
    }
}

/* The largest |got - want| over the largest |want|, NaN as infinity, leaving out keys' biases;
 * in *noise the largest |got| of those. */
static inline double golden_deviation(const char *name, const float *got, const float *want,
                                      size_t n, double scale, double *noise) {
    size_t first, last;
    double largest = 0.0, worst = 0.0;
    golden_keys(name, n, &first, &last);
    *noise = 0.0;
    for (size_t i = 0; i < n; i++) {
        double value = scale * (double)got[i], off = fabs(value - (double)want[i]);
        largest = fmax(largest, fabs((double)want[i]));
        if (i >= first && i < last)
            *noise = fabs(value) <= *noise ? *noise : fabs(value);
        else
            worst = off <= worst ? worst : off;
    }
    if (worst == 0.0) return 0.0;
    return isnan(worst) ? INFINITY : worst / largest;
}

#endif
