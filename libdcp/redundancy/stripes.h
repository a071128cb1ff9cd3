/* Moves strips from the ranks whose files contain them to the ranks that combine them. */
#pragma once

#include <stddef.h>

#include "comm/comm.h"

#define ONE_BLOCK ((uint64_t)1 << 62) /* block_bytes if a file has a single checksum */

/* The bytes of a file that are cut into strips, and checksums of the bytes that were moved. */
typedef struct strip_file {
    const char *path; /* borrowed */
    int fd;
    uint64_t start; /* offset of these bytes in the file */
    uint64_t bytes; /* strips can extend past these bytes, with zeros that are not written */
    /* The raw CRC-64 of each block of block_bytes; initially zero. Valid after every byte was moved
     * once. NULL: not needed. */
    uint64_t *raws, block_bytes;
} strip_file;

typedef struct strip {
    int rank;         /* the rank that has the file */
    strip_file *file; /* borrowed; NULL on other ranks */
    uint64_t offset;  /* from `start` of the file */
} strip;

/* Each strip of `out` is a sum of all strips of `in`, each multiplied by a coefficient. */
typedef struct stripe {
    uint64_t bytes; /* size of each strip */
    int n_in, n_out;
    strip *in, *out;
    unsigned char *coeffs; /* [n_out][n_in] */
} stripe;

/* Allocates the strips of a stripe. Returns 0, or -1 if memory is short. */
int redundancy_stripe_allocate(stripe *s, int n_in, int n_out);
void redundancy_stripes_free(stripe *list, size_t n);

struct comm_stop;

/* Moves and combines the strips, one slice at a time. Collective. Each rank passes the stripes in
 * which it has strips, in an order that is the same on all ranks. Uses at most 16 MiB per rank,
 * unless some rank sends and receives more than 4,000 strips in all: then each rank uses one page
 * for each strip that it sends or receives. `stop` is checked before each slice; NULL: never
 * stop. */
int redundancy_stripes_move(dcp_comm *comm, const stripe *list, size_t n, struct comm_stop *stop,
                            dcp_error *err);
