/* If the file system can, a save shares unchanged extents with the last step's file, and the file
 * is the same as one that was written completely:
 *   save_clones DIR REFERENCE          DIR is on XFS or btrfs, REFERENCE anywhere
 *   save_clones DIR REFERENCE fails    the second range that is to be shared cannot be
 * Run by save_clones.sh. */
#include "core/json.h"
#include "support/extents.h"
#include "support/scratch.h"

#define MIB ((uint64_t)1 << 20)

static const dcp_tensor tensors[] = {
    {"/files/notes", DCP_U8, 1, {100}},
    {"/model/bias", DCP_F32, 1, {300}},
    {"/model/frozen.0", DCP_F32, 2, {1024, 1024}}, /* a block */
    {"/model/frozen.1", DCP_U8, 2, {1001, 12001}}, /* three blocks, ends inside a page */
    {"/model/trained", DCP_F32, 2, {1024, 2048}},  /* two blocks */
    {"/optimizer/exp_avg/trained", DCP_F32, 2, {1024, 2048}},
    {"/optimizer/step", DCP_I64, 0, {0}},
};
enum { NOTES, BIAS, FROZEN, UNEVEN, TRAINED, MOMENT, COUNTER, N };

/* The most that can be shared: whole pages of a tensor. */
static uint64_t pages_of(uint64_t bytes) { return bytes / 4096 * 4096; }

typedef struct held_state {
    const scratch *s;
    dcp_state *state;
    unsigned char *data[N];
    uint64_t bytes[N];
} held_state;

/* Rows; the trained tensor by columns, in short runs. */
static dcp_box box_of(const scratch *s, int t) {
    if (t != TRAINED) return dcp_box_chunk(&tensors[t], s->rank, s->size);
    dcp_tensor columns = {"/model/columns", DCP_U8, 1, {tensors[t].shape[1]}};
    dcp_box cut = dcp_box_chunk(&columns, s->rank, s->size), box = dcp_box_whole(&tensors[t]);
    box.start[1] = cut.start[0];
    box.count[1] = cut.count[0];
    return box;
}

/* Dense; one tensor is stored from its last row to the first. */
static void add_memory(held_state *h, int t, const dcp_box *box) {
    const int64_t row = (int64_t)tensors[FROZEN].shape[1] * 4, strides[] = {-row, 4};
    if (t == FROZEN)
        SUCCEEDS(dcp_state_add_strided(h->state, &tensors[t], box, h->data[t] + h->bytes[t] - row,
                                       strides, err));
    else
        SUCCEEDS(dcp_state_add(h->state, &tensors[t], box, h->data[t], err));
}

static void hold(held_state *h, const scratch *s) {
    h->s = s;
    SUCCEEDS(dcp_state_create(&h->state, err));
    for (int t = 0; t < N; t++) {
        dcp_box box = box_of(s, t);
        h->bytes[t] = dcp_box_elems(&box, tensors[t].ndim) * dcp_dtype_bytes(tensors[t].dtype);
        h->data[t] = malloc(h->bytes[t] + 1);
        CHECK(h->data[t]);
        for (uint64_t i = 0; i < h->bytes[t]; i++)
            h->data[t][i] = (unsigned char)((i * 2654435761u >> 7) + (uint64_t)(t * 31 + s->rank));
        add_memory(h, t, &box);
    }
}

static void let_go(held_state *h) {
    dcp_state_destroy(h->state);
    for (int t = 0; t < N; t++) free(h->data[t]);
}

/* Changes a byte of rank 0's, the first one or in the middle. */
static void change(held_state *h, int t, int middle) {
    if (h->s->rank == 0) h->data[t][middle ? h->bytes[t] / 2 : 0] ^= 1;
}

static dcp_store *open_store(const scratch *s, const char *dir, int keep) {
    dcp_store *store = NULL;
    dcp_store_options options = {.size = sizeof options, .replace = 1, .keep = (uint32_t)keep};
    SUCCEEDS(dcp_store_open(s->comm, dir, &options, &store, err));
    return store;
}

static void step_path(char *path, const char *dir, uint64_t step) {
    snprintf(path, 512, "%s/step-%08d", dir, (int)step);
}

static void check_intact(const char *step) {
    dcp_error failure = {0};
    if (dcp_verify(step, NULL, &failure)) check_failed(__FILE__, __LINE__, failure.message);
}

static void check_about(const char *step, uint64_t cloned) {
    char *about = NULL;
    json_t *object = NULL;
    SUCCEEDS(dcp_about_read(step, &about, err));
    SUCCEEDS(core_json_parse_object(about, strlen(about), &object, err));
    CHECK((uint64_t)json_integer_value(json_object_get(object, "cloned")) == cloned);
    json_decref(object);
    free(about);
}

static int same_files(const char *one, const char *two) {
    char command[2048];
    snprintf(command, sizeof command, "for f in %s/*.h5; do cmp $f %s/${f##*/} || exit 1; done",
             one, two);
    return system(command) == 0;
}

/* Saves into `store`, and into a new one in the reference folder. Checks that the bytes are the
 * same and intact, and that as many are shared as the report and about.json say. Returns how many
 * were shared. */
static uint64_t save_both(const held_state *h, dcp_store *store, const char *dir,
                          const char *reference, uint64_t step, dcp_layout layout) {
    char here[512], there[512];
    dcp_report report = DCP_REPORT_INIT;
    dcp_save_options options = {.size = sizeof options, .layout = layout};
    SUCCEEDS(dcp_save(store, step, h->state, "{}", &options, &report, err));
    dcp_store *fresh = open_store(h->s, reference, 1);
    SUCCEEDS(dcp_save(fresh, step, h->state, "{}", &options, NULL, err));
    dcp_store_close(fresh);
    step_path(here, dir, step);
    step_path(there, reference, step);
    if (h->s->rank == 0) {
        CHECK(same_files(here, there));
        check_intact(here);
        check_about(here, report.cloned_bytes);
    }
    if (h->s->rank == 0 && layout == DCP_LAYOUT_GLOBAL) {
        strcat(here, "/state.h5");
        CHECK(extents_shared_bytes(here) == report.cloned_bytes);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    return report.cloned_bytes;
}

static uint64_t whole_pages_in_all(void) {
    uint64_t bytes = 0;
    for (int t = 0; t < N; t++) {
        uint64_t size = dcp_tensor_bytes(&tensors[t]);
        if (size >= 64 << 10) bytes += pages_of(size);
    }
    return bytes;
}

static void remove_step(const scratch *s, const char *dir, uint64_t step) {
    char path[512];
    step_path(path, dir, step);
    if (s->rank == 0) CHECK(store_directory_remove(AT_FDCWD, path) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void shares_what_did_not_change(held_state *h, const char *dir, const char *reference) {
    char path[512];
    uint64_t all = whole_pages_in_all();
    dcp_store *store = open_store(h->s, dir, 0);
    CHECK(save_both(h, store, dir, reference, 1, DCP_LAYOUT_GLOBAL) == 0);
    change(h, TRAINED, 0); /* the first of two blocks */
    change(h, MOMENT, 0);
    change(h, BIAS, 0);
    change(h, COUNTER, 0);
    CHECK(save_both(h, store, dir, reference, 2, DCP_LAYOUT_GLOBAL) == all - 8 * MIB);
    remove_step(h->s, dir, 1);
    step_path(path, dir, 2);
    if (h->s->rank == 0) check_intact(path);
    change(h, FROZEN, 1);
    CHECK(save_both(h, store, dir, reference, 3, DCP_LAYOUT_GLOBAL) == all - 4 * MIB);
    /* a tensor that changes completely is not compared again until it stops changing */
    CHECK(save_both(h, store, dir, reference, 4, DCP_LAYOUT_GLOBAL) == all - 4 * MIB);
    CHECK(save_both(h, store, dir, reference, 5, DCP_LAYOUT_GLOBAL) == all);
    remove_step(h->s, dir, 5);
    CHECK(save_both(h, store, dir, reference, 6, DCP_LAYOUT_GLOBAL) == 0);
    dcp_store_close(store);
}

static int refuse(void *ctx, uint64_t offset, uint64_t bytes, void *out, dcp_error *err) {
    (void)ctx, (void)offset, (void)err;
    memset(out, 0, bytes);
    return DCP_OK;
}

/* The last step's file was written to in the meantime: nothing of it is used. Nor for what is not
 * in memory. */
static void shares_with_nothing_else(held_state *h, const char *dir, const char *reference) {
    char path[512];
    held_state zeros = {.s = h->s};
    dcp_store *store = open_store(h->s, dir, 2);
    save_both(h, store, dir, reference, 10, DCP_LAYOUT_GLOBAL);
    step_path(path, dir, 10);
    strcat(path, "/state.h5");
    if (h->s->rank == 0) {
        int fd = open(path, O_WRONLY);
        CHECK(fd >= 0 && pwrite(fd, "damage", 6, 3 << 20) == 6);
        close(fd);
    }
    CHECK(save_both(h, store, dir, reference, 11, DCP_LAYOUT_GLOBAL) == 0);
    CHECK(save_both(h, store, dir, reference, 12, DCP_LAYOUT_GLOBAL) > 0);
    SUCCEEDS(dcp_state_create(&zeros.state, err));
    for (int t = 0; t < N; t++) {
        dcp_box box = box_of(h->s, t);
        SUCCEEDS(dcp_state_add_source(zeros.state, &tensors[t], &box, refuse, NULL, -1, err));
    }
    CHECK(save_both(&zeros, store, dir, reference, 13, DCP_LAYOUT_GLOBAL) == 0);
    CHECK(save_both(&zeros, store, dir, reference, 14, DCP_LAYOUT_GLOBAL) == 0);
    dcp_state_destroy(zeros.state);
    dcp_store_close(store);
}

/* Unchanged data are written again occasionally, but not all at once. */
static void writes_anew_at_times(held_state *h, const char *dir, const char *reference) {
    uint64_t all = whole_pages_in_all(), least = all;
    int fewer = 0;
    dcp_store *store = open_store(h->s, dir, 2);
    (void)reference;
    for (uint64_t step = 20; step < 44; step++) {
        dcp_report report = DCP_REPORT_INIT;
        SUCCEEDS(dcp_save(store, step, h->state, "{}", NULL, &report, err));
        if (step == 20) continue;
        fewer += report.cloned_bytes < all;
        if (report.cloned_bytes < least) least = report.cloned_bytes;
    }
    CHECK(fewer >= 4 && least > 0 && least < all);
    dcp_store_close(store);
}

static void shares_in_shards(held_state *h, const char *dir, const char *reference) {
    dcp_store *store = open_store(h->s, dir, 2);
    CHECK(save_both(h, store, dir, reference, 70, DCP_LAYOUT_SHARDED) == 0);
    change(h, TRAINED, 0);
    uint64_t cloned = save_both(h, store, dir, reference, 71, DCP_LAYOUT_SHARDED);
    CHECK(cloned > 16 * MIB && cloned < whole_pages_in_all());
    CHECK(save_both(h, store, dir, reference, 72, DCP_LAYOUT_GLOBAL) == 0);
    dcp_store_close(store);
}

/* A store that was opened again shares with the step that was loaded. */
static void shares_after_a_restart(held_state *h, const char *dir, const char *reference) {
    uint64_t all = whole_pages_in_all();
    for (int layout = DCP_LAYOUT_GLOBAL; layout <= DCP_LAYOUT_SHARDED; layout++) {
        uint64_t step = layout ? 95 : 90;
        dcp_store *store = open_store(h->s, dir, 2);
        save_both(h, store, dir, reference, step, (dcp_layout)layout);
        dcp_store_close(store);
        MPI_Barrier(MPI_COMM_WORLD);
        store = open_store(h->s, dir, 2);
        SUCCEEDS(dcp_store_continue_from(store, step, err));
        SUCCEEDS(dcp_store_mark_intact(store, step, err));
        change(h, TRAINED, 0);
        uint64_t cloned = save_both(h, store, dir, reference, step + 1, (dcp_layout)layout);
        CHECK(layout ? cloned > 16 * MIB : cloned == all - 4 * MIB);
        dcp_store_close(store);
    }
}

/* Only changed data need space; if there is too little even for them, the save fails as usual. */
static void fits_where_all_would_not(held_state *h, const char *dir, const char *reference) {
    char path[512];
    dcp_error failure = {0};
    dcp_store *store = open_store(h->s, dir, 0);
    save_both(h, store, dir, reference, 80, DCP_LAYOUT_GLOBAL);
    snprintf(path, sizeof path, "%s/filler", dir);
    int fd = h->s->rank == 0 ? extents_fill(path, 18 * MIB) : -1;
    MPI_Barrier(MPI_COMM_WORLD);
    change(h, TRAINED, 0);
    CHECK(save_both(h, store, dir, reference, 81, DCP_LAYOUT_GLOBAL) > 16 * MIB);
    for (int t = 0; t < N; t++)
        for (uint64_t i = 0; i < h->bytes[t]; i++) h->data[t][i] ^= 0x40;
    int status = dcp_save(store, 82, h->state, "{}", NULL, NULL, &failure);
    check_same_failure(status, DCP_ERR_NO_SPACE, &failure, "reserve space for");
    if (fd >= 0) CHECK(close(fd) == 0 && unlink(path) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(save_both(h, store, dir, reference, 82, DCP_LAYOUT_GLOBAL) == 0);
    dcp_store_close(store);
}

/* Under strace, which makes the call fail: what could not be shared is written. */
static void writes_what_it_cannot_share(held_state *h, const char *dir, const char *reference) {
    dcp_store *store = open_store(h->s, dir, 2);
    save_both(h, store, dir, reference, 1, DCP_LAYOUT_GLOBAL);
    uint64_t cloned = save_both(h, store, dir, reference, 2, DCP_LAYOUT_GLOBAL);
    CHECK(cloned > 0 && cloned < whole_pages_in_all());
    CHECK(save_both(h, store, dir, reference, 3, DCP_LAYOUT_GLOBAL) == whole_pages_in_all());
    dcp_store_close(store);
}

static void share(held_state *h, const char *parent, const char *reference) {
    char store[6][256];
    for (int i = 0; i < 6; i++) snprintf(store[i], sizeof store[i], "%s/store-%d", parent, i);
    shares_what_did_not_change(h, store[0], reference);
    shares_with_nothing_else(h, store[1], reference);
    writes_anew_at_times(h, store[2], reference);
    shares_in_shards(h, store[3], reference);
    shares_after_a_restart(h, store[4], reference);
    for (int i = 0; i < 5 && h->s->rank == 0; i++)
        CHECK(store_directory_remove(AT_FDCWD, store[i]) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    fits_where_all_would_not(h, store[5], reference);
}

int main(int argc, char **argv) {
    scratch s;
    held_state h;
    if (argc < 3) return 2;
    scratch_begin(&s, &argc, &argv);
    hold(&h, &s);
    if (argc > 3)
        writes_what_it_cannot_share(&h, argv[1], argv[2]);
    else
        share(&h, argv[1], argv[2]);
    let_go(&h);
    return scratch_end(&s);
}
