/* What the ranks know together of the files that each of them reads: the tensors' names, and the
 * meta. Where all ranks have read the same in theirs, nothing is sent. */
#pragma once

#include "comm/stop.h"
#include "step/checkpoint.h"
#include "step/names.h"

/* What a rank has of the files that it reads. */
typedef struct step_own_files {
    dcp_checkpoint *ckpt;
    size_t first; /* of them; UINT64_MAX: it reads none. Its meta is the checkpoint's */
    step_names names;
    comm_message rows; /* packed; tensors by their numbers in `names` */
    int clash;         /* files that differ in a tensor's shape: told after what is worse */
    dcp_error clash_error;
    comm_stop stop;
} step_own_files;

static inline int step_reads_file(const dcp_checkpoint *ckpt, size_t f) {
    return ckpt->files[f].reader == ckpt->comm->rank;
}

/* Takes up the tensor in `names`, which may be the rank's own or others'; notes a clash. */
int step_own_files_name(step_own_files *own, step_names *names, const dcp_tensor *tensor,
                        size_t path_bytes, uint32_t *number, dcp_error *err);

/* Collective, beginning with comm_agree of `status`. The tensors of all files become the
 * checkpoint's, ascending by path, and the first file's meta, with which those of all others agree.
 * *own_status: how this rank has fared at the end, to be agreed on. */
int step_unite(step_own_files *own, int status, int *own_status, dcp_error *err);
