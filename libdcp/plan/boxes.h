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
