/* What all ranks must pass the same, values and tensors, and saying who passed something else. */
#pragma once

#include "comm/comm.h"
#include "core/state_dict.h"

/* A rank's record as text, for plan_disagree; none where the rank is not to be named. */
typedef void (*plan_describe)(const unsigned char *record, char *text, size_t size);

/* Collective, where ranks are known to disagree: DCP_ERR_MISMATCH "<what>: <record> on ranks 0-2,
 * <another> on rank 3" on all ranks. Without `describe` records are "one" and "another". */
int plan_disagree(dcp_comm *comm, const char *what, const void *record, size_t bytes,
                  plan_describe describe, dcp_error *err);

#define PLAN_VALUES 16

/* Something that all ranks must pass the same. */
typedef struct plan_value {
    const char *name;
    uint64_t value;
    int is_hash; /* no number that says anything */
} plan_value;

/* Collective, where ranks are known to have passed different ones: plan_disagree about it. */
int plan_value_differs(dcp_comm *comm, const plan_value *value, dcp_error *err);

/* Collective; at most PLAN_VALUES. DCP_ERR_MISMATCH names the first that differs and the ranks. */
int plan_same(dcp_comm *comm, const plan_value *values, size_t n, dcp_error *err);

/* comm_agree of `status` and then plan_same, in one all-reduce. */
int plan_agree(dcp_comm *comm, int status, const plan_value *values, size_t n, dcp_error *err);
/* In the same all-reduce the n_more values become the least of all ranks'; together with two for
 * each of `values` at most COMM_LEAST_VALUES. */
int plan_agree_least(dcp_comm *comm, int status, const plan_value *values, size_t n, uint64_t *more,
                     size_t n_more, dcp_error *err);

/* The same in two parts, for what agrees on more at once: what a rank gives, 2 * n in all, and,
 * collective, what follows from the least of all ranks' of that. */
void plan_value_tell(const plan_value *values, size_t n, uint64_t *least);
int plan_value_compare(dcp_comm *comm, const plan_value *values, size_t n, const uint64_t *least,
                       dcp_error *err);

/* "rank 3" or "ranks 0-2, 5" of the ranks marked in `member`. */
void plan_ranks_print(const unsigned char *member, int size, char *text, size_t bytes);

/* Collective. All ranks have the same tensors (sorted by path): names, dtypes and shapes.
 * DCP_ERR_MISMATCH names the first tensor that differs and the ranks. */
int plan_tensors(dcp_comm *comm, state_tensor *const *sorted, size_t n, dcp_error *err);
/* The same where all ranks know the least of all ranks' plan_fingerprint and of its complement. */
int plan_tensors_compare(dcp_comm *comm, state_tensor *const *sorted, size_t n,
                         const uint64_t least[2], dcp_error *err);

/* A checksum of names, dtypes and shapes. Not collective. */
uint64_t plan_fingerprint(state_tensor *const *sorted, size_t n);
