/* A save warns if an optimizer's update did not reach what is saved: no byte changed since the last
 * step, or only the parameters, or only the optimizer's state. It counts unchanged tensors. */
#include "support/scratch.h"

typedef struct lines {
    int n;
    char last[1024];
} lines;

static void keep_warning(void *ctx, dcp_log_level level, const char *line) {
    lines *l = ctx;
    if (level != DCP_LOG_WARNING || strncmp(line, "step ", 5)) return;
    l->n++;
    snprintf(l->last, sizeof l->last, "%s", line);
}

/* Six tensors, two of them without bytes or outside the state; each rank holds rows of them. */
enum { ROWS_OF_W = 3000, COLUMNS_OF_W = 700, HELD = 5 };
static const dcp_tensor tensors[HELD + 1] = {
    {"/files/notes", DCP_U8, 2, {7, 3}},
    {"/model/bias", DCP_F32, 2, {9, 2}},
    {"/model/weight", DCP_F32, 2, {ROWS_OF_W, COLUMNS_OF_W}}, /* several blocks */
    {"/optimizer/exp_avg/weight", DCP_F32, 2, {ROWS_OF_W, COLUMNS_OF_W}},
    {"/optimizer/step", DCP_I64, 0, {0}},
    {"/model/empty", DCP_F32, 2, {0, 4}},
};
enum { FILES, BIAS, WEIGHT, MOMENT, COUNTER };

typedef struct run {
    const scratch *s;
    lines lines;
    dcp_store *store;
    dcp_state *state;
    float *data[HELD];
    uint64_t held[HELD]; /* in bytes */
    int async;
    dcp_layout layout;
    uint64_t step;
    dcp_report report;
} run;

static void begin(run *r, const scratch *s, int async, dcp_layout layout) {
    char dir[PATH_MAX];
    *r = (run){.s = s, .async = async, .layout = layout};
    snprintf(dir, sizeof dir, "%s/store-%d-%d", s->root, async, (int)layout);
    dcp_store_options options = {
        .size = sizeof options, .replace = 1, .keep = 2, .log = keep_warning, .log_ctx = &r->lines};
    SUCCEEDS(dcp_store_open(s->comm, dir, &options, &r->store, err));
    SUCCEEDS(dcp_state_create(&r->state, err));
    for (int t = 0; t <= HELD; t++) {
        dcp_box box = dcp_box_chunk(&tensors[t], s->rank, s->size);
        uint64_t bytes = dcp_box_elems(&box, tensors[t].ndim) * dcp_dtype_bytes(tensors[t].dtype);
        float *data = calloc(1, bytes + 8);
        CHECK(data);
        SUCCEEDS(dcp_state_add(r->state, &tensors[t], &box, data, err));
        if (t < HELD) {
            r->data[t] = data;
            r->held[t] = bytes;
        } else {
            free(data);
        }
    }
}

static void end(run *r) {
    dcp_store_close(r->store);
    dcp_state_destroy(r->state);
    for (int t = 0; t < HELD; t++) free(r->data[t]);
}

/* Changes one byte, the last one, of the last rank that holds any. */
static void change(run *r, int t) {
    int mine = r->held[t] ? r->s->rank : -1, last;
    MPI_Allreduce(&mine, &last, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (r->s->rank == last) ((unsigned char *)r->data[t])[r->held[t] - 1] ^= 0x10;
}

/* Saves, and checks that `text` is part of the only warning on rank 0; NULL: there is none. */
static void save(run *r, uint64_t step, uint64_t unchanged, const char *text) {
    dcp_save_options options = {.size = sizeof options, .layout = r->layout};
    dcp_saving *saving = NULL;
    r->lines = (lines){0};
    r->report = (dcp_report){.size = sizeof(dcp_report), .unchanged = 99};
    if (r->async) {
        SUCCEEDS(dcp_save_async(r->store, step, r->state, NULL, &options, &saving, err));
        SUCCEEDS(dcp_save_wait(saving, &r->report, err));
    } else {
        SUCCEEDS(dcp_save(r->store, step, r->state, NULL, &options, &r->report, err));
    }
    if (r->report.unchanged != unchanged || r->lines.n != (text && r->s->rank == 0))
        fprintf(stderr, "step %d: %d unchanged, %d warnings: %s\n", (int)step,
                (int)r->report.unchanged, r->lines.n, r->lines.last);
    CHECK(r->report.unchanged == unchanged);
    CHECK(r->lines.n == (text && r->s->rank == 0));
    CHECK(!r->lines.n || strstr(r->lines.last, text));
}

static void warns_when_it_should(run *r) {
    save(r, 10, 0, NULL); /* nothing to compare with */
    save(r, 11, 5, "step 11: no byte of any tensor differs from step 10");
    save(r, 11, 5, NULL); /* the same step again */
    change(r, FILES);
    save(r, 12, 4, "step 12: no byte of any tensor differs from step 11");
    change(r, WEIGHT);
    change(r, MOMENT);
    save(r, 13, 3, NULL);
    change(r, MOMENT);
    change(r, COUNTER);
    save(r, 14, 3,
         "under /optimizer changed since step 13, but no byte under /model did: the update did not "
         "reach the parameters that are saved, or it was zero, as with a learning rate of 0");
    change(r, BIAS);
    save(r, 15, 4, "under /model changed since step 14, but no byte under /optimizer did");
    change(r, BIAS);
    change(r, COUNTER);
    save(r, 20, 3, NULL);
}

static int refuse(void *ctx, uint64_t offset, uint64_t bytes, void *out, dcp_error *err) {
    (void)ctx, (void)offset, (void)bytes, (void)out, (void)err;
    return DCP_ERR_IO;
}

/* A save that failed while it wrote other content: the next one compares with what was
 * published. */
static void a_failed_save_does_not_count(run *r) {
    dcp_state *state = NULL;
    dcp_error failure = {0};
    dcp_save_options options = {.size = sizeof options, .layout = r->layout};
    SUCCEEDS(dcp_state_create(&state, err));
    for (int t = 0; t <= HELD; t++) {
        dcp_box box = dcp_box_chunk(&tensors[t], r->s->rank, r->s->size);
        SUCCEEDS(dcp_state_add_source(state, &tensors[t], &box, refuse, NULL, -1, err));
    }
    CHECK(dcp_save(r->store, 21, state, NULL, &options, NULL, &failure) == DCP_ERR_IO);
    dcp_state_destroy(state);
    change(r, WEIGHT);
    save(r, 21, 4, "step 21: tensors under /model changed since step 20");
}

/* Going back to an earlier step is not an update. */
static void going_back_is_no_update(run *r) {
    SUCCEEDS(dcp_store_continue_from(r->store, 15, err));
    save(r, 16, 5, NULL);
    save(r, 17, 5, "step 17: no byte of any tensor differs from step 16");
}

int main(int argc, char **argv) {
    scratch s;
    scratch_begin(&s, &argc, &argv);
    for (int async = 0; async < 2; async++)
        for (int layout = DCP_LAYOUT_GLOBAL; layout <= DCP_LAYOUT_SHARDED; layout++) {
            run r;
            begin(&r, &s, async, (dcp_layout)layout);
            warns_when_it_should(&r);
            a_failed_save_does_not_count(&r);
            going_back_is_no_update(&r);
            end(&r);
            MPI_Barrier(MPI_COMM_WORLD);
        }
    return scratch_end(&s);
}
