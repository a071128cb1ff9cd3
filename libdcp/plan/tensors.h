/* Agreement on the tensors, before bytes move. */
#ifndef DCP_PLAN_TENSORS_H
#define DCP_PLAN_TENSORS_H

#include "comm/comm.h"
#include "core/state_dict.h"

/* Collective. All ranks have the same tensors (sorted by path): names, dtypes and shapes.
 * DCP_ERR_MISMATCH names the first tensor that differs and the ranks. */
int plan_tensors(dcp_comm *comm, state_tensor *const *sorted, size_t n, dcp_error *err);

/* A checksum of names, dtypes and shapes. Not collective. */
uint64_t plan_fingerprint(state_tensor *const *sorted, size_t n);

#endif
