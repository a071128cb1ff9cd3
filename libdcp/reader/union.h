/* What the ranks know together: sets of tensors by name, and the union of what each has read. */
#pragma once

#include "comm/comm.h"
#include "comm/messages.h"
#include "dcp/tensor.h"
#include "reader/checkpoint.h"

/* A set of tensors by name, as files have them: for the union of the names of many files. */

typedef struct reader_names {
    dcp_tensor *list; /* in the order in which they came; the paths are the set's */
    size_t n, room;
    uint32_t *slots; /* a hash table: numbers + 1 in the list */
    size_t n_slots;
} reader_names;

/* A checksum of the set: names, types and shapes in any order. */
uint64_t reader_names_fingerprint(const reader_names *names);

void reader_names_free(reader_names *names);

/* What the ranks know together of the files that each of them reads: the tensors' names, and the
 * meta. Where all ranks have read the same in theirs, nothing is sent. */

/* What a rank has of the files that it reads. */
typedef struct reader_own_files {
    dcp_checkpoint *ckpt;
    size_t first; /* of them; UINT64_MAX: it reads none. Its meta is the checkpoint's */
    reader_names names;
    comm_message rows; /* packed; tensors by their numbers in `names` */
    int clash;         /* files that differ in a tensor's shape: told after what is worse */
    dcp_error clash_error;
    comm_stop stop;
} reader_own_files;

static inline int reader_reads_file(const dcp_checkpoint *ckpt, size_t f) {
    return ckpt->files[f].reader == ckpt->comm->rank;
}

/* Takes up the tensor in `names`, which may be the rank's own or others'; notes a clash. */
int reader_own_files_name(reader_own_files *own, reader_names *names, const dcp_tensor *tensor,
                          size_t path_bytes, uint32_t *number, dcp_error *err);

/* Collective, beginning with comm_agree of `status`. The tensors of all files become the
 * checkpoint's, ascending by path, and the first file's meta, with which those of all others agree.
 * *own_status: how this rank has fared at the end, to be agreed on. */
int reader_unite(reader_own_files *own, int status, int *own_status, dcp_error *err);
