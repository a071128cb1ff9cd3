/* A rank that needs seconds for its part of a save is named in the report of all ranks, with its
 * host. Its boxes come from a function that sleeps, so the test does not depend on the machine;
 * files are in memory. */
#include <time.h>

#include "support/scratch.h"

enum { ROWS_OF_A_RANK = 16 << 20, SLOW = 1 }; /* whole domains, which it writes itself */

typedef struct source {
    int slow;
} source;

static int read_rows(void *ctx, uint64_t offset, uint64_t bytes, void *out, dcp_error *err) {
    source *s = ctx;
    const int is_within = offset >= ROWS_OF_A_RANK / 4 && offset < ROWS_OF_A_RANK / 2;
    (void)err;
    memset(out, 7, bytes);
    if (!s->slow || !is_within) return DCP_OK;
    nanosleep(&(struct timespec){.tv_sec = 4}, NULL);
    s->slow = 0;
    return DCP_OK;
}

/* Saves one tensor of which each rank has equally many rows. */
static dcp_report save(const scratch *s, dcp_store *store, uint64_t step, dcp_layout layout,
                       int is_slow) {
    const dcp_tensor t = {"/model/a", DCP_U8, 1, {(uint64_t)ROWS_OF_A_RANK * (uint64_t)s->size}};
    const dcp_box box = dcp_box_chunk(&t, s->rank, s->size);
    source from = {is_slow && s->rank == SLOW};
    dcp_save_options options = {.size = sizeof options, .layout = layout};
    dcp_report report = DCP_REPORT_INIT;
    dcp_state *state = NULL;
    SUCCEEDS(dcp_state_create(&state, err));
    SUCCEEDS(dcp_state_add_source(state, &t, &box, read_rows, &from, -1, err));
    SUCCEEDS(dcp_save(store, step, state, NULL, &options, &report, err));
    dcp_state_destroy(state);
    return report;
}

int main(int argc, char **argv) {
    scratch s;
    dcp_store *store = NULL;
    char dir[PATH_MAX], name[32];
    scratch_begin(&s, &argc, &argv);
    snprintf(name, sizeof name, "n%d", s.rank);
    SUCCEEDS(dcp_comm_set_host(s.comm, name, err));
    snprintf(dir, sizeof dir, "/dev/shm/%s", strrchr(s.root, '/') + 1);
    SUCCEEDS(dcp_store_open(s.comm, dir, NULL, &store, err));
    uint64_t step = 0;
    for (int layout = DCP_LAYOUT_GLOBAL; layout <= DCP_LAYOUT_SHARDED; layout++) {
        const dcp_report report = save(&s, store, ++step, (dcp_layout)layout, 1);
        CHECK(report.slow_rank == SLOW && report.slow_ratio >= 3);
        CHECK(report.slow_s >= 4 && report.slow_s - report.median_s >= 0.5);
        CHECK(strcmp(report.slow_host, s.rank == 0 ? "n1" : "") == 0);
    }
    dcp_store_close(store);
    if (s.rank == 0) CHECK(store_directory_remove(AT_FDCWD, dir) == 0);
    return scratch_end(&s);
}
