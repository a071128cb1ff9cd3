/* Engine cufile, over a stand-in for the library: the same files as from memory, whole pages of
 * long runs by cuFile alone; loads into other boxes; in flight it reads no memory after the fence,
 * and copies what is left once somebody waits there. Where it cannot be used, or fails, that is
 * said on all ranks, and wrong bytes are found by a load. */
#include <errno.h>
#include <semaphore.h>
#include <sys/syscall.h>

#include "comm/comm.h"
#include "on_device.h"
#include "stand_in_cufile.h"

#define ROOM ((uint64_t)64 << 20)

const dcp_device_files *stand_in_cufile_files(void);
const char *stand_in_cufile_text(int code);
int stand_in_enter(void *ctx);

int stand_in_enter(void *ctx) {
    (void)ctx;
    stand_in_entered = 1;
    return 0;
}

static const char *error_text(void *ctx, int code) {
    (void)ctx;
    const char *text = stand_in_cufile_text(code);
    return text ? text : "no error of cuFile's";
}

/* Bytes that cuFile has moved so far. */
static uint64_t moved(void) { return stand_in_gds.read + stand_in_gds.written; }

static void any_boxes(const scratch *s, stand_in *d, const given *g) {
    static const struct {
        scheme saved, loaded;
        dcp_layout layout;
        size_t in_memory;
    } cases[] = {
        {ROWS, COLUMNS, DCP_LAYOUT_GLOBAL, 0},
        {STRIPES, HALO, DCP_LAYOUT_GLOBAL, 3},
        {ROWS, MESH, DCP_LAYOUT_SHARDED, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        on_device o;
        char one[100], two[100], file[64] = "step-00000005/state.h5", dir[PATH_MAX];
        dcp_report report = {0};
        dcp_checkpoint *ckpt = NULL;
        dcp_save_options options = {.layout = cases[i].layout, .engine = DCP_ENGINE_CUFILE};
        const dcp_load_options back = {.engine = DCP_ENGINE_CUFILE};
        dcp_store *store = scratch_store(s, s->comm, "device");
        on_device_make(&o, d, g, cases[i].saved, s->rank, s->size, 1, cases[i].in_memory);
        uint64_t before = stand_in_gds.written;
        for (int again = i == 0; again >= 0; again--) /* into a new file, and over an old one */
            SUCCEEDS(dcp_save(store, 5, o.state, GIVEN_JSON, &options, &report, err));
        CHECK(report.engine == DCP_ENGINE_CUFILE && (i == 1 || stand_in_gds.written > before));
        dcp_store_close(store);
        on_device_free(&o);
        scratch_save(s, s->comm, "plain", g, cases[i].saved, cases[i].layout);
        MPI_Barrier(MPI_COMM_WORLD);
        if (cases[i].layout == DCP_LAYOUT_SHARDED)
            snprintf(file, sizeof file, "step-00000005/shard-00000-of-%05d.h5", s->size);
        snprintf(one, sizeof one, "device/%s", file);
        snprintf(two, sizeof two, "plain/%s", file);
        CHECK(scratch_same(s, one, two));
        snprintf(dir, sizeof dir, "%s/device", s->root);
        SUCCEEDS(dcp_checkpoint_open(s->comm, dir, &ckpt, err));
        on_device_make(&o, d, g, cases[i].loaded, s->rank, s->size, 0, cases[i].in_memory);
        SUCCEEDS(dcp_load_with(ckpt, o.state, &back, &report, err));
        CHECK(report.engine == DCP_ENGINE_CUFILE && on_device_is_given(&o, g));
        CHECK(!stand_in_gds.handles && !d->pinned);
        on_device_free(&o);
        dcp_checkpoint_close(ckpt);
    }
}

/* Tensors of which each rank holds as many whole pages: nothing is left for the other ways. */
enum { TENSORS = 24, BYTES = 150 * 4096 };

typedef struct pages {
    dcp_state *state;
    unsigned char *at; /* on the device */
    stand_in *device;
} pages;

static void pages_make(pages *p, const scratch *s, stand_in *d) {
    char path[32];
    stand_in_clear(d);
    *p = (pages){.device = d, .at = stand_in_alloc(d, TENSORS * BYTES + TENSORS, 5)};
    SUCCEEDS(dcp_state_create(&p->state, err));
    for (int i = 0; i < TENSORS; i++) {
        snprintf(path, sizeof path, "/model/w%02d", i);
        const dcp_tensor t = {path, DCP_U8, 1, {(uint64_t)BYTES * (uint64_t)s->size}};
        const dcp_box box = dcp_box_chunk(&t, s->rank, s->size);
        unsigned char *at = p->at + i * (BYTES + 1);
        SUCCEEDS(dcp_state_add_device(p->state, &t, &box, &d->device, at, err));
    }
}

static void pages_fill(const scratch *s, unsigned char *out) {
    for (int i = 0; i < TENSORS * (BYTES + 1); i++) out[i] = (unsigned char)(i / 7 * 31 + s->rank);
}

static void straight(const scratch *s, stand_in *d) {
    pages p;
    char dir[PATH_MAX];
    dcp_checkpoint *ckpt = NULL;
    dcp_save_options options = {.engine = DCP_ENGINE_CUFILE};
    const dcp_load_options back = {.engine = DCP_ENGINE_CUFILE};
    dcp_store *store = scratch_store(s, s->comm, "pages");
    pages_make(&p, s, d);
    unsigned char *bytes = malloc(TENSORS * (BYTES + 1)), *seen = stand_in_see(d, p.at);
    CHECK(bytes);
    pages_fill(s, bytes);
    memset(seen, 0x11, TENSORS * (BYTES + 1));
    stand_in_launch(d, p.at, bytes, TENSORS * (BYTES + 1)); /* done before the save's first call */
    uint64_t before = moved(), copies = d->calls[STAND_IN_TO_HOST] + d->calls[STAND_IN_TO_DEVICE];
    SUCCEEDS(dcp_save(store, 1, p.state, NULL, &options, NULL, err));
    CHECK(moved() - before == TENSORS * BYTES);
    dcp_store_close(store);
    snprintf(dir, sizeof dir, "%s/pages", s->root);
    SUCCEEDS(dcp_checkpoint_open(s->comm, dir, &ckpt, err));
    stand_in_launch(d, p.at, seen, TENSORS * (BYTES + 1)); /* does not come after the load */
    memset(seen, 0x22, TENSORS * (BYTES + 1));
    SUCCEEDS(dcp_load_with(ckpt, p.state, &back, NULL, err));
    CHECK(moved() - before == 2 * TENSORS * BYTES);
    CHECK(d->calls[STAND_IN_TO_HOST] + d->calls[STAND_IN_TO_DEVICE] == copies);
    for (int i = 0; i < TENSORS; i++)
        CHECK(memcmp(seen + i * (BYTES + 1), bytes + i * (BYTES + 1), BYTES) == 0);
    dcp_checkpoint_close(ckpt);
    dcp_state_destroy(p.state);
    free(bytes);
}

/* The save's thread, after its first round: until the program's thread waits at the fence. */
static void until_awaited(void *ctx, uint64_t done, uint64_t total) {
    char path[64], text[512] = "";
    snprintf(path, sizeof path, "/proc/self/task/%ld/stat", *(long *)ctx);
    while (done < total) {
        FILE *f = fopen(path, "r");
        CHECK(f && fgets(text, sizeof text, f));
        fclose(f);
        const char *name_end = strrchr(text, ')');
        if (name_end && name_end[2] == 'S') return;
    }
}

static void fence_copies_the_rest(const scratch *s, stand_in *d) {
    pages p;
    dcp_saving *saving = NULL;
    long self = syscall(SYS_gettid);
    dcp_save_options options = {
        .engine = DCP_ENGINE_CUFILE, .on_progress = until_awaited, .progress_ctx = &self};
    dcp_store *store = scratch_store(s, s->comm, "flight");
    pages_make(&p, s, d);
    pages_fill(s, stand_in_see(d, p.at));
    uint64_t before = moved(), copies = d->calls[STAND_IN_TO_HOST];
    SUCCEEDS(dcp_save_async(store, 1, p.state, NULL, &options, &saving, err));
    dcp_save_fence(saving);
    memset(stand_in_see(d, p.at), 0x44, TENSORS * (BYTES + 1));
    SUCCEEDS(dcp_save_wait(saving, NULL, err));
    CHECK(moved() - before < TENSORS * BYTES && d->calls[STAND_IN_TO_HOST] > copies);
    dcp_store_close(store);
    dcp_state_destroy(p.state);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(scratch_same(s, "flight/step-00000001/state.h5", "pages/step-00000001/state.h5"));
}

static void refusals(const scratch *s, stand_in *d) {
    pages p;
    dcp_error failure;
    dcp_save_options options = {.engine = DCP_ENGINE_CUFILE};
    dcp_store *store = scratch_store(s, s->comm, "refused");
    const dcp_tensor t = {"/model/w", DCP_U8, 1, {8u * (uint64_t)s->size}};
    const dcp_box box = dcp_box_chunk(&t, s->rank, s->size);
    dcp_state *state = NULL;
    SUCCEEDS(dcp_state_create(&state, err));
    SUCCEEDS(dcp_state_add(state, &t, &box, (unsigned char[8]){0}, err));
    int status = dcp_save(store, 1, state, NULL, &options, NULL, &failure);
    check_same_failure(status, DCP_ERR_UNSUPPORTED, &failure, "no box of this rank");
    dcp_state_destroy(state);
    pages_make(&p, s, d);
    const dcp_device_files *files = d->device.files;
    if (s->rank == s->size - 1) d->device.files = NULL;
    status = dcp_save(store, 1, p.state, NULL, &options, NULL, &failure);
    check_same_failure(status, DCP_ERR_UNSUPPORTED, &failure,
                       "does not read and write files itself");
    d->device.files = files;
    if (s->rank == s->size - 1) stand_in_gds.driver_fails = 5001;
    status = dcp_save(store, 1, p.state, NULL, &options, NULL, &failure);
    check_same_failure(status, DCP_ERR_UNSUPPORTED, &failure, "nvidia-fs driver is not loaded");
    stand_in_gds.driver_fails = 0;
    SUCCEEDS(dcp_save(store, 1, p.state, NULL, &options, NULL, err));
    dcp_store_close(store);
    dcp_state_destroy(p.state);
}

static void mend(void) {
    stand_in_gds.register_fails = 0;
    stand_in_gds.fails_in = stand_in_gds.flips_in = -1;
}

/* On the last rank, of a save or a load of what is in "pages". */
static int try(const scratch *s, const pages *p, int writing, dcp_error *failure) {
    char dir[PATH_MAX];
    dcp_checkpoint *ckpt = NULL;
    const dcp_save_options options = {.engine = DCP_ENGINE_CUFILE};
    const dcp_load_options back = {.engine = DCP_ENGINE_CUFILE};
    if (writing) {
        dcp_store *store = scratch_store(s, s->comm, "pages");
        int status = dcp_save(store, 2, p->state, NULL, &options, NULL, failure);
        dcp_store_close(store);
        return status;
    }
    snprintf(dir, sizeof dir, "%s/pages", s->root);
    SUCCEEDS(dcp_checkpoint_open(s->comm, dir, &ckpt, err));
    int status = dcp_load_with(ckpt, p->state, &back, NULL, failure);
    dcp_checkpoint_close(ckpt);
    return status;
}

static void failures(const scratch *s, stand_in *d) {
    static const struct {
        int writing, register_fails, fails_in, fails_with, status;
        const char *text;
    } cases[] = {
        {1, 5020, -1, 0, DCP_ERR_DEVICE, "state.h5: fd direct IO not set"},
        {0, 5020, -1, 0, DCP_ERR_DEVICE, "state.h5: fd direct IO not set"},
        {1, 0, 3, 5044, DCP_ERR_DEVICE, "stand-in:0: /model/w"},
        {1, 0, 20, -ENOSPC, DCP_ERR_NO_SPACE, "state.h5"},
        {0, 0, 17, 5044, DCP_ERR_DEVICE, "cufile io error"},
        {0, 0, 0, -EIO, DCP_ERR_IO, "read "},
    };
    pages p;
    dcp_error failure;
    pages_make(&p, s, d);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (s->rank == s->size - 1) {
            stand_in_gds.register_fails = cases[i].register_fails;
            stand_in_gds.fails_with = cases[i].fails_with;
            stand_in_gds.fails_in = cases[i].fails_in;
        }
        int status = try(s, &p, cases[i].writing, &failure);
        check_same_failure(status, cases[i].status, &failure, cases[i].text);
        CHECK(failure.rank == s->size - 1 && !stand_in_gds.handles);
        mend();
        SUCCEEDS(try(s, &p, 0, err));
    }
    for (int writing = 0; writing < 2; writing++) {
        if (s->rank == s->size - 1) stand_in_gds.flips_in = 5;
        if (writing) SUCCEEDS(try(s, &p, 1, err));
        check_same_failure(try(s, &p, 0, &failure), DCP_ERR_CORRUPT, &failure, "/model/w");
        mend();
    }
    dcp_state_destroy(p.state);
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    stand_in d;
    scratch_begin(&s, &argc, &argv);
    if (!scratch_takes_direct(&s)) {
        printf("%s takes no O_DIRECT, which cuFile needs\n", s.root);
        scratch_end(&s);
        return 77;
    }
    given_make(&g, 0);
    stand_in_make(&d, ROOM);
    d.device.files = stand_in_cufile_files();
    d.device.error_text = error_text;
    stand_in_gds.memory = d.memory;
    stand_in_gds.behind = d.behind;
    stand_in_gds.room = d.room;
    refusals(&s, &d);
    straight(&s, &d);
    fence_copies_the_rest(&s, &d);
    failures(&s, &d);
    any_boxes(&s, &d, &g);
    stand_in_free(&d);
    given_free(&g);
    return scratch_end(&s);
}
