/* What ranks must agree on before bytes move: the tensors, and who holds which boxes of them.
 *
 * Each tensor has a home rank (its number modulo the world size). Every rank sends its boxes to
 * their homes, a home judges its tensors alone and answers for each box whether its holder keeps it
 * (one of each set of replicas does). No rank ever sees more than its share: work and memory are
 * those of its own boxes and of tensors / ranks whole tensors. */
#ifndef DCP_PLAN_PLAN_H
#define DCP_PLAN_PLAN_H

#include "comm/comm.h"
#include "core/state.h"
#include "dcp/save.h"

/* Collective. All ranks have the same tensors (sorted by path): names, dtypes and shapes.
 * DCP_ERR_MISMATCH names the first tensor that differs and the ranks. */
int plan_tensors(dcp_comm *comm, state_tensor *const *sorted, size_t n, dcp_error *err);

/* A rank's record as text, for plan_disagree. */
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

/* plan_same and then comm_agree of `status`, in one all-reduce. */
int plan_agree(dcp_comm *comm, int status, const plan_value *values, size_t n, dcp_error *err);

/* "rank 3" or "ranks 0-2, 5" of the ranks marked in `member`. */
void plan_ranks_print(const unsigned char *member, int size, char *text, size_t bytes);

/* A checksum of names, dtypes and shapes. Not collective. */
uint64_t plan_fingerprint(state_tensor *const *sorted, size_t n);

typedef struct plan_box {
    size_t tensor; /* in the sorted array */
    const state_box *box;
    int rank;        /* its holder */
    int keeper_rank; /* the lowest holder of this box */
    int keeper;      /* this holder writes it and counts it in checksums */
} plan_box;

typedef struct plan_boxes {
    plan_box *boxes; /* this rank's, ascending by tensor */
    size_t n;
    unsigned char *exact; /* a byte a tensor: 1 where the boxes of all ranks cover it once */
} plan_boxes;

/* Collective. Where `strict`, a tensor that the boxes don't cover exactly is DCP_ERR_MISMATCH, with
 * the ranks and boxes; else only `exact` tells. */
int plan_exchange(dcp_comm *comm, state_tensor *const *sorted, size_t n, int strict,
                  plan_boxes *out, dcp_error *err);
void plan_boxes_free(plan_boxes *plan);

/* Whether there is such an engine, and it can be used here. Not collective. */
int plan_check_engine(dcp_engine wanted, dcp_error *err);
/* That engine, or the one that suits dir's file system as this rank sees it. Not collective. */
dcp_engine plan_engine(dcp_engine wanted, const char *dir);

#endif
