/* A proof is cancelled on all ranks if one of them requests it, the first time that it is asked or
 * later; a later proof of the same state is correct. dcp_stop_seldom asks immediately, and then not
 * before its interval has passed. */
#include "support/cancel.h"

static void give_up_at(const scratch *s, const held *h, int rank, int asks) {
    dcp_proof *proof = NULL;
    int left = s->rank == rank ? asks : 1 << 30;
    const dcp_prove_options options = {.size = sizeof options, .stop = give_up, .stop_ctx = &left};
    dcp_error failure;
    const int status = dcp_prove(s->comm, h->state, &options, &proof, &failure);
    check_cancelled(status, &failure, "proof", "nothing is proven");
    CHECK(failure.rank == rank && !proof);
}

static void seldom(const scratch *s, const held *h) {
    dcp_proof *proof = NULL;
    int left = 1; /* a second call would cancel */
    dcp_seldom once = {.stop = give_up, .ctx = &left, .seconds = 3600};
    const dcp_prove_options options = {
        .size = sizeof options, .stop = dcp_stop_seldom, .stop_ctx = &once};
    SUCCEEDS(dcp_prove(s->comm, h->state, &options, &proof, err));
    CHECK(left == 0);
    dcp_proof_destroy(proof);
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    held h;
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    held_make(&h, &g, ROWS, s.rank, s.size, 1);
    for (int rank = 0; rank < s.size; rank++) give_up_at(&s, &h, rank, 0);
    seldom(&s, &h);
    held_free(&h);
    given_free(&g);
    return scratch_end(&s);
}
