/* What the ranks of a simulation did in one operation: requests to files, messages, collectives. */
#ifndef TESTS_BENCH_SCALE_COUNTS_H
#define TESTS_BENCH_SCALE_COUNTS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct counts_request {
    uint64_t offset, bytes;
    int rank, is_write;
    unsigned file; /* its number among those of the step */
} counts_request;

enum { COUNTS_SIZES = 48 }; /* messages by the binary logarithm of their sizes */

/* Counts of the messages of one kind. */
typedef struct counts_messages {
    uint64_t n, bytes, between; /* between: bytes that go from host to host */
    uint64_t sizes[COUNTS_SIZES], bytes_of_size[COUNTS_SIZES];
    uint64_t *peers; /* a bit for each pair of ranks that talk, both ways */
} counts_messages;

typedef struct counts {
    int ranks, ranks_a_host;
    counts_request *requests;
    size_t n_requests, capacity;
    counts_messages data, other; /* of moving data, and of all else */
    uint64_t collectives;        /* beside moving data */
    uint64_t data_collectives;   /* of moving data */
    uint64_t empty_collectives;  /* of those: exchanges in which nothing travels */
    uint64_t host_collectives;   /* among the ranks of a host; of all hosts together */
    uint64_t shared_bytes;       /* through memory that ranks of a host share */
} counts;

/* Returns 7 for shard-00007-of-00512.h5, and 0 for state.h5. */
static inline unsigned counts_file(const char *path) {
    const char *shard = strstr(path, "/shard-");
    return shard ? (unsigned)strtoul(shard + strlen("/shard-"), NULL, 10) : 0;
}

void counts_make(counts *c, int ranks, int ranks_a_host);
void counts_free(counts *c);
/* Nothing has been done yet. */
void counts_clear(counts *c);

void counts_add_request(counts *c, const counts_request *request);
void counts_add_message(counts *c, counts_messages *to, int from, int peer, uint64_t bytes);

/* Sorts the requests by file and offset. */
void counts_sort(counts *c);
/* A line for each request: rank, W or R, file, offset, bytes. */
void counts_print_requests(const counts *c, FILE *to);

/* How requests in one direction look; sorted before. */
typedef struct counts_summary {
    uint64_t n, bytes, median;
    double in_large;       /* share of the bytes that are in requests of 1 MiB and more */
    double in_aligned;     /* and of those in requests that begin on a whole MiB */
    int most_ranks_of_mib; /* that have a part in one MiB of a file */
    int ranks;             /* that have any */
    double most_over_mean; /* bytes of one of those ranks */
} counts_summary;
void counts_summarize(const counts *c, int writes, counts_summary *out);

/* The most peers of a rank, both ways; the size that half of the bytes are in messages of at least,
 * rounded down to a power of two. */
int counts_most_peers(const counts *c, const counts_messages *m);
uint64_t counts_usual_message(const counts_messages *m);

#endif
