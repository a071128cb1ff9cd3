/* Sets of tensors by name, and the union of the names and meta that each rank has read. */
#pragma once

#include <stdbool.h>

#include "comm/comm.h"
#include "comm/messages.h"
#include "dcp/tensor.h"
#include "reader/checkpoint.h"

/* A set of tensors by name, for the union of the names in many files. */

typedef struct reader_names {
    dcp_tensor *list; /* in the order of arrival; the set owns the paths */
    size_t n, room;
    uint32_t *slots; /* a hash table; each slot has an index in `list` plus 1, or 0 */
    size_t n_slots;
} reader_names;

/* Returns a checksum of the names, types and shapes, which does not depend on their order. */
uint64_t reader_names_fingerprint(const reader_names *names);

void reader_names_free(reader_names *names);

/* The union of the tensors' names and of the meta in the files that each rank reads. If all ranks
 * have read the same names and meta, only their checksums are exchanged. */

/* The tables that a rank has read from its own files. */
typedef struct reader_own_files {
    dcp_checkpoint *ckpt;
    /* number of the first of these files, which provides the checkpoint's meta; SIZE_MAX: this rank
     * reads no file */
    size_t first;
    reader_names names;
    comm_buffer rows; /* packed; they number the tensors as `names` does */
    /* two files differ in a tensor's shape; reported only if no other failure occurs */
    int clash;
    dcp_error clash_error;
    comm_stop stop;
} reader_own_files;

static inline bool reader_reads_file(const dcp_checkpoint *ckpt, size_t f) {
    return ckpt->files[f].reader == ckpt->comm->rank;
}

/* Adds the tensor to `names`, which are either this rank's own names or the names that it received;
 * records a clash. */
int reader_own_files_name(reader_own_files *own, reader_names *names, const dcp_tensor *tensor,
                          size_t path_bytes, uint32_t *number, dcp_error *err);

/* Collective; begins with comm_agree of `status`. Gives the checkpoint the tensors of all files,
 * sorted by path, and the first file's meta, with which the metas of all other files must agree.
 * *own_status is this rank's status afterwards; the ranks have not agreed on it yet. */
int reader_union_make(reader_own_files *own, int status, int *own_status, dcp_error *err);

/* Opens a step of shards: completes a checkpoint that already has its files, with their readers and
 * paths. No rank has the rows of all tensors: each tensor's rows are sent to its home. Each file's
 * tables are read and checked by the file's reader; the ranks do so at the same time. The ranks
 * find the union of the tensors' names (reader_union_make), number the tensors, and send each row
 * to its tensor's home. The home checks whether the rows cover the tensor, and sends a few numbers
 * about it to all ranks.
 *
 * Collective; begins with comm_agree of `status`. Sets *moved to true if the step's folder has lost
 * its name on some rank (reader_checkpoint_is_gone). The number of collectives depends neither on
 * the files nor on the tensors; it is smaller if all ranks have read the same names. */
int reader_homes_open(dcp_checkpoint *ckpt, int status, bool *moved, dcp_error *err);
