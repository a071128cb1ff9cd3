/* The ranks that share memory with a rank notice that it cancels an operation, without a
 * collective; the next operation works. */
#include "comm/comm.h"
#include "support/scratch.h"

static int says(void *ctx) {
    int *answer = ctx;
    CHECK(*answer >= 0); /* not asked again */
    return (*answer)--;
}

/* Rank 0 cancels if `answer` is 1. */
static void operate(const scratch *s, int answer) {
    int own = s->rank == 0 ? answer : 0;
    comm_stop stop = {.should_stop = says, .ctx = &own, .what = "it", .outcome = "it is lost"};
    dcp_error err = {0};
    comm_stop_begin(&stop, s->comm);
    CHECK(!comm_stop_status(&stop, NULL));
    MPI_Barrier(MPI_COMM_WORLD);
    if (s->rank == 0) {
        CHECK(comm_stop_poll(&stop, &err) == (answer ? DCP_ERR_CANCELLED : DCP_OK));
        own = answer ? -1 : 0;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    int status = comm_stop_poll(&stop, &err);
    if (answer && (s->comm->shared || s->rank == 0)) {
        CHECK(status == DCP_ERR_CANCELLED && comm_stop_status(&stop, NULL) == status);
        CHECK(!strcmp(err.message, s->size > 1 ? "it was cancelled by rank 0: it is lost"
                                               : "it was cancelled: it is lost"));
    } else {
        CHECK(status == DCP_OK);
    }
}

int main(int argc, char **argv) {
    scratch s;
    scratch_begin(&s, &argc, &argv);
    CHECK(comm_stop_poll(NULL, NULL) == DCP_OK && comm_stop_status(NULL, NULL) == DCP_OK);
    for (int i = 0; i < 3; i++) {
        operate(&s, 1);
        operate(&s, 0);
    }
    return scratch_end(&s);
}
