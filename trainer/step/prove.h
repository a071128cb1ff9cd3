/* Proofs of the state in memory, for --prove-every. */
#pragma once

#include <stdint.h>

#include <dcp/error.h>

typedef struct trainer trainer;

/* Whether the step that the state is at is to be proven. */
int step_prove_is_due(const trainer *t);

/* Collective: the state id of the state as it is, which a save of it has, too; and ranks that hold
 * the same are compared, also where each of them saves a part of it. DCP_ERR_MISMATCH: they differ.
 */
int step_prove(const trainer *t, uint64_t *id, dcp_error *err);
