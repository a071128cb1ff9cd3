/* Compares two checkpoints, whatever their layouts: what differs, and by how much. */
#pragma once

#include <jansson.h>

#include <dcp/inspect.h>

#include "common/launch.h"

typedef enum inspect_diff_kind {
    DIFF_SAME,    /* in every bit */
    DIFF_CLOSE,   /* within the tolerance */
    DIFF_CHANGED, /* same dtype and shape */
    DIFF_DTYPE,
    DIFF_SHAPE,
    DIFF_ONLY_A,
    DIFF_ONLY_B,
    DIFF_KINDS,
    DIFF_UNKNOWN, /* the tables do not decide: must be read */
} inspect_diff_kind;

/* Sums over the elements of two tensors of one shape. Elements that are the same infinity, or are
 * both NaN, count as equal. If only one is finite, or the infinities differ, only `nonfinite`
 * counts them. */
typedef struct inspect_diff_sums {
    uint64_t differing; /* elements whose bits differ; for different dtypes, whose values differ */
    uint64_t bits_only; /* of these, those with equal values (0 and -0, NaNs); one dtype */
    uint64_t nonfinite; /* elements that do not differ by a finite number */
    uint64_t finite;    /* elements in the sums below */
    uint64_t beyond;    /* elements beyond the tolerance */
    double max, abs;    /* the largest and the sum of |b - a| */
    double squares, squares_a;
} inspect_diff_sums;

typedef struct inspect_diff_row {
    const dcp_tensor *a, *b; /* NULL if missing */
    size_t ia, ib;
    inspect_diff_kind kind;
    int measured; /* the sums are known */
    inspect_diff_sums sums;
} inspect_diff_row;

typedef struct inspect_diff_options {
    char *const *globs;
    size_t n_globs;
    int quick; /* do not measure */
    int tolerant;
    double rtol, atol; /* equal if |a - b| <= atol + rtol |b| */
} inspect_diff_options;

typedef struct inspect_differences {
    dcp_checkpoint *a, *b;
    inspect_diff_row *rows; /* in ascending order of paths */
    size_t n;
    size_t counts[DIFF_KINDS];
} inspect_differences;

/* Pairs the tensors and judges them by their checksums. Returns an exit status. */
int inspect_differences_pair(dcp_checkpoint *a, dcp_checkpoint *b,
                             const inspect_diff_options *options, inspect_differences *out);
/* Reads unknown tensors and, unless `quick`, changed ones; the counts are on rank 0. Returns an
 * exit status. Collective. */
int inspect_differences_measure(const launch *job, inspect_differences *d,
                                const inspect_diff_options *options);
void inspect_differences_free(inspect_differences *d);

void inspect_differences_add(inspect_diff_sums *to, const inspect_diff_sums *s);
double inspect_differences_mean(const inspect_diff_sums *s);
double inspect_differences_relative(const inspect_diff_sums *s); /* norm of b - a over that of a */

/* The differences of the checkpoints' meta: an array of {"key": path with dots, "a": value, "b":
 * value}, without the value that is missing. Has at most `most` members; *n is the number of
 * differences. */
json_t *inspect_differences_meta(const dcp_checkpoint *a, const dcp_checkpoint *b, size_t most,
                                 size_t *n);
