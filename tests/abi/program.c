/* program FOLDER [longer]: a program of libdcp 1.0: compiled with the headers in dcp-1.0 alone, it
 * runs with whatever library is there. Every struct with a size is used, with bytes behind it that
 * the library must neither read nor write. `longer`: of the library, all of them are longer. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dcp/dcp.h"

enum { MORE = 64, BEHIND = 0xee, N = 1000 };

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition);              \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
#define SUCCEEDS(call)                                                                             \
    do {                                                                                           \
        dcp_error err = {0};                                                                       \
        if (call != DCP_OK) {                                                                      \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, err.message);                       \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* A struct as DCP_..._INIT makes it, with BEHIND behind it. */
#define GUARDED(type, name)                                                                        \
    struct {                                                                                       \
        type s;                                                                                    \
        unsigned char behind[MORE];                                                                \
    } name = {.s = {.size = sizeof(type)}};                                                        \
    memset(name.behind, BEHIND, MORE)
#define CHECK_GUARD(name)                                                                          \
    do {                                                                                           \
        CHECK(name.s.size == sizeof name.s);                                                       \
        for (int at_ = 0; at_ < MORE; at_++) CHECK(name.behind[at_] == BEHIND);                    \
    } while (0)

static const char *root; /* empty */
static char dir[256], step_path[300];
static float weight[N], on_device[N];
static int logged, damages;

static void on_log(void *ctx, dcp_log_level level, const char *line) {
    (void)ctx, (void)level, (void)line;
    logged++;
}

static void on_damage(void *ctx, const char *what) {
    (void)ctx;
    damages++;
    fprintf(stderr, "%s\n", what);
}

/* The device: host memory, whose copies are done when they are begun. */
static int alloc_pinned(void *ctx, uint64_t bytes, void **out) {
    (void)ctx;
    return posix_memalign(out, 4096, bytes);
}
static void free_pinned(void *ctx, void *memory) {
    (void)ctx;
    free(memory);
}
static int open_stream(void *ctx, unsigned events, void **stream) {
    (void)ctx, (void)events;
    *stream = on_device;
    return 0;
}
static void close_stream(void *ctx, void *stream) { (void)ctx, (void)stream; }
static int follow(void *ctx, void *stream) {
    (void)ctx, (void)stream;
    return 0;
}
static int to_host(void *ctx, void *stream, void *pinned, const void *device, uint64_t bytes) {
    (void)ctx, (void)stream;
    memcpy(pinned, device, bytes);
    return 0;
}
static int to_device(void *ctx, void *stream, void *device, const void *pinned, uint64_t bytes) {
    (void)ctx, (void)stream;
    memcpy(device, pinned, bytes);
    return 0;
}
static int checksum(void *ctx, void *stream, const void *device, uint64_t bytes, uint64_t *pinned) {
    const unsigned char *byte = device;
    uint64_t crc = 0;
    (void)ctx, (void)stream;
    for (uint64_t i = 0; i < bytes; i++) {
        crc ^= byte[i];
        for (int k = 0; k < 8; k++) crc = crc >> 1 ^ (crc & 1 ? 0xc96c5795d7870f42ULL : 0);
    }
    *pinned = crc;
    return 0;
}
static int event(void *ctx, void *stream, unsigned number) {
    (void)ctx, (void)stream, (void)number;
    return 0;
}
static const char *error_text(void *ctx, int code) {
    (void)ctx, (void)code;
    return "no error";
}

/* A launcher of one rank. */
static int broadcast(void *ctx, void *buf, uint64_t bytes, int to) {
    (void)ctx, (void)buf, (void)bytes, (void)to;
    return 0;
}
static int allreduce(void *ctx, uint64_t *buf, uint64_t count, dcp_reduce op) {
    (void)ctx, (void)buf, (void)count, (void)op;
    return 0;
}
static int gather(void *ctx, const void *send, uint64_t bytes, void *recv, int to) {
    (void)ctx, (void)to;
    if (bytes) memmove(recv, send, bytes);
    return 0;
}
static int alltoall(void *ctx, const void *send, const uint64_t *send_bytes, void *recv,
                    const uint64_t *recv_bytes) {
    (void)recv_bytes;
    return gather(ctx, send, send_bytes[0], recv, 0);
}
static int barrier(void *ctx) {
    (void)ctx;
    return 0;
}

static dcp_comm *make_comm(void) {
    dcp_comm *comm = NULL;
    GUARDED(dcp_comm_ops, ops);
    ops.s.broadcast = broadcast;
    ops.s.allreduce = allreduce;
    ops.s.gather = gather;
    ops.s.alltoall = alltoall;
    ops.s.barrier = barrier;
    SUCCEEDS(dcp_comm_from_ops(&ops.s, NULL, 0, 1, &comm, &err));
    return comm;
}

static dcp_store *open_store(dcp_comm *comm) {
    dcp_store *store = NULL;
    GUARDED(dcp_store_options, options);
    options.s.keep = 2;
    options.s.tool = "a program of 1.0";
    options.s.log = on_log;
    SUCCEEDS(dcp_store_open(comm, dir, &options.s, &store, &err));
    return store;
}

static void check_report(const dcp_report *report) {
    CHECK(report->bytes == 2 * sizeof weight && report->engine == DCP_ENGINE_DIRECT);
    CHECK(report->total_s > 0 && report->total_s < 600 && report->publish_s < report->total_s);
}

static void save(dcp_store *store, const dcp_state *state) {
    dcp_saving *saving = NULL;
    GUARDED(dcp_save_options, options);
    GUARDED(dcp_report, report);
    GUARDED(dcp_report, beside);
    options.s.about_json = "{\"note\":\"kept\"}";
    SUCCEEDS(dcp_save(store, 1, state, "{\"seed\":7}", &options.s, &report.s, &err));
    check_report(&report.s);
    CHECK_GUARD(report);
    options.s.layout = DCP_LAYOUT_SHARDED;
    SUCCEEDS(dcp_save_async(store, 2, state, NULL, &options.s, &saving, &err));
    dcp_save_fence(saving);
    SUCCEEDS(dcp_save_wait(saving, &beside.s, &err));
    check_report(&beside.s);
    CHECK_GUARD(beside);
}

static void look(dcp_comm *comm, dcp_checkpoint *ckpt) {
    GUARDED(dcp_glance, seen);
    GUARDED(dcp_piece, piece);
    GUARDED(dcp_verify_options, verify);
    verify.s.on_damage = on_damage;
    SUCCEEDS(dcp_step_glance(step_path, &seen.s, &err));
    CHECK(seen.s.layout == DCP_LAYOUT_GLOBAL && seen.s.files == 1 && seen.s.ranks == 1);
    CHECK(seen.s.tensors == 2 && seen.s.survives == -1 && seen.s.written > 0);
    CHECK_GUARD(seen);
    CHECK(dcp_checkpoint_piece(ckpt, 0, 0, &piece.s) == DCP_OK);
    CHECK(piece.s.bytes == sizeof weight && piece.s.box.count[0] == N && piece.s.block_crcs);
    CHECK_GUARD(piece);
    SUCCEEDS(dcp_verify_with(comm, step_path, &verify.s, &err));
    CHECK(damages == 0);
}

static void load(dcp_checkpoint *ckpt, const dcp_state *state) {
    static const char *const only[] = {"/model/*"};
    GUARDED(dcp_load_options, options);
    GUARDED(dcp_report, report);
    options.s.only = only;
    options.s.n_only = 1;
    memset(weight, 0, sizeof weight);
    memset(on_device, 0, sizeof on_device);
    SUCCEEDS(dcp_load_with(ckpt, state, &options.s, &report.s, &err));
    check_report(&report.s);
    CHECK_GUARD(report);
    for (int i = 0; i < N; i++) CHECK(weight[i] == (float)i && on_device[i] == (float)-i);
    dcp_loading *loading = NULL;
    GUARDED(dcp_report, beside);
    memset(weight, 0, sizeof weight);
    SUCCEEDS(dcp_load_async(ckpt, state, &options.s, &loading, &err));
    SUCCEEDS(dcp_load_wait(loading, &beside.s, &err));
    check_report(&beside.s);
    CHECK_GUARD(beside);
    for (int i = 0; i < N; i++) CHECK(weight[i] == (float)i);
}

static void prove(dcp_comm *comm, dcp_checkpoint *ckpt, const dcp_state *state) {
    uint64_t id = 0;
    dcp_proof *proof = NULL;
    GUARDED(dcp_prove_options, options);
    SUCCEEDS(dcp_prove(comm, state, &options.s, &proof, &err));
    CHECK(dcp_checkpoint_state_id(ckpt, &id) && id == dcp_proof_id(proof));
    dcp_proof_destroy(proof);
}

static void rewrite(dcp_comm *comm, dcp_checkpoint *ckpt) {
    char to_dir[256];
    dcp_store *to = NULL;
    GUARDED(dcp_rewrite_options, options);
    GUARDED(dcp_report, report);
    options.s.layout = DCP_LAYOUT_SHARDED;
    options.s.shards = 3;
    snprintf(to_dir, sizeof to_dir, "%s/rewritten", root);
    SUCCEEDS(dcp_store_open(comm, to_dir, NULL, &to, &err));
    SUCCEEDS(dcp_rewrite(ckpt, to, &options.s, &report.s, &err));
    check_report(&report.s);
    CHECK_GUARD(report);
    dcp_store_close(to);
}

static void use_tiers(dcp_comm *comm, const dcp_state *state) {
    char fast[256], slow[256];
    dcp_tiers *tiers = NULL;
    dcp_tiers_step *steps = NULL;
    size_t n = 0;
    dcp_tier list[3] = {{.size = sizeof(dcp_tier), .path = fast, .every = 1},
                        {.size = sizeof(dcp_tier), .path = slow, .every = 1}};
    GUARDED(dcp_tiers_options, options);
    GUARDED(dcp_report, report);
    memset(&list[2], BEHIND, sizeof list[2]);
    options.s.log = on_log;
    snprintf(fast, sizeof fast, "%s/fast", root);
    snprintf(slow, sizeof slow, "%s/slow", root);
    SUCCEEDS(dcp_tiers_open(comm, list, 2, &options.s, &tiers, &err));
    SUCCEEDS(dcp_tiers_save(tiers, 5, state, NULL, NULL, 1, &report.s, &err));
    check_report(&report.s);
    CHECK_GUARD(report);
    dcp_tiers_close(tiers);
    SUCCEEDS(dcp_tiers_steps(comm, list, 2, &steps, &n, &err));
    CHECK(n == 2 && steps[0].step == 5 && steps[0].tier == 0 && steps[1].tier == 1);
    free(steps);
}

/* What this program's headers make is at most as long as the library's. */
static void sizes_are_told_apart(dcp_comm *comm, const dcp_state *state, int longer) {
    dcp_proof *proof = NULL;
    dcp_error err;
    memset(&err, BEHIND, sizeof err); /* may be passed uninitialised */
    struct {
        dcp_prove_options s;
        unsigned char zero[64]; /* more than it has got since 1.0, and no more than `longer` adds */
    } later = {.s = {.size = sizeof later}};
    CHECK(dcp_prove(comm, state, &later.s, &proof, &err) == (longer ? DCP_OK : DCP_ERR_ARG));
    CHECK(longer || strstr(err.message, "DCP_PROVE_OPTIONS_INIT"));
    dcp_proof_destroy(proof);
}

int main(int argc, char **argv) {
    dcp_comm *comm;
    dcp_store *store;
    dcp_state *state = NULL;
    dcp_checkpoint *ckpt = NULL;
    const dcp_tensor host = {"/model/a", DCP_F32, 1, {N}}, there = {"/model/b", DCP_F32, 1, {N}};
    GUARDED(dcp_device, device);
    device.s.name = "abi:0";
    device.s.alloc_pinned = alloc_pinned;
    device.s.free_pinned = free_pinned;
    device.s.open = open_stream;
    device.s.close = close_stream;
    device.s.follow = follow;
    device.s.to_host = to_host;
    device.s.to_device = to_device;
    device.s.checksum = checksum;
    device.s.record = device.s.wait = event;
    device.s.error_text = error_text;
    CHECK(argc > 1);
    root = argv[1];
    snprintf(dir, sizeof dir, "%s/store", root);
    snprintf(step_path, sizeof step_path, "%s/step-00000001", dir);
    for (int i = 0; i < N; i++) weight[i] = (float)i, on_device[i] = (float)-i;
    comm = make_comm();
    SUCCEEDS(dcp_state_create(&state, &err));
    SUCCEEDS(dcp_state_add(state, &host, NULL, weight, &err));
    SUCCEEDS(dcp_state_add_device(state, &there, NULL, &device.s, on_device, &err));
    store = open_store(comm);
    save(store, state);
    SUCCEEDS(dcp_checkpoint_open(comm, step_path, &ckpt, &err));
    look(comm, ckpt);
    load(ckpt, state);
    prove(comm, ckpt, state);
    rewrite(comm, ckpt);
    use_tiers(comm, state);
    sizes_are_told_apart(comm, state, argc > 2 && !strcmp(argv[2], "longer"));
    dcp_checkpoint_close(ckpt);
    dcp_store_close(store);
    dcp_state_destroy(state);
    dcp_comm_destroy(comm);
    printf("libdcp %s\n", dcp_version());
    return 0;
}
