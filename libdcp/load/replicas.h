/* Proof of the boxes that several ranks loaded. */
#ifndef DCP_LOAD_REPLICAS_H
#define DCP_LOAD_REPLICAS_H

#include "plan/boxes.h"

struct staging;

/* Collective. Equal boxes of several ranks must hold equal bytes: their keeper's were proven by the
 * sum of checksums, which counts each box once. Boxes of tensors that are not covered exactly are
 * left out. `staging`: of boxes on a device. DCP_ERR_CORRUPT names the tensor and the rank. */
int replicas_check(dcp_comm *comm, state_tensor *const *sorted, const plan_boxes *plan,
                   const struct staging *staging, dcp_error *err);

#endif
