/* Strips that travel from the ranks whose files hold them to the ranks that combine them. */
#pragma once

#include <stddef.h>

#include "comm/comm.h"

#define ONE_BLOCK ((uint64_t)1 << 62) /* block_bytes where a file has one checksum */

/* Bytes of a file that are cut into strips, and checksums of what passed. */
typedef struct strip_file {
    const char *path; /* borrowed */
    int fd;
    uint64_t start; /* of the bytes in the file */
    uint64_t bytes; /* strips may reach beyond: zeros, which are not written */
    /* CRC-64's raw form of each block of block_bytes; zero before. NULL: not wanted. Right once
     * every byte has passed once. */
    uint64_t *raws, block_bytes;
} strip_file;

typedef struct strip {
    int rank;         /* that has the file */
    strip_file *file; /* borrowed; NULL on other ranks */
    uint64_t offset;  /* in the file's bytes */
} strip;

/* Each of `out` is a sum of all of `in`, times its coefficients. */
typedef struct stripe {
    uint64_t bytes; /* of each strip */
    int n_in, n_out;
    strip *in, *out;
    unsigned char *coeffs; /* [n_out][n_in] */
} stripe;

/* Memory for the strips of a stripe; 0, or -1 where memory is short. */
int redundancy_stripe_allocate(stripe *s, int n_in, int n_out);
void redundancy_stripes_free(stripe *list, size_t n);

struct comm_stop;

/* Collective. Each rank passes those stripes in which it has strips, in an order that is the same
 * on all ranks. Uses 16 MiB a rank, or where it has more than 2,000 strips, a page for each.
 * `stop` is asked for each slice; NULL: never. */
int redundancy_stripes_move(dcp_comm *comm, const stripe *list, size_t n, struct comm_stop *stop,
                            dcp_error *err);
