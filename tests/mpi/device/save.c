/* Saves from a device's memory:
 * - The files are the same as from memory, whatever the boxes, layout and engine.
 * - They contain what the program launched before the save, but not what it changes after the
 *   fence, or with a copy after the call. The fence waits for no disk.
 * - Page-locked memory is bounded. Neither a failure of the disk nor a second store needs more.
 * - Failures of the device and wrong copies are reported on all ranks, and older steps are kept. */
#include <semaphore.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>

#include "comm/comm.h"
#include "dcp/tiers.h"
#include "on_device.h"

#define ROOM ((uint64_t)64 << 20)

static void same_files(const scratch *s, stand_in *d, const given *g) {
    static const struct {
        scheme how;
        dcp_layout layout;
        dcp_engine engine;
        size_t in_memory;
    } cases[] = {
        {ROWS, DCP_LAYOUT_GLOBAL, DCP_ENGINE_DIRECT, 0},
        {COLUMNS, DCP_LAYOUT_GLOBAL, DCP_ENGINE_DIRECT, 0},
        {STRIPES, DCP_LAYOUT_GLOBAL, DCP_ENGINE_DIRECT, 3},
        {PAIRS, DCP_LAYOUT_GLOBAL, DCP_ENGINE_MPIO, 0},
        {MESH, DCP_LAYOUT_SHARDED, DCP_ENGINE_DIRECT, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        on_device o;
        char one[100], two[100], file[64] = "step-00000005/state.h5";
        dcp_save_options options = {.size = sizeof options,
                                    .layout = cases[i].layout,
                                    .engine = cases[i].engine,
                                    .staging_bytes = 1};
        dcp_store *store = scratch_store(s, s->comm, "device");
        on_device_make(&o, d, g, cases[i].how, s->rank, s->size, 1, cases[i].in_memory);
        for (int again = i == 0; again >= 0; again--)
            SUCCEEDS(dcp_save(store, 5, o.state, GIVEN_JSON, &options, NULL, err));
        dcp_store_close(store);
        on_device_free(&o);
        CHECK(d->calls[STAND_IN_TO_HOST] > 0 && d->pinned_most < (9u << 20));
        scratch_save(s, s->comm, "plain", g, cases[i].how, cases[i].layout);
        MPI_Barrier(MPI_COMM_WORLD);
        if (cases[i].layout == DCP_LAYOUT_SHARDED)
            snprintf(file, sizeof file, "step-00000005/shard-00000-of-%05d.h5", s->size);
        snprintf(one, sizeof one, "device/%s", file);
        snprintf(two, sizeof two, "plain/%s", file);
        CHECK(scratch_same(s, one, two));
    }
}

/* Replicas on devices, of which the last rank's differs: the device itself sums those that are not
 * written, and none of them are copied. */
static void replicas_differ(const scratch *s, stand_in *d, const given *g) {
    on_device o;
    dcp_error failure = {0};
    size_t i = 0;
    dcp_store *store = scratch_store(s, s->comm, "replicas");
    on_device_make(&o, d, g, COPIES, s->rank, s->size, 1, 0);
    d->calls[STAND_IN_TO_HOST] = 0;
    const dcp_save_options lowest = {.size = sizeof lowest, .replicas = DCP_REPLICAS_WARN};
    SUCCEEDS(dcp_save(store, 1, o.state, GIVEN_JSON, &lowest, NULL, err));
    CHECK((d->calls[STAND_IN_TO_HOST] == 0) == (s->rank > 0));
    SUCCEEDS(dcp_save(store, 1, o.state, GIVEN_JSON, NULL, NULL, err)); /* they share the writing */
    CHECK(d->calls[STAND_IN_TO_HOST] > 0 || s->rank > 2);
    while (strcmp(g->tensors[o.h.boxes[i].tensor].path, "/model/rows") != 0) i++;
    if (s->rank == s->size - 1) stand_in_see(d, o.at[i])[4 << 20] ^= 1;
    int status = dcp_save(store, 2, o.state, GIVEN_JSON, NULL, NULL, &failure);
    if (s->size == 1) CHECK(status == DCP_OK);
    if (s->size > 1) check_same_failure(status, DCP_ERR_MISMATCH, &failure, "in its block 1 ");
    dcp_store_close(store);
    on_device_free(&o);
}

/* Checksums of what is on devices, of long runs and of short ones. */
static void proves_the_same(const scratch *s, stand_in *d, const given *g) {
    static const scheme schemes[] = {ROWS, COLUMNS, COPIES};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        on_device o;
        held h;
        dcp_proof *there = NULL, *here = NULL;
        on_device_make(&o, d, g, schemes[i], s->rank, s->size, 1, 3);
        held_make(&h, g, schemes[i], s->rank, s->size, 1);
        SUCCEEDS(dcp_prove(s->comm, o.state, NULL, &there, err));
        SUCCEEDS(dcp_prove(s->comm, h.state, NULL, &here, err));
        CHECK(dcp_proof_id(there) == dcp_proof_id(here));
        dcp_proof_destroy(there);
        dcp_proof_destroy(here);
        held_free(&h);
        on_device_free(&o);
    }
}

/* Memory that holds the state only once the program's launches are done, and no longer after the
 * fence. */
static void between_launch_and_fence(const scratch *s, stand_in *d, const given *g) {
    on_device o;
    dcp_saving *saving = NULL;
    dcp_store *store = scratch_store(s, s->comm, "flight");
    on_device_make(&o, d, g, ROWS, s->rank, s->size, 1, 0);
    SUCCEEDS(dcp_save_prepare(store, o.state, NULL, err));
    const uint64_t opened = d->calls[STAND_IN_OPEN], taken = d->calls[STAND_IN_ALLOC];
    for (int again = 0; again < 2; again++) {
        for (size_t i = 0; i < o.h.n; i++) {
            uint64_t bytes = box_bytes(g, &o.h.boxes[i]);
            if (!bytes) continue;
            memset(stand_in_see(d, o.at[i]), 0x11, bytes);
            stand_in_launch(d, o.at[i], o.h.boxes[i].data, bytes);
        }
        SUCCEEDS(dcp_save_async(store, 5, o.state, GIVEN_JSON, NULL, &saving, err));
        dcp_save_fence(saving);
        memset(d->behind, 0x22, d->used);
        SUCCEEDS(dcp_save_wait(saving, NULL, err));
        MPI_Barrier(MPI_COMM_WORLD);
        CHECK(scratch_same(s, "flight/step-00000005/state.h5", "rows/step-00000005/state.h5"));
    }
    CHECK(d->calls[STAND_IN_OPEN] == opened && d->calls[STAND_IN_ALLOC] == taken);
    dcp_store_close(store);
    on_device_free(&o);
}

/* With a copy: the memory may change after the call. Replicas that another rank writes are
 * summed by the device, whatever is copied. */
static void until_the_call_returns(const scratch *s, stand_in *d, const given *g, scheme how,
                                   dcp_layout layout, dcp_replicas replicas) {
    on_device o;
    dcp_saving *saving = NULL;
    char file[64] = "step-00000005/state.h5", one[100], two[100];
    dcp_save_options options = {.size = sizeof options,
                                .layout = layout,
                                .replicas = replicas,
                                .copy_bytes = DCP_COPY_DEFAULT};
    dcp_store *store = scratch_store(s, s->comm, "copied");
    on_device_make(&o, d, g, how, s->rank, s->size, 1, 3);
    scratch_save(s, s->comm, "plain", g, how, layout);
    if (layout) snprintf(file, sizeof file, "step-00000005/shard-00000-of-%05d.h5", s->size);
    snprintf(one, sizeof one, "copied/%s", file);
    snprintf(two, sizeof two, "plain/%s", file);
    for (int again = 0; again < 3; again++) {
        const uint64_t taken = d->calls[STAND_IN_ALLOC];
        for (size_t i = 0; i < o.h.n; i++) {
            uint64_t bytes = box_bytes(g, &o.h.boxes[i]);
            if (!bytes || !o.at[i]) continue;
            memset(stand_in_see(d, o.at[i]), 0x11, bytes);
            stand_in_launch(d, o.at[i], o.h.boxes[i].data, bytes);
        }
        SUCCEEDS(dcp_save_async(store, 5, o.state, GIVEN_JSON, &options, &saving, err));
        memset(d->behind, 0x22 + s->rank, d->used);
        SUCCEEDS(dcp_save_wait(saving, NULL, err));
        MPI_Barrier(MPI_COMM_WORLD);
        CHECK(scratch_same(s, one, two));
        MPI_Barrier(MPI_COMM_WORLD);
        CHECK(!again || d->calls[STAND_IN_ALLOC] == taken); /* the memory is kept */
    }
    dcp_store_close(store);
    on_device_free(&o);
}

/* Without page-locked memory for the copy, or if copying fails, the call writes; a wrong copy is
 * detected, and the next save works. */
static void copies_fail(const scratch *s, stand_in *d, const given *g) {
    static const stand_in_failure cases[] = {
        {STAND_IN_ALLOC, 1, DCP_OK, ""},
        {STAND_IN_TO_HOST, 3, DCP_OK, ""},
        {STAND_IN_WAIT, 0, DCP_OK, ""},
        {STAND_IN_CALLS, 1, DCP_ERR_DEVICE, "another checksum on the device"},
        {STAND_IN_CALLS + 1, 0, DCP_OK, ""}};
    const dcp_save_options options = {.size = sizeof options, .copy_bytes = DCP_COPY_DEFAULT};
    on_device o;
    scratch_save(s, s->comm, "plain", g, FEW_ROWS, DCP_LAYOUT_GLOBAL);
    on_device_make(&o, d, g, FEW_ROWS, s->rank, s->size, 1, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dcp_saving *saving = NULL;
        dcp_error failure;
        dcp_store *store = scratch_store(s, s->comm, "copied");
        on_device_free(&o);
        on_device_make(&o, d, g, FEW_ROWS, s->rank, s->size, 1, 0);
        if (s->rank == s->size - 1 && cases[i].call <= STAND_IN_CALLS) stand_in_fail(d, &cases[i]);
        SUCCEEDS(dcp_save_async(store, 5, o.state, GIVEN_JSON, &options, &saving, err));
        memset(d->behind, 0x22, d->used);
        int status = dcp_save_wait(saving, NULL, &failure);
        if (cases[i].status) check_same_failure(status, cases[i].status, &failure, cases[i].text);
        stand_in_mend(d);
        MPI_Barrier(MPI_COMM_WORLD);
        CHECK(status == cases[i].status);
        CHECK(status ||
              scratch_same(s, "copied/step-00000005/state.h5", "plain/step-00000005/state.h5"));
        dcp_store_close(store);
    }
    CHECK(!d->pinned);
    on_device_free(&o);
}

/* The first bytes are written only after the fence has returned. */
static void write_after_the_fence(void *ctx, uint64_t done, uint64_t total) {
    struct timespec limit;
    (void)done;
    (void)total;
    clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_sec += 60;
    CHECK(sem_timedwait(ctx, &limit) == 0);
    sem_post(ctx);
}

static void fence_waits_for_no_disk(const scratch *s, stand_in *d) {
    enum { BYTES = 24 << 20 };
    sem_t passed;
    dcp_state *state = NULL;
    dcp_saving *saving = NULL;
    const dcp_tensor t = {"/model/w", DCP_U8, 1, {(uint64_t)BYTES * (uint64_t)s->size}};
    const dcp_box box = dcp_box_chunk(&t, s->rank, s->size);
    dcp_save_options options = {
        .size = sizeof options, .on_progress = write_after_the_fence, .progress_ctx = &passed};
    dcp_store *store = scratch_store(s, s->comm, "early");
    stand_in_clear(d);
    void *memory = stand_in_alloc(d, BYTES, 0);
    memset(stand_in_see(d, memory), 0x33, BYTES);
    CHECK(sem_init(&passed, 0, 0) == 0);
    SUCCEEDS(dcp_state_create(&state, err));
    SUCCEEDS(dcp_state_add_device(state, &t, &box, &d->device, memory, err));
    SUCCEEDS(dcp_save_async(store, 1, state, NULL, &options, &saving, err));
    dcp_save_fence(saving);
    memset(stand_in_see(d, memory), 0x44, BYTES);
    sem_post(&passed);
    SUCCEEDS(dcp_save_wait(saving, NULL, err));
    dcp_store_close(store);
    dcp_state_destroy(state);
    sem_destroy(&passed);
}

/* On the last rank; all fail alike, the older step is kept, and the next save works. */
static void failures(const scratch *s, stand_in *d, const given *g) {
    static const stand_in_failure cases[] = {
        {STAND_IN_ALLOC, 0, DCP_ERR_NO_MEMORY, "MiB of page-locked memory: failed as it was told"},
        {STAND_IN_OPEN, 0, DCP_ERR_DEVICE, "stand-in:0: no stream"},
        {STAND_IN_FOLLOW, 0, DCP_ERR_DEVICE, "failed as it was told"},
        {STAND_IN_TO_HOST, 0, DCP_ERR_DEVICE, "cannot copy from the device"},
        {STAND_IN_TO_HOST, 2, DCP_ERR_DEVICE, "tensor /model/"},
        {STAND_IN_CHECKSUM, 3, DCP_ERR_DEVICE, "cannot take the checksum"},
        {STAND_IN_RECORD, 1, DCP_ERR_DEVICE, "cannot record"},
        {STAND_IN_WAIT, 1, DCP_ERR_DEVICE, "cannot copy or checksum"},
        {STAND_IN_CALLS, 0, DCP_ERR_DEVICE, "another checksum on the device"},
        {STAND_IN_CALLS, 2, DCP_ERR_DEVICE, "tensor /model/"},
    };
    dcp_error failure;
    on_device o;
    dcp_store *store = scratch_store(s, s->comm, "fails");
    on_device_make(&o, d, g, FEW_ROWS, s->rank, s->size, 1, 0);
    SUCCEEDS(dcp_save(store, 1, o.state, GIVEN_JSON, NULL, NULL, err));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dcp_saving *saving = NULL;
        dcp_store_close(store); /* with its page-locked memory */
        store = scratch_store(s, s->comm, "fails");
        if (s->rank == s->size - 1) stand_in_fail(d, &cases[i]);
        int status = i % 2 ? dcp_save(store, 2, o.state, GIVEN_JSON, NULL, NULL, &failure)
                           : dcp_save_async(store, 2, o.state, GIVEN_JSON, NULL, &saving, &failure);
        if (saving) {
            dcp_save_fence(saving);
            status = dcp_save_wait(saving, NULL, &failure);
        }
        check_same_failure(status, cases[i].status, &failure, cases[i].text);
        CHECK(failure.rank == s->size - 1);
        stand_in_mend(d);
    }
    SUCCEEDS(dcp_save(store, 2, o.state, GIVEN_JSON, NULL, NULL, err));
    dcp_store_close(store);
    on_device_free(&o);
    MPI_Barrier(MPI_COMM_WORLD);
    scratch_load(s, s->comm, "fails/step-00000001", g, FEW_COLUMNS);
    scratch_load(s, s->comm, "fails/step-00000002", g, FEW_COLUMNS);
}

static void limit_files(rlim_t bytes) {
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
    limit.rlim_cur = bytes;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

/* A save that fails at the disk leaves its page-locked memory to the next one, which could not
 * allocate any. */
static void disk_fails(const scratch *s, stand_in *d, const given *g) {
    dcp_error failure;
    dcp_saving *saving = NULL;
    on_device o;
    dcp_store *store = scratch_store(s, s->comm, "disk");
    on_device_make(&o, d, g, FEW_ROWS, s->rank, s->size, 1, 0);
    SUCCEEDS(dcp_save_prepare(store, o.state, NULL, err));
    const uint64_t taken = d->calls[STAND_IN_ALLOC];
    SUCCEEDS(dcp_save(store, 1, o.state, GIVEN_JSON, NULL, NULL, err)); /* makes the plan */
    signal(SIGXFSZ, SIG_IGN);
    limit_files(4096);
    CHECK(dcp_save(store, 2, o.state, GIVEN_JSON, NULL, NULL, &failure) == DCP_ERR_IO);
    CHECK(strstr(failure.message, "state.h5"));
    limit_files(RLIM_INFINITY);
    SUCCEEDS(dcp_save_async(store, 2, o.state, GIVEN_JSON, NULL, &saving, err));
    CHECK(dcp_save_prepare(store, o.state, NULL, &failure) == DCP_ERR_STATE);
    SUCCEEDS(dcp_save_wait(saving, NULL, err));
    CHECK(d->calls[STAND_IN_ALLOC] == taken);
    dcp_store_close(store);
    on_device_free(&o);
    MPI_Barrier(MPI_COMM_WORLD);
    scratch_load(s, s->comm, "disk/step-00000002", g, FEW_COLUMNS);
}

/* Two stores that are saved into alternately, or at the same time, need no more memory than one. */
static void stores_share_memory(const scratch *s, stand_in *d, const given *g) {
    char fast[PATH_MAX], slow[PATH_MAX];
    snprintf(fast, sizeof fast, "%s/fast", s->root);
    snprintf(slow, sizeof slow, "%s/slow", s->root);
    const dcp_tier list[] = {{.size = sizeof(dcp_tier), .path = fast, .every = 2, .keep = 2},
                             {.size = sizeof(dcp_tier), .path = slow, .every = 1, .keep = 4}};
    const dcp_save_options options = {.size = sizeof options, .staging_bytes = 1}; /* the least */
    on_device o;
    dcp_tiers *tiers = NULL;
    on_device_make(&o, d, g, FEW_ROWS, s->rank, s->size, 1, 0);
    SUCCEEDS(dcp_tiers_open(s->comm, list, 2, NULL, &tiers, err));
    SUCCEEDS(dcp_tiers_prepare(tiers, o.state, &options, err));
    CHECK(d->pinned < (9u << 20)); /* two would be 16 MiB */
    const uint64_t taken = d->calls[STAND_IN_ALLOC];
    for (uint64_t step = 1; step < 5; step++) {
        SUCCEEDS(dcp_tiers_save_async(tiers, step, o.state, GIVEN_JSON, &options, err));
        SUCCEEDS(dcp_tiers_wait(tiers, NULL, err));
    }
    SUCCEEDS(dcp_tiers_save(tiers, 6, o.state, GIVEN_JSON, &options, 1, NULL, err));
    CHECK(d->calls[STAND_IN_ALLOC] == taken);
    dcp_tiers_close(tiers);
    on_device_free(&o);
    MPI_Barrier(MPI_COMM_WORLD);
    scratch_load(s, s->comm, "slow/step-00000003", g, FEW_COLUMNS);
    scratch_load(s, s->comm, "fast/step-00000006", g, FEW_COLUMNS);
}

int main(int argc, char **argv) {
    scratch s;
    given g;
    stand_in d;
    scratch_begin(&s, &argc, &argv);
    given_make(&g, 0);
    stand_in_make(&d, ROOM);
    const dcp_comm *comm = s.comm;
    int (*const duplicate)(dcp_comm *, dcp_comm **, dcp_error *) = comm->duplicate;
    same_files(&s, &d, &g);
    replicas_differ(&s, &d, &g);
    proves_the_same(&s, &d, &g);
    scratch_save(&s, s.comm, "rows", &g, ROWS, DCP_LAYOUT_GLOBAL);
    for (int threads = 1; threads >= 0; threads--) {
        if (!threads) s.comm->duplicate = NULL;
        if (threads) fence_waits_for_no_disk(&s, &d);
        between_launch_and_fence(&s, &d, &g);
    }
    failures(&s, &d, &g);
    s.comm->duplicate = duplicate;
    copies_fail(&s, &d, &g);
    for (int r = DCP_REPLICAS_CHECK; r <= DCP_REPLICAS_TRUST; r++) {
        until_the_call_returns(&s, &d, &g, COPIES, DCP_LAYOUT_GLOBAL, (dcp_replicas)r);
        until_the_call_returns(&s, &d, &g, PAIRS, DCP_LAYOUT_SHARDED, (dcp_replicas)r);
    }
    until_the_call_returns(&s, &d, &g, COLUMNS, DCP_LAYOUT_GLOBAL, DCP_REPLICAS_CHECK);
    until_the_call_returns(&s, &d, &g, STRIPES, DCP_LAYOUT_SHARDED, DCP_REPLICAS_CHECK);
    s.comm->duplicate = NULL;
    disk_fails(&s, &d, &g);
    stores_share_memory(&s, &d, &g);
    stand_in_free(&d);
    given_free(&g);
    return scratch_end(&s);
}
