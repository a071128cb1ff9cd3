/* Who holds which boxes of the tensors, and who keeps each.
 *
 * Each tensor has an arbiter: tensor number i belongs to rank i modulo the world size. Every rank
 * sends its boxes to the arbiters of their tensors. An arbiter checks that the boxes cover its
 * tensors. For each box it answers whether the holder keeps it: of equal boxes on several ranks
 * (replicas), one is kept. So no rank sees all boxes: its work and memory grow with its own boxes
 * and with tensors / ranks. */
#pragma once

#include "comm/messages.h"
#include "comm/vote.h"
#include "core/state_dict.h"

#define PLAN_MOST_HOLDERS 0x7ffeu

typedef struct plan_box {
    size_t tensor; /* in the sorted array */
    const state_box *box;
    int rank;        /* its holder */
    int keeper_rank; /* the lowest holder of this box */
    /* This holder's number among the holders that can share the writing of the box, and their
     * number. With more than PLAN_MOST_HOLDERS, the last ones have a turn that never comes. */
    uint16_t turn, holders;
    unsigned char keeper;     /* this holder counts it in checksums and, unless shared, writes it */
    unsigned char replicated; /* others hold it, too; only set for tensors that are covered */
} plan_box;

/* What comparing replicas needs (plan/agreement.h). Each holder sends the tensor's arbiter 8 bytes
 * per box. */
typedef struct plan_replicas {
    size_t *told; /* the numbers of this rank's replicated boxes, in the order they go out */
    size_t n_told;
    uint64_t *to_arbiters, *from_holders; /* bytes to and from each rank */
    /* As an arbiter: for each box received, the number of its set of equal boxes. */
    uint32_t *sets;
    size_t n_heard, n_sets;
} plan_replicas;

typedef struct plan_boxes {
    plan_box *boxes; /* this rank's, ascending by tensor */
    size_t n;
    unsigned char *exact;   /* per tensor: 1 if the boxes of all ranks cover it */
    int has_replicas;       /* on any rank; the same on all */
    plan_replicas replicas; /* if there are any, and all tensors had to be covered */
} plan_boxes;

/* If tensors have homes, these are their arbiters, and send each rank more about what it holds. */
typedef struct plan_homes {
    const size_t *numbers; /* per tensor: its home is that number modulo the world size */
    /* Not collective, at home: the boxes of rank r are the next bytes[r] of `boxes`. Appends the
     * message for each rank to `out`, and sets out_bytes. */
    int (*answer)(void *ctx, const comm_message *boxes, const uint64_t *bytes,
                  struct plan_homes *homes, dcp_error *err);
    /* Not collective, if no arbiter has failed: reads the homes' messages from `in`. May set values
     * of the vote. */
    int (*take)(void *ctx, struct plan_homes *homes, dcp_error *err);
    void *ctx;
    uint64_t *out_bytes, *in_bytes; /* [ranks]: the caller's */
    comm_message out, in;           /* the messages from and to this rank; the caller's */
} plan_homes;

/* Reads the next box of a message to an arbiter: the tensor's number among the planned ones, and
 * start and count on each dimension, which lie at *start. Returns where it ends. */
const unsigned char *plan_box_next(const unsigned char *at, size_t *tensor, uint32_t *dims,
                                   const unsigned char **start);

/* Collective, beginning with comm_agree of `status`. If `strict`, a tensor that the boxes don't
 * cover exactly is DCP_ERR_MISMATCH, with the ranks and boxes; otherwise only `exact` shows it, and
 * `replicas` is empty. Runs the vote `v`, after adding to it. `homes`: NULL, or not strict. */
int plan_exchange_vote(dcp_comm *comm, int status, state_tensor *const *sorted, size_t n,
                       int strict, plan_homes *homes, comm_vote *v, plan_boxes *out,
                       dcp_error *err);

/* Does the same without homes and a vote of the caller's. */
static inline int plan_exchange(dcp_comm *comm, int status, state_tensor *const *sorted, size_t n,
                                int strict, plan_boxes *out, dcp_error *err) {
    comm_vote v = {0};
    return plan_exchange_vote(comm, status, sorted, n, strict, NULL, &v, out, err);
}

void plan_boxes_free(plan_boxes *plan);
