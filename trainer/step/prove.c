#include "step/prove.h"

#include "ranks/agree.h"
#include "state/train_state.h"
#include "step/trainer.h"
#include <dcp/prove.h>

int step_prove_is_due(const trainer *t) {
    return t->prove_every && t->state->step % t->prove_every == 0;
}

int step_prove(const trainer *t, uint64_t *id, dcp_error *err) {
    dcp_state *held = NULL;
    dcp_proof *proof = NULL;
    int status = state_register(t->state, STATE_ALL | STATE_REPLICAS, &held, err);
    status = ranks_agree(t->comm, status, err);
    if (status == DCP_OK) status = dcp_prove(t->dcp, held, NULL, &proof, err);
    if (status == DCP_OK) *id = dcp_proof_id(proof);
    state_release_all(t->state);
    dcp_proof_destroy(proof);
    dcp_state_destroy(held);
    return status;
}
