/* Statistics of the elements of many tensors: the division of the work into chunks for all cores
 * and ranks, and the statistics themselves. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <dcp/inspect.h>

#include "common/launch.h"

/* All cores of all ranks work on the elements of many tensors. The work is divided into chunks; a
 * thread processes one chunk after the other. The results of a chunk are stored under its number,
 * so they do not depend on the thread that computed them. */

#define CHUNKS_THREADS 8u        /* the most threads of a rank */
#define CHUNKS_SLICE (16u << 20) /* the most bytes of a chunk that are in memory at a time */
#define CHUNKS_BLOCK (4u << 20)  /* the bytes of a block, which has its own checksum */

typedef struct inspect_chunk {
    size_t tensor;         /* index in the checkpoint */
    uint64_t first, elems; /* a range of the tensor's elements, in row-major order */
    uint64_t bytes;
} inspect_chunk;

typedef struct inspect_chunks {
    inspect_chunk *list; /* in ascending order of tensors and elements */
    size_t n;
    uint64_t bytes;
} inspect_chunks;

/* Divides into chunks the tensors of `ckpt` that take[] marks. A tensor without elements has no
 * chunks. Returns 0 or an exit status. */
int inspect_chunks_cut(const dcp_checkpoint *ckpt, const unsigned char *take, inspect_chunks *out);
void inspect_chunks_free(inspect_chunks *chunks);

/* Processes chunk i on thread `thread` (0 to CHUNKS_THREADS - 1). */
typedef int (*inspect_chunks_fn)(void *ctx, unsigned thread, size_t i, dcp_error *err);

/* Processes all chunks, with a progress bar that is labelled `what`. Returns the same exit status
 * on all ranks; reports failures itself. Collective. */
int inspect_chunks_run(const launch *job, const inspect_chunks *chunks, const char *what,
                       inspect_chunks_fn fn, void *ctx);

/* A thread's reader of a checkpoint. All members must be zero at first. */
typedef struct inspect_chunks_reader {
    dcp_reader *reader;
    char *data; /* CHUNKS_SLICE bytes */
} inspect_chunks_reader;

/* Prepares the reader, unless it is prepared already. Returns DCP_OK or an error. */
int inspect_chunks_prepare(inspect_chunks_reader *r, dcp_checkpoint *ckpt, dcp_error *err);
void inspect_chunks_release(inspect_chunks_reader *r);
/* Reads elements [first, first + n) of a tensor, in row-major order, into r->data. */
int inspect_chunks_read(inspect_chunks_reader *r, const dcp_tensor *tensor, uint64_t first,
                        uint64_t n, dcp_error *err);

/* Minimum, maximum, mean and standard deviation of a stream of numbers, and how many are zero, NaN
 * or infinite. */

typedef struct inspect_stats {
    uint64_t n; /* how many numbers there are in all */
    uint64_t zeros, nan, inf;
    double min, max, mean; /* of the finite numbers */
    double squares;        /* the sum of squared distances from the mean */
} inspect_stats;

void inspect_stats_add(inspect_stats *s, const double *values, uint64_t n);
/* Adds the statistics of other numbers to *s. */
void inspect_stats_join(inspect_stats *s, const inspect_stats *more);
uint64_t inspect_stats_finite(const inspect_stats *s);
double inspect_stats_std(const inspect_stats *s); /* standard deviation of the population */

/* Counts numbers by magnitude. There is a bin for each power of two, so the range need not be known
 * in advance. */
#define HISTOGRAM_BINS 2048 /* one for each exponent of fp64 */

typedef struct inspect_histogram {
    uint64_t positive[HISTOGRAM_BINS], negative[HISTOGRAM_BINS]; /* do not count zero, NaN and
                                                                  * infinity */
} inspect_histogram;

void inspect_histogram_add(inspect_histogram *h, const double *values, uint64_t n);
void inspect_histogram_join(inspect_histogram *h, const inspect_histogram *more);

/* Draws negative numbers on one side of an axis and positive numbers on the other. A row represents
 * one or more powers of two; there are at most `rows` rows. Percentages refer to `total`. Draws
 * nothing if there are no numbers. */
void inspect_histogram_draw(const inspect_histogram *h, uint64_t total, int rows, FILE *out);

/* Returns {"log2": the first bin's exponent, "negative": [...], "positive": [...]}, in which bin i
 * counts the numbers whose magnitude is at least 2^(log2 + i) and below twice that; null if there
 * are no numbers. */
json_t *inspect_histogram_json(const inspect_histogram *h);
