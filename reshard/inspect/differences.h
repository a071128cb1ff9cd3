/* Two checkpoints compared, in whatever layouts they are: what differs, and by how much. */
#pragma once

#include <jansson.h>

#include <dcp/inspect.h>

#include "common/launch.h"

typedef enum inspect_diff_kind {
    DIFF_SAME,    /* every bit */
    DIFF_CLOSE,   /* within the tolerance */
    DIFF_CHANGED, /* of one dtype and shape */
    DIFF_DTYPE,
    DIFF_SHAPE,
    DIFF_ONLY_A,
    DIFF_ONLY_B,
    DIFF_KINDS,
    DIFF_UNKNOWN, /* the tables don't tell: to be read */
} inspect_diff_kind;

/* Sums over the elements of two tensors of one shape. Elements that are the same infinity or both
 * NaN count as equal; where only one is not finite, or the infinities differ, `nonfinite` alone
 * counts it. */
typedef struct inspect_diff_sums {
    uint64_t differing; /* elements whose bits differ, of different dtypes: whose values do */
    uint64_t bits_only; /* of these, of one dtype: whose values are equal (0 and -0, NaNs) */
    uint64_t nonfinite; /* elements that differ by more than a number */
    uint64_t finite;    /* elements in the sums below */
    uint64_t beyond;    /* elements outside of the tolerance */
    double max, abs;    /* largest, and sum, of |b - a| */
    double squares, squares_a;
} inspect_diff_sums;

typedef struct inspect_diff_row {
    const dcp_tensor *a, *b; /* NULL where it is missing */
    size_t ia, ib;
    inspect_diff_kind kind;
    int measured; /* sums are known */
    inspect_diff_sums sums;
} inspect_diff_row;

typedef struct inspect_diff_options {
    char *const *globs;
    size_t n_globs;
    int quick; /* don't measure */
    int tolerant;
    double rtol, atol; /* equal where |a - b| <= atol + rtol |b| */
} inspect_diff_options;

typedef struct inspect_differences {
    dcp_checkpoint *a, *b;
    inspect_diff_row *rows; /* ascending by path */
    size_t n;
    size_t counts[DIFF_KINDS];
} inspect_differences;

/* Pairs the tensors and judges them by their checksums. Returns an exit status, as the next. */
int inspect_differences_pair(dcp_checkpoint *a, dcp_checkpoint *b,
                             const inspect_diff_options *options, inspect_differences *out);
/* Collective: reads what is unknown and, unless `quick`, what changed; counts on rank 0. */
int inspect_differences_measure(const launch *job, inspect_differences *d,
                                const inspect_diff_options *options);
void inspect_differences_free(inspect_differences *d);

void inspect_differences_add(inspect_diff_sums *to, const inspect_diff_sums *s);
double inspect_differences_mean(const inspect_diff_sums *s);
double inspect_differences_relative(const inspect_diff_sums *s); /* norm of b - a over a's */

/* What differs in the checkpoints' meta: an array of {"key": path with dots, "a": value, "b":
 * value}, absent where it is missing; at most `most`, *n is how many there are. */
json_t *inspect_differences_meta(const dcp_checkpoint *a, const dcp_checkpoint *b, size_t most,
                                 size_t *n);
