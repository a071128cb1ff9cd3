/* Saves in flight: memory may change after the fence, the file is the same as a plain save's, a
 * failure is reported by the wait on all ranks, a second save waits for the first or is refused,
 * progress adds up, and closing the store completes what is in flight; with a thread of its own and
 * without. */
#include "comm/comm.h"
#include "support/scratch.h"

static dcp_saving *start(dcp_store *store, uint64_t step, const held *h) {
    dcp_saving *saving = NULL;
    SUCCEEDS(dcp_save_async(store, step, h->state, GIVEN_JSON, NULL, &saving, err));
    return saving;
}

static void spoil(const held *h, const given *g) {
    for (size_t i = 0; i < h->n; i++)
        memset(h->boxes[i].data, 0x5a,
               dcp_box_elems(&h->boxes[i].box, g->tensors[h->boxes[i].tensor].ndim) *
                   dcp_dtype_bytes(g->tensors[h->boxes[i].tensor].dtype));
}

static void same_file_though_memory_changes(const scratch *s, const given *g) {
    held h;
    dcp_report report = DCP_REPORT_INIT;
    dcp_store *store = scratch_store(s, s->comm, "flight");
    scratch_save(s, s->comm, "plain", g, ROWS, DCP_LAYOUT_GLOBAL);
    held_make(&h, g, ROWS, s->rank, s->size, 1);
    for (int again = 0; again < 2; again++) { /* the second time with the first one's plan */
        dcp_saving *saving = start(store, 5, &h);
        dcp_save_fence(saving);
        spoil(&h, g);
        SUCCEEDS(dcp_save_wait(saving, &report, err));
        CHECK(report.bytes > 0);
        MPI_Barrier(MPI_COMM_WORLD);
        CHECK(scratch_same(s, "flight/step-00000005/state.h5", "plain/step-00000005/state.h5"));
        held_free(&h);
        held_make(&h, g, ROWS, s->rank, s->size, 1);
    }
    held_free(&h);
    dcp_store_close(store);
}

static void one_after_the_other(const scratch *s, const given *g) {
    held h;
    dcp_store *store = scratch_store(s, s->comm, "flight");
    held_make(&h, g, COLUMNS, s->rank, s->size, 1);
    dcp_saving *first = start(store, 6, &h), *second = start(store, 7, &h);
    CHECK(dcp_save_is_done(first) == 1);
    SUCCEEDS(dcp_save(store, 8, h.state, GIVEN_JSON, NULL, NULL, err));
    SUCCEEDS(dcp_save_wait(second, NULL, err));
    SUCCEEDS(dcp_save_wait(first, NULL, err));
    dcp_saving *last = start(store, 9, &h);
    dcp_store_close(store); /* completes it */
    SUCCEEDS(dcp_save_wait(last, NULL, err));
    held_free(&h);
    MPI_Barrier(MPI_COMM_WORLD);
    for (char step = '6'; step <= '9'; step++) {
        char name[64];
        snprintf(name, sizeof name, "flight/step-0000000%c", step);
        scratch_load(s, s->comm, name, g, ROWS);
    }
}

/* Refused on all ranks while it is in flight on any, and possible again afterwards. */
static void refused_when_busy(const scratch *s, const given *g) {
    held h;
    dcp_error failure = {0};
    dcp_saving *saving = NULL;
    dcp_save_options options = {.size = sizeof options, .when_busy = DCP_BUSY_REFUSE};
    dcp_store *store = scratch_store(s, s->comm, "busy");
    held_make(&h, g, ROWS, s->rank, s->size, 1);
    if (!s->comm->duplicate && s->size > 1) { /* nothing happens before the fence */
        dcp_saving *first = start(store, 1, &h);
        int status = dcp_save(store, 2, h.state, NULL, &options, NULL, &failure);
        check_same_failure(status, DCP_ERR_BUSY, &failure, "in flight");
        CHECK(dcp_save_is_done(first) == DCP_ERR_STATE);
        dcp_save_fence(first);
        CHECK(dcp_save_is_done(first) == 1);
        SUCCEEDS(dcp_save_wait(first, NULL, err));
    }
    SUCCEEDS(dcp_save_async(store, 3, h.state, NULL, &options, &saving, err));
    SUCCEEDS(dcp_save_wait(saving, NULL, err));
    SUCCEEDS(dcp_save(store, 4, h.state, NULL, &options, NULL, err));
    held_free(&h);
    dcp_store_close(store);
}

static void last_progress(void *ctx, uint64_t done, uint64_t total) {
    uint64_t *seen = ctx;
    CHECK(done > seen[0] && done <= total);
    seen[0] = done;
    seen[1] = total;
}

static void progress_to_the_end(const scratch *s, const given *g) {
    held h;
    dcp_report report = DCP_REPORT_INIT;
    for (int layout = DCP_LAYOUT_GLOBAL; layout <= DCP_LAYOUT_SHARDED; layout++) {
        uint64_t seen[2] = {0};
        dcp_save_options options = {.size = sizeof options,
                                    .layout = layout,
                                    .on_progress = last_progress,
                                    .progress_ctx = seen};
        dcp_store *store = scratch_store(s, s->comm, "progress");
        held_make(&h, g, COLUMNS, s->rank, s->size, 1);
        SUCCEEDS(dcp_save(store, 1, h.state, NULL, &options, &report, err));
        CHECK(seen[0] == seen[1]);
        MPI_Allreduce(MPI_IN_PLACE, seen, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
        CHECK(seen[0] == report.bytes);
        held_free(&h);
        dcp_store_close(store);
    }
}

/* Every rank omits one tensor's rows of rank 0. */
static void failure_at_the_wait(const scratch *s, const given *g) {
    held h;
    dcp_error failure = {0};
    dcp_state *state = NULL;
    dcp_saving *saving = NULL;
    dcp_tensor t = {"/model/w", DCP_F32, 1, {100}};
    dcp_box none = {.count = {0}};
    dcp_store *store = scratch_store(s, s->comm, "flight");
    SUCCEEDS(dcp_state_create(&state, err));
    SUCCEEDS(dcp_state_add(state, &t, &none, NULL, err));
    SUCCEEDS(dcp_save_async(store, 10, state, NULL, NULL, &saving, err));
    dcp_save_fence(saving);
    int status = dcp_save_wait(saving, NULL, &failure);
    check_same_failure(status, DCP_ERR_MISMATCH, &failure, "/model/w");
    dcp_state_destroy(state);
    held_make(&h, g, ROWS, s->rank, s->size, 1);
    SUCCEEDS(dcp_save_wait(start(store, 10, &h), NULL, err));
    held_free(&h);
    dcp_store_close(store);
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    for (int threads = 1; threads >= 0; threads--) {
        if (!threads) s.comm->duplicate = NULL;
        same_file_though_memory_changes(&s, &g);
        one_after_the_other(&s, &g);
        failure_at_the_wait(&s, &g);
        refused_when_busy(&s, &g);
        progress_to_the_end(&s, &g);
    }
    given_free(&g);
    return scratch_end(&s);
}
