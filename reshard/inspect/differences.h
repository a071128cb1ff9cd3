/* Compares two checkpoints of any layouts: finds the tensors that differ, and measures by how
 * much. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include <dcp/inspect.h>

#include "common/launch.h"

typedef enum inspect_diff_kind {
    DIFF_SAME,    /* the same bits */
    DIFF_CLOSE,   /* the same dtype and shape; differs within the tolerance */
    DIFF_CHANGED, /* differs by more than the tolerance */
    DIFF_DTYPE,
    DIFF_SHAPE,
    DIFF_ONLY_A,
    DIFF_ONLY_B,
    DIFF_KINDS,
    DIFF_UNKNOWN, /* must be read, because the tables do not decide */
} inspect_diff_kind;

/* Sums over the elements of two tensors of the same shape. Two elements count as equal if they are
 * the same infinity, or both NaN. Otherwise, if one of them is not finite, they are counted in
 * `nonfinite`, but not in the sums of distances. */
typedef struct inspect_diff_sums {
    uint64_t differing; /* elements that differ in bits or, if the dtypes differ, in value */
    uint64_t bits_only; /* if the dtypes are equal: differing elements of equal value (0 and -0,
                         * NaNs) */
    uint64_t nonfinite; /* elements that differ, but not by a finite number */
    uint64_t finite;    /* elements in the sums below */
    uint64_t beyond;    /* elements beyond the tolerance */
    double max, abs;    /* the largest and the sum of |b - a| */
    double squares, squares_a;
} inspect_diff_sums;

typedef struct inspect_diff_row {
    const dcp_tensor *a, *b; /* NULL if that checkpoint has no such tensor */
    size_t ia, ib;
    inspect_diff_kind kind;
    bool measured; /* the sums were measured */
    inspect_diff_sums sums;
} inspect_diff_row;

typedef struct inspect_diff_options {
    char *const *globs;
    size_t n_globs;
    bool quick; /* measure only tensors whose kind the tables do not decide */
    bool tolerant;
    double rtol, atol; /* elements are close if |a - b| <= atol + rtol |b| */
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
/* Reads tensors whose kind is unknown and, without `quick`, tensors that have changed or whose
 * dtypes differ. The counts are on rank 0. Returns an exit status. Collective. */
int inspect_differences_measure(const launch *job, inspect_differences *d,
                                const inspect_diff_options *options);
void inspect_differences_free(inspect_differences *d);

void inspect_differences_add(inspect_diff_sums *to, const inspect_diff_sums *s);
double inspect_differences_mean(const inspect_diff_sums *s);
double inspect_differences_relative(const inspect_diff_sums *s); /* the norm of b - a divided by the
                                                                  * norm of a */

/* Returns the differences of the checkpoints' meta: an array of {"key": path with dots, "a": value,
 * "b": value}. A value that is missing in a checkpoint is left out. The array has at most `most`
 * members; *n is the total number of differences. */
json_t *inspect_differences_meta(const dcp_checkpoint *a, const dcp_checkpoint *b, size_t most,
                                 size_t *n);
