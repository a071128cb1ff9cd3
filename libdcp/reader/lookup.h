/* Looking for a tensor's rows in the index of a file, and messages of words that ranks put
 * together in any order. */
#pragma once

#include "comm/messages.h"
#include "reader/checkpoint.h"

/* Messages of 64-bit words to any ranks, put together in any order: what goes to each rank is
 * counted first, then placed, then exchanged. */

typedef struct reader_spread {
    dcp_comm *comm;
    uint64_t *bytes, *at, *received; /* to each rank, placed of it, from each rank */
    comm_message out, in;            /* `in` is 8-byte-aligned */
} reader_spread;

/* To be freed in either case. */
int reader_spread_make(reader_spread *spread, dcp_comm *comm, dcp_error *err);

static inline void reader_spread_count(reader_spread *spread, int rank, uint64_t words) {
    spread->bytes[rank] += 8 * words;
}

/* After the counting: memory for all of it. */
int reader_spread_begin(reader_spread *spread, dcp_error *err);

/* Where the next `words` words to the rank go. */
uint64_t *reader_spread_place(reader_spread *spread, int rank, uint64_t words);

/* Collective, beginning with comm_agree of `status`, which includes that of the functions above.
 * Then `received` bytes of each rank lie in `in`, in rank order. */
int reader_spread_exchange(reader_spread *spread, int status, dcp_error *err);

void reader_spread_free(reader_spread *spread);

/* Looking for a tensor's rows in the index of a file, without reading all of it. */

/* Appends the file's rows of the tensor, packed and without blocks (packed.h). */
int reader_lookup_rows(const dcp_checkpoint *ckpt, const reader_tensor *t, format_file *file,
                       comm_message *out, dcp_error *err);

/* The checksums of the dataset's blocks, malloc'd. Reads the file's index once, to know where each
 * row's blocks are. */
int reader_lookup_crcs(reader_dataset *dataset, uint64_t **out, dcp_error *err);
