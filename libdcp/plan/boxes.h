/* Finds out which ranks hold which boxes of the tensors, and which rank keeps each box.
 *
 * Each tensor has an arbiter: tensor number i belongs to rank i modulo the world size. Every rank
 * sends its boxes to the arbiters of their tensors. An arbiter checks that the boxes cover its
 * tensors. For each box it answers whether the holder keeps it: if several ranks hold equal boxes
 * (replicas), only one of them keeps its box. So no rank sees all boxes: a rank's work and memory
 * grow with the number of its own boxes and with tensors / ranks. */
#pragma once

#include <stdbool.h>

#include "comm/messages.h"
#include "comm/vote.h"
#include "core/state_dict.h"

#define PLAN_MAX_HOLDERS 0x7ffeu

typedef struct plan_box {
    size_t tensor; /* its tensor's index in the array of the sorted tensors */
    const state_box *box;
    int rank;        /* its holder */
    int keeper_rank; /* the lowest holder of this box */
    /* holders: the number of holders that can share the writing of the box. turn: this holder's
     * number among them. If a box has more holders than PLAN_MAX_HOLDERS, the remaining ones get a
     * turn that never comes. */
    uint16_t turn, holders;
    /* 1: this holder adds the box to checksums and, unless holders share its writing, writes it. */
    unsigned char keeper;
    unsigned char replicated; /* other ranks hold it, too; only set for covered tensors */
} plan_box;

/* The lists for the comparison of replicas (plan/agreement.h). Each holder sends the tensor's
 * arbiter 8 bytes per box. */
typedef struct plan_replicas {
    /* The numbers of this rank's replicated boxes, in the order in which they are sent. */
    size_t *sent;
    size_t n_sent;
    uint64_t *to_arbiters, *from_holders; /* bytes to and from each rank */
    /* As an arbiter: for each box received, the number of its set of equal boxes. */
    uint32_t *sets;
    size_t n_received, n_sets;
} plan_replicas;

typedef struct plan_boxes {
    plan_box *boxes; /* this rank's boxes, ascending by tensor */
    size_t n;
    unsigned char *exact;   /* per tensor: 1 if the boxes of all ranks cover it */
    bool has_replicas;      /* some rank has replicas; the same value on all ranks */
    plan_replicas replicas; /* empty unless has_replicas and `strict` (plan_exchange) */
} plan_boxes;

/* If tensors have homes, the homes are their arbiters. In addition to answers, a home sends each
 * rank a message about the boxes that the rank holds. */
typedef struct plan_homes {
    const size_t *numbers; /* [tensor]: its home is rank numbers[tensor] modulo the world size */
    /* Called on each home; not collective. The boxes of rank r are the next bytes[r] bytes of
     * `boxes`. Appends the message for each rank to `out`, and sets out_bytes. */
    int (*answer)(void *ctx, const comm_buffer *boxes, const uint64_t *bytes,
                  struct plan_homes *homes, dcp_error *err);
    /* Called on each rank if no arbiter has failed; not collective. Reads the homes' messages from
     * `in`. May set values of the caller's vote. */
    int (*receive)(void *ctx, struct plan_homes *homes, dcp_error *err);
    void *ctx;
    uint64_t *out_bytes, *in_bytes; /* [ranks]: bytes to and from each rank; the caller's arrays */
    comm_buffer out, in;            /* the messages from and to this rank; the caller's */
} plan_homes;

/* Reads the next box of a message to an arbiter. *tensor becomes the tensor's number among the
 * planned tensors. *start becomes the address of the box's starts, one per dimension; the box's
 * counts follow. Returns the end of the box. */
const unsigned char *plan_box_next(const unsigned char *at, size_t *tensor, uint32_t *dims,
                                   const unsigned char **start);

/* Collective; begins with comm_agree of `status`. If `strict`, returns DCP_ERR_MISMATCH for a
 * tensor that the boxes don't cover exactly; the message names ranks and boxes. Otherwise only
 * out->exact shows such tensors, and out->replicas is empty. Adds its own values to the vote `v`,
 * and runs it. If `strict`, `homes` must be NULL. */
int plan_exchange_vote(dcp_comm *comm, int status, state_tensor *const *sorted, size_t n,
                       bool strict, plan_homes *homes, comm_vote *v, plan_boxes *out,
                       dcp_error *err);

/* Does the same without homes, and without a vote of the caller. */
static inline int plan_exchange(dcp_comm *comm, int status, state_tensor *const *sorted, size_t n,
                                bool strict, plan_boxes *out, dcp_error *err) {
    comm_vote v = {0};
    return plan_exchange_vote(comm, status, sorted, n, strict, NULL, &v, out, err);
}

void plan_boxes_free(plan_boxes *plan);
