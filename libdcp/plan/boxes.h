/* Who holds which boxes of the tensors, and who keeps each.
 *
 * Each tensor has an arbiter: tensor number i belongs to rank i modulo the world size. Every rank
 * sends its boxes to the arbiters of their tensors. An arbiter looks whether the boxes cover its
 * tensors. For each box it answers whether the holder keeps it: of equal boxes on several ranks
 * (replicas), one is kept. So no rank sees all boxes: its work and memory grow with its own boxes
 * and with tensors / ranks. */
#pragma once

#include "comm/comm.h"
#include "core/state_dict.h"

typedef struct plan_box {
    size_t tensor; /* in the sorted array */
    const state_box *box;
    int rank;        /* its holder */
    int keeper_rank; /* the lowest holder of this box */
    int keeper;      /* this holder writes it and counts it in checksums */
    int replicated;  /* others hold it, too */
} plan_box;

/* Where boxes have replicas: what it takes to compare them (replicas.h). Each holder tells the
 * tensor's arbiter about its boxes; numbers of bytes are of 8 a box. */
typedef struct plan_replicas {
    size_t *told; /* this rank's replicated boxes, as numbers, in the order in which they go out */
    size_t n_told;
    uint64_t *to_arbiters, *from_holders; /* bytes to and from each rank */
    /* As an arbiter: of each box that comes, number of the set of equal boxes that it is of. */
    uint32_t *sets;
    size_t n_heard, n_sets;
} plan_replicas;

typedef struct plan_boxes {
    plan_box *boxes; /* this rank's, ascending by tensor */
    size_t n;
    unsigned char *exact; /* a byte a tensor: 1 where the boxes of all ranks cover it once */
    int has_replicas;     /* any rank; the same on all. Then: */
    plan_replicas replicas;
} plan_boxes;

/* Collective. Where `strict`, a tensor that the boxes don't cover exactly is DCP_ERR_MISMATCH, with
 * the ranks and boxes; else only `exact` tells, and nothing is known of replicas. */
int plan_exchange(dcp_comm *comm, state_tensor *const *sorted, size_t n, int strict,
                  plan_boxes *out, dcp_error *err);
void plan_boxes_free(plan_boxes *plan);
