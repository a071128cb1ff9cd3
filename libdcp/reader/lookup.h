/* Finding a tensor's rows in the index of a file, and exchanging messages of 64-bit words. */
#pragma once

#include "comm/messages.h"
#include "reader/checkpoint.h"

/* Messages of 64-bit words to all ranks. The caller first counts the words for each rank, then
 * writes them, in any order of ranks, and then exchanges the messages. */

typedef struct reader_alltoall {
    dcp_comm *comm;
    uint64_t *bytes, *at, *received; /* for each rank: bytes to send, its next position in `out`,
                                      * and bytes received */
    comm_buffer out, in;             /* `in` is aligned to 8 bytes */
} reader_alltoall;

/* *alltoall must be freed whether or not the call succeeds. */
int reader_alltoall_make(reader_alltoall *alltoall, dcp_comm *comm, dcp_error *err);

static inline void reader_alltoall_count(reader_alltoall *alltoall, int rank, uint64_t words) {
    alltoall->bytes[rank] += 8 * words;
}

/* Allocates memory for everything that was counted. */
int reader_alltoall_allocate(reader_alltoall *alltoall, dcp_error *err);

/* Returns where the caller writes the next `words` words for the rank. */
uint64_t *reader_alltoall_reserve(reader_alltoall *alltoall, int rank, uint64_t words);

/* Collective; begins with comm_agree of `status`. Pass any failure of the functions above as
 * `status`. Afterwards `in` contains `received` bytes from each rank, in rank order. */
int reader_alltoall_run(reader_alltoall *alltoall, int status, dcp_error *err);

void reader_alltoall_free(reader_alltoall *alltoall);

/* Finding a tensor's rows in the index of a file, without reading the whole index. */

/* Appends the tensor's rows in the file, packed and without checksums of blocks (packed.h). */
int reader_lookup_rows(const dcp_checkpoint *ckpt, const reader_tensor *t, format_file *file,
                       comm_buffer *out, dcp_error *err);

/* Returns the checksums of the dataset's blocks in *out, malloc'd. Reads the file's index once, to
 * find where the blocks of each row are. */
int reader_lookup_crcs(reader_dataset *dataset, uint64_t **out, dcp_error *err);
