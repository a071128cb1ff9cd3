/* A rank's part of a sequence: it calls the library. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "store/directory.h"
#include "tiers/drain.h"
#include "tiers/world.h"

/* ---- output and random numbers */

void world_tell(world *w, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    if (w->used < TEXT_BYTES - 256)
        w->used += (size_t)vsnprintf(w->text + w->used, TEXT_BYTES - w->used, fmt, args);
    va_end(args);
}

void world_fail(world *w, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    fprintf(stderr, "seed %llu: ", (unsigned long long)w->seed);
    vfprintf(stderr, fmt, args);
    fprintf(stderr, "\n%s\n", w->text);
    va_end(args);
    fflush(NULL);
    _exit(1);
}

unsigned world_below(world *w, unsigned n) {
    w->random ^= w->random << 13, w->random ^= w->random >> 7, w->random ^= w->random << 17;
    return (unsigned)(w->random >> 20) % n;
}

int world_chance(world *w, unsigned percent) { return world_below(w, 100) < percent; }

/* ---- a rank that is killed at one of its system calls */

static atomic_int calls_left = -1;

static void count_call(void) {
    if (atomic_load(&calls_left) >= 0 && atomic_fetch_sub(&calls_left, 1) == 0)
        kill(getpid(), SIGKILL);
}

/* These replace the C library's functions. */
int renameat(int a, const char *from, int b, const char *to) {
    count_call();
    return (int)syscall(SYS_renameat2, a, from, b, to, 0);
}

int renameat2(int a, const char *from, int b, const char *to, unsigned flags) {
    count_call();
    return (int)syscall(SYS_renameat2, a, from, b, to, flags);
}

int mkdirat(int fd, const char *path, mode_t mode) {
    count_call();
    return (int)syscall(SYS_mkdirat, fd, path, mode);
}

int unlinkat(int fd, const char *path, int flags) {
    count_call();
    return (int)syscall(SYS_unlinkat, fd, path, flags);
}

int fsync(int fd) {
    count_call();
    return (int)syscall(SYS_fsync, fd);
}

/* ---- a rank's part */

static void fill_memory(player *p, unsigned value) {
    for (int i = 0; i < PER_RANK; i++) p->own[i] = (float)(value * 1000 + (unsigned)i);
    for (int i = 0; i < FROZEN; i++) p->frozen[i] = (float)i;
}

void player_begin(player *p) {
    const uint64_t all = (uint64_t)PER_RANK * (uint64_t)p->w->m.ranks;
    const dcp_tensor t = {"/model/own", DCP_F32, 1, {all}},
                     f = {"/model/frozen", DCP_F32, 1, {FROZEN}};
    const dcp_box box = dcp_box_chunk(&t, p->rank, p->w->m.ranks);
    p->own = calloc(PER_RANK, sizeof *p->own);
    if (dcp_state_create(&p->state, &p->err) ||
        dcp_state_add(p->state, &t, &box, p->own, &p->err) ||
        dcp_state_add(p->state, &f, NULL, p->frozen, &p->err))
        world_fail(p->w, "no state: %s", p->err.message);
}

/* The value that the memory holds. */
static unsigned read_memory(player *p) {
    const unsigned value = (unsigned)p->own[0] / 1000;
    for (int i = 0; i < PER_RANK; i++)
        if (p->own[i] != (float)(value * 1000 + (unsigned)i))
            world_fail(p->w, "a mixture is loaded");
    for (int i = 0; i < FROZEN; i++)
        if (p->frozen[i] != (float)i) world_fail(p->w, "another frozen tensor is loaded");
    return value;
}

static int load(void *ctx, dcp_checkpoint *ckpt, dcp_error *err) {
    return dcp_load(ckpt, ((player *)ctx)->state, NULL, err);
}

void world_name_tier(const world *w, unsigned i, int node, char *path, size_t size) {
    if (w->m.t[i].is_private)
        snprintf(path, size, "%s/%u-%d", w->root, i, node);
    else
        snprintf(path, size, "%s/%u", w->root, i);
}

static void open_list(player *p) {
    static const char *const words[] = {"none", "partner", "rs(1)", "rs(2)"};
    const world *w = p->w;
    dcp_tiers_options options = DCP_TIERS_OPTIONS_INIT;
    options.loads_only = (int)(w->seed % 2);
    for (int i = 0; i < w->m.tiers; i++) {
        const model_tier *t = &w->m.t[i];
        world_name_tier(w, (unsigned)i, p->rank, p->paths[i], sizeof p->paths[i]);
        p->list[i] = (dcp_tier)DCP_TIER_INIT;
        p->list[i].path = p->paths[i];
        p->list[i].every = t->every;
        p->list[i].keep = t->keep;
        p->list[i].is_private = t->is_private;
        p->list[i].redundancy = words[t->redundancy];
        p->list[i].layout = t->is_sharded ? DCP_LAYOUT_SHARDED : DCP_LAYOUT_GLOBAL;
    }
    if (dcp_tiers_open(p->comm, p->list, (size_t)w->m.tiers, &options, &p->tiers, &p->err))
        world_fail(p->w, "not opened: %s", p->err.message);
}

static int load_by_hand(player *p, unsigned step, unsigned from) {
    const dcp_tiers_step which = {step, from};
    dcp_checkpoint *ckpt = NULL;
    int status = dcp_tiers_open_step(p->comm, p->list, &which, &ckpt, &p->err);
    if (!status) status = dcp_load(ckpt, p->state, NULL, &p->err);
    dcp_checkpoint_close(ckpt);
    return status;
}

/* Waits until all threads that fill stores have ended, on all ranks. */
static void settle(player *p) {
    for (int i = 0; i < p->w->m.tiers; i++)
        while (!tiers_drain_is_done(&p->tiers->list[i])) usleep(100);
    ranks_meet(p->w->r);
}

/* Records what can be loaded from each store, without rebuilding anything. */
void player_observe(player *p) {
    world *w = p->w;
    dcp_tiers_step *steps = NULL;
    size_t n = 0;
    if (dcp_tiers_steps(p->comm, p->list, (size_t)w->m.tiers, &steps, &n, &p->err))
        world_fail(w, "no list of steps: %s", p->err.message);
    if (p->rank == 0) memset(w->observed, 0, sizeof w->observed);
    for (size_t i = 0; i < n; i++) {
        const int status = load_by_hand(p, (unsigned)steps[i].step, (unsigned)steps[i].tier);
        if (status && status != DCP_ERR_CORRUPT && status != DCP_ERR_NOT_FOUND)
            world_fail(w, "step %u of store %u: %s", (unsigned)steps[i].step,
                       (unsigned)steps[i].tier, p->err.message);
        const int seen = status ? -1 : (int)read_memory(p) + 1;
        if (p->rank == 0) w->observed[steps[i].tier][steps[i].step] = seen;
    }
    free(steps);
}

/* Changes an element in the node's file of the step. */
static void damage(player *p) {
    const order *o = &p->w->o;
    char path[600];
    const model_tier *t = &p->w->m.t[o->tier];
    if ((int)o->node != p->rank) return;
    int n = snprintf(path, sizeof path, "%s/step-%08u/", p->paths[o->tier], o->step);
    if (t->is_private || t->is_sharded)
        snprintf(path + n, sizeof path - (size_t)n, "shard-%05u-of-%05d.h5", o->node,
                 p->w->m.ranks);
    else
        snprintf(path + n, sizeof path - (size_t)n, "state.h5");
    const int fd = open(path, O_RDWR);
    const float wanted = (float)(o->value * 1000 + 7);
    float found = 0;
    off_t at = 0;
    while (found != wanted && pread(fd, &found, sizeof found, at) == sizeof found) at += 4;
    if (found != wanted) world_fail(p->w, "%s has not got its tensor", path);
    found = -1;
    if (pwrite(fd, &found, sizeof found, at - 4) != 4)
        world_fail(p->w, "%s can't be damaged", path);
    close(fd);
}

void world_lose(const world *w, unsigned i, int node) {
    char path[512];
    for (int r = 0; r < w->m.ranks; r++) {
        if (node >= 0 && node != r) continue;
        world_name_tier(w, i, r, path, sizeof path);
        store_directory_remove(AT_FDCWD, path);
    }
}

static int load_newest(player *p) {
    uint64_t step = 0;
    const int status = dcp_tiers_load(p->tiers, load, p, &step, &p->err);
    world *w = p->w;
    if (status && status != DCP_ERR_NOT_FOUND && status != DCP_ERR_CORRUPT) return status;
    if ((status ? 0 : step) != w->o.step)
        world_fail(w, "step %u is loaded (%s), not %u", status ? 0 : (unsigned)step,
                   status ? p->err.message : "", w->o.step);
    if (!status && w->o.value != MODEL_ANY && read_memory(p) != w->o.value)
        world_fail(w, "step %u is loaded with value %u, not %u", (unsigned)step, read_memory(p),
                   w->o.value);
    if (p->rank == 0) w->step = (unsigned)w->o.step, w->value = status ? 0 : read_memory(p);
    return dcp_tiers_continue_from(p->tiers, w->o.step, &p->err);
}

static int load_step(player *p) {
    const order *o = &p->w->o;
    int status = load_by_hand(p, o->step, o->tier);
    if (!status && read_memory(p) != o->value)
        world_fail(p->w, "step %u: value %u", o->step, o->value);
    if (!status && o->marks) status = dcp_tiers_mark_intact(p->tiers, o->tier, o->step, &p->err);
    if (!status && o->what == STEP) status = dcp_tiers_continue_from(p->tiers, o->step, &p->err);
    return status;
}

static int save_now(player *p) {
    const order *o = &p->w->o;
    dcp_tiers_fence(p->tiers);
    fill_memory(p, o->value);
    return dcp_tiers_save(p->tiers, o->step, p->state, "{}", NULL, o->also_last, NULL, &p->err);
}

/* Checks that, after a synchronous save, the list knows which stores have the step. */
void player_check_has(player *p) {
    for (int i = 0; i < p->w->m.tiers; i++)
        if (dcp_tiers_has(p->tiers, (size_t)i, p->w->o.step) !=
            model_has(&p->w->m, i, p->w->o.step))
            world_fail(p->w, "store %d is said to have step %u: %d", i, p->w->o.step,
                       dcp_tiers_has(p->tiers, (size_t)i, p->w->o.step));
}

static void *wait_in_thread(void *ctx) {
    player *p = ctx;
    p->waited = dcp_tiers_wait_in_thread(p->tiers, NULL, NULL, &p->err);
    return NULL;
}

/* Every second time, a thread waits for the save, and the list's own thread only does the rest. */
static int wait_for_save(player *p) {
    pthread_t thread;
    if (p->w->acts % 2) return dcp_tiers_wait(p->tiers, NULL, &p->err);
    if (pthread_create(&thread, NULL, wait_in_thread, p) || pthread_join(thread, NULL)) abort();
    dcp_tiers_wait(p->tiers, NULL, NULL);
    return p->waited;
}

static void arm(player *p) {
    world *w = p->w;
    if (w->kills && w->kill_rank == p->rank && w->kill_act == w->acts)
        atomic_store(&calls_left, w->kill_after);
}

int player_act(player *p) {
    const order *o = &p->w->o;
    int status = DCP_OK;
    arm(p);
    switch (o->what) {
    case OPEN:
        open_list(p);
        break;
    case WAIT:
        return wait_for_save(p);
    case ASYNC:
        dcp_tiers_fence(p->tiers);
        fill_memory(p, o->value);
        return dcp_tiers_save_async(p->tiers, o->step, p->state, "{}", NULL, &p->err);
    case NOW:
    case AGAIN:
        status = save_now(p);
        break;
    case NEWEST:
        return load_newest(p);
    case STEP:
    case PEEK:
        dcp_tiers_fence(p->tiers);
        status = load_step(p);
        break;
    case ASK:
        return dcp_tiers_ask(p->tiers, o->tier, &p->err);
    case DAMAGE:
        damage(p);
        break;
    case LOSE: { /* a kill never interrupts this */
        const int left = atomic_exchange(&calls_left, -1);
        if (p->rank == 0) world_lose(p->w, o->tier, -1);
        atomic_store(&calls_left, left);
        break;
    }
    case SETTLE:
        settle(p);
        break;
    case CLOSE:
    case ACTS:
        dcp_tiers_close(p->tiers);
    }
    return status;
}

void player_end(player *p) {
    dcp_state_destroy(p->state);
    free(p->own);
}
