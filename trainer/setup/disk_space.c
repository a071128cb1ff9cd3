/* The size of a step is an estimate: its data, and roughly what HDF5 and the tables add. Existing
 * steps count as room that newer steps will have, because newer steps replace them. */
#include "setup/disk_space.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>

#include <dcp/store.h>

#include "config/config.h"
#include "config/lists.h"
#include "config/path_checks.h"
#include "optim/optim.h"
#include "programs/fail.h"
#include "programs/program.h"
#include "ranks/board.h"
#include "ranks/launcher.h"
#include "ranks/log.h"
#include "setup/rank_memory.h"
#include "state/resume.h"
#include "step/external_requests.h"

enum { STEP_OVERHEAD = 128 << 10, TENSOR_OVERHEAD = 1 << 10, LARGEST_GROUP = 64 };

typedef struct room_needs {
    uint64_t step;         /* bytes of one step */
    uint64_t steps, there; /* how many steps will exist at once; how many exist now */
    uint64_t unused;       /* free bytes that this store can use */
    uint64_t device;
    char name[64];         /* the store's key in the configuration */
    char folder[PATH_MAX]; /* an existing folder on the store's file system */
} room_needs;

static uint64_t whole_step(const config *c, const fsdp_layout *layout) {
    const optim_type *type = optim_type_find(c->optimizer);
    return STEP_OVERHEAD + layout->n_params * (1 + type->n_slots) * TENSOR_OVERHEAD +
           layout->total_params * sizeof(float) +
           layout->trained_params * optim_element_bytes(type);
}

/* For a private store: returns the bytes of a step on one host, with the redundancy that the host
 * holds for others. */
static uint64_t part_of_host(uint64_t step, const char *redundancy, int hosts) {
    const uint64_t part = step / (uint64_t)hosts;
    const int group = hosts < LARGEST_GROUP ? hosts : LARGEST_GROUP;
    const int lost = config_stores_survivable(redundancy);
    if (redundancy && strcmp(redundancy, "partner") == 0) return 2 * part;
    if (lost < 1 || lost >= group) return part;
    return part + part * (uint64_t)lost / (uint64_t)(group - lost);
}

static uint64_t greatest_divisor(uint64_t a, uint64_t b) {
    return b ? greatest_divisor(b, a % b) : a;
}

/* Returns the number of saved steps that are multiples of keep_every. */
static uint64_t saved_multiples(const config *c, const dcp_tier *store) {
    if (!store->keep_every || !store->every) return 0;
    return c->max_steps / (store->every / greatest_divisor(store->every, store->keep_every)) /
           store->keep_every;
}

/* Returns the largest number of steps that exist at the same time: one more than `keep`, because
 * the oldest step is removed only after the new one is published, plus the steps that keep_best and
 * keep_every retain in addition. Steps that keep_seconds retains are not included, because their
 * number is not known in advance. */
static uint64_t steps_at_once(const config *c, const dcp_tier *store) {
    const uint64_t saves = store->every ? (c->max_steps + store->every - 1) / store->every : 1;
    const uint64_t kept = (uint64_t)store->keep + store->keep_best + saved_multiples(c, store);
    return store->keep && kept < saves ? kept + 1 : saves;
}

static uint64_t steps_there(const char *path) {
    dcp_step *listed = NULL;
    size_t n = 0;
    if (dcp_steps_list(path, &listed, &n, NULL) != DCP_OK) return 0;
    uint64_t complete = 0;
    for (size_t i = 0; i < n; i++) complete += listed[i].kind == DCP_STEP_COMPLETE;
    free(listed);
    return complete;
}

/* Finds the path, or the nearest existing folder above it. If the path contains a placeholder such
 * as {rank}, only the part before the placeholder counts. */
static int find_folder(const char *path, char *out, struct stat *st) {
    snprintf(out, PATH_MAX, "%s%.*s", *path == '/' ? "" : "./", (int)strcspn(path, "{"), path);
    while (stat(out, st) != 0) {
        char *slash = strrchr(out, '/');
        if (!slash) return -1;
        if (slash == out) slash++; /* the root */
        if (!*slash) return -1;
        *slash = '\0';
    }
    return 0;
}

/* Returns 0, or -1 if the file system does not report its free space. */
static int measure_store(const config *c, size_t i, uint64_t step, int hosts, room_needs *out) {
    const dcp_tier *store = &c->stores[i];
    struct stat st;
    struct statvfs fs;
    *out = (room_needs){.step =
                            store->is_private ? part_of_host(step, store->redundancy, hosts) : step,
                        .steps = steps_at_once(c, store),
                        .there = steps_there(store->path)};
    snprintf(out->name, sizeof out->name, "checkpoint.stores[%zu]", i);
    if (i + 1 == c->n_stores) snprintf(out->name, sizeof out->name, "checkpoint.dir");
    if (find_folder(store->path, out->folder, &st) != 0 || statvfs(out->folder, &fs) != 0)
        return -1;
    if (out->steps <= out->there) out->steps = out->there + 1; /* a save precedes a removal */
    out->device = st.st_dev;
    out->unused = (uint64_t)fs.f_bavail * fs.f_frsize;
    return 0;
}

static uint64_t bytes_to_come(const room_needs *n) {
    return n->steps > n->there ? (n->steps - n->there) * n->step : 0;
}

/* Measures all stores. If several stores are on the same file system, each gets the free space that
 * the stores before it leave. Returns how many stores could be measured. */
static size_t measure_all(const config *c, const fsdp_layout *layout, int hosts, room_needs *out) {
    const uint64_t step = whole_step(c, layout);
    size_t n = 0;
    for (size_t i = 0; i < c->n_stores; i++) {
        if (measure_store(c, i, step, hosts, &out[n]) != 0) continue;
        for (size_t j = 0; j < n; j++) {
            const uint64_t taken = out[j].device == out[n].device ? bytes_to_come(&out[j]) : 0;
            out[n].unused = out[n].unused > taken ? out[n].unused - taken : 0;
        }
        n++;
    }
    return n;
}

/* Predicts what will happen to the run's saves. A save succeeds if there is room for the new step
 * beside the newest one, because older steps can be removed. */
static const char *outcome(const room_needs *n) {
    const uint64_t hold = n->there + n->unused / n->step;
    if (hold >= n->steps) return "fits";
    return hold >= 2 ? "fewer steps will be kept" : "saves will fail until there is more room";
}

/* Returns true if there is no room for another step, even if an older one is removed. */
static bool is_full(const room_needs *n) { return n->there < 2 && n->unused < n->step; }

static int fail_full(const room_needs *n, dcp_error *err) {
    char step[32], unused[32];
    ranks_launcher_report(0, SETUP_NO_ROOM);
    return core_fail(
        err, DCP_ERR_NO_SPACE,
        "%s: a step takes %s, and %s are free in %s: the last start could not save "
        "what it computed, and this start could not, either; free space there or choose "
        "another folder",
        n->name, program_bytes_text(n->step, step), program_bytes_text(n->unused, unused),
        n->folder);
}

int setup_space_check(const config *c, const fsdp_layout *layout, int hosts, dcp_error *err) {
    room_needs needs[DCP_MAX_TIERS];
    const size_t n = measure_all(c, layout, hosts, needs);
    const bool failed = ranks_launcher_failed_for(SETUP_NO_ROOM);
    for (size_t i = 0; failed && i < n; i++)
        if (is_full(&needs[i])) return fail_full(&needs[i], err);
    for (size_t i = 0; i < n; i++) {
        const room_needs *s = &needs[i];
        if (bytes_to_come(s) <= s->unused) continue;
        char step[32], all[32], unused[32];
        ranks_warn(0,
                   "%s: a step takes %s, and the %" PRIu64
                   " steps that will exist at once take %s; %" PRIu64
                   " exist now, and %s are free for more in %s: %s",
                   s->name, program_bytes_text(s->step, step), s->steps,
                   program_bytes_text(s->steps * s->step, all), s->there,
                   program_bytes_text(s->unused, unused), s->folder, outcome(s));
    }
    return DCP_OK;
}

/* Prints the reasons why a run could not start. */
static void print_obstacles(const config *c) {
    dcp_error why;
    if (config_paths_check_open(c, &why) != DCP_OK) printf("  %s\n", why.message);
    for (size_t i = 0; i < c->n_stores; i++)
        if (dcp_store_check_free(c->stores[i].path, &why) != DCP_OK)
            printf("  checkpoint.%s: %s\n", i + 1 == c->n_stores ? "dir" : "stores", why.message);
}

void setup_space_print(const config *c, const fsdp_layout *layout, int hosts) {
    room_needs needs[DCP_MAX_TIERS];
    const size_t n = measure_all(c, layout, hosts, needs);
    printf("\n%-28s %12s %8s %10s %12s\n", "steps on disk, MiB", "a step", "at once", "together",
           "free there");
    for (size_t i = 0; i < n; i++) {
        const room_needs *s = &needs[i];
        printf("  %-26s %12.2f %8" PRIu64 " %10.2f %12.2f  %s\n", s->name, setup_mib(s->step),
               s->steps, setup_mib(s->steps * s->step), setup_mib(s->unused), outcome(s));
    }
    print_obstacles(c);
}

/* Opens the stores. Waits for a store that ranks of an earlier start still hold: these ranks may
 * have been killed a moment ago, together with the dcp-run that started them. */
static int open_stores(trainer *t, dcp_error *err) {
    const dcp_tiers_options options = {.size = sizeof options,
                                       .take_over = t->c->takes_over,
                                       .tool = "dcp-train",
                                       .loads_only = 1,
                                       .log = ranks_log,
                                       .on_filled = timeline_add_fill,
                                       .filled_ctx = &t->tl,
                                       .on_fill_progress = ranks_board_on_progress};
    static const struct timespec pause = {.tv_nsec = 100 * 1000 * 1000};
    const double begin = MPI_Wtime(), grace = ranks_launcher_grace_s();
    dcp_error why;
    for (int tries = 1;; tries++) {
        const int status =
            dcp_tiers_open(t->dcp, t->c->stores, t->c->n_stores, &options, &t->stores, &why);
        if (status == DCP_OK) return DCP_OK;
        if (!step_requests_allow_wait(t->comm, tries, status, begin, grace, why.message))
            return ranks_agree(t->comm, state_resume_fail_directory(t->c, status, &why, err), err);
        nanosleep(&pause, NULL);
    }
}

/* Reports which losses the private stores survive; at each start, because fewer ranks or other
 * hosts may change that. */
static void report_survived_losses(const trainer *t) {
    for (size_t i = 0; i < t->c->n_stores; i++) {
        const char *path = t->c->stores[i].path;
        const char *domain = t->c->stores[i].domain ? "failure domain" : "host";
        const int losses = dcp_tiers_survives(t->stores, i);
        if (!t->c->stores[i].is_private) continue;
        if (losses > 0)
            ranks_info(t->rank, "steps in %s survive the loss of any %d %s%s", path, losses, domain,
                       losses == 1 ? "" : "s");
        else
            ranks_info(t->rank, "steps in %s are lost with any %s", path, domain);
    }
}

int setup_open_stores(trainer *t, dcp_error *err) {
    const int status = open_stores(t, err);
    if (status == DCP_OK) report_survived_losses(t);
    return status;
}
