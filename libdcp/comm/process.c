#include "comm/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/crc64.h"

static void comm_place_boot(comm_boot_id *out) {
    memset(out, 0, sizeof *out);
    int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, out->text, sizeof out->text - 1) : -1;
    if (fd >= 0) close(fd);
    if (n <= 0) gethostname(out->text, sizeof out->text - 1);
    out->text[strcspn(out->text, "\n")] = 0;
}

void comm_location_of_machine(comm_location *out) {
    comm_boot_id boot;
    struct stat st = {0};
    comm_place_boot(&boot);
    stat("/dev/shm", &st); /* st_dev stays 0 if it does not exist */
    memset(out, 0, sizeof *out);
    snprintf(out->host, sizeof out->host, "boot %s, /dev/shm %llu", boot.text,
             (unsigned long long)st.st_dev);
}

void comm_location_find(comm_location *out) {
    const char *name = getenv("DCP_HOST");
    if (name && *name)
        comm_location_named(out, name);
    else
        comm_location_of_machine(out);
}

void comm_location_named(comm_location *out, const char *name) {
    memset(out, 0, sizeof *out);
    if (strlen(name) < 100)
        snprintf(out->host, sizeof out->host, "host %s", name);
    else
        snprintf(out->host, sizeof out->host, "host %.99s... %016" PRIx64, name,
                 core_crc64(name, strlen(name)));
}

void comm_location_of_rank(comm_location *out, int rank) {
    memset(out, 0, sizeof *out);
    snprintf(out->host, sizeof out->host, "the host of rank %d", rank);
}

bool comm_location_is_same(const comm_location *a, const comm_location *b) {
    return memcmp(a, b, sizeof *a) == 0;
}

/* Fields of /proc/PID/stat. */
typedef struct stat_fields {
    char state; /* Z: it has ended, and its parent has not waited for it */
    uint64_t threads, start;
} stat_fields;

/* Field 2, the process's name in parentheses, may contain anything. Field 3 follows the last
 * closing parenthesis. */
static int read_stat(const char *path, stat_fields *out) {
    char text[1024], *at;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0) close(fd);
    if (n <= 0) return -1;
    text[n] = 0;
    at = strrchr(text, ')');
    if (!at || strlen(at) < 3) return -1;
    out->state = at[2];
    at += 3;
    for (int field = 4; field <= 22; field++) {
        uint64_t value = strtoull(at, &at, 10);
        if (field == 20) out->threads = value;
        if (field == 22) out->start = value;
    }
    return 0;
}

/* Returns false if /proc belongs to another PID namespace, in which processes have different
 * pids. */
static bool proc_is_ours(void) {
    char text[32] = {0};
    return readlink("/proc/self", text, sizeof text - 1) > 0 && strtol(text, NULL, 10) == getpid();
}

void comm_process_find(comm_process *out) {
    stat_fields found;
    struct stat st;
    comm_boot_id boot;
    *out = (comm_process){.pid = getpid()};
    comm_place_boot(&boot);
    out->kernel = core_crc64(&boot, sizeof boot);
    if (!proc_is_ours() || read_stat("/proc/self/stat", &found) != 0) return;
    out->start = found.start;
    if (stat("/proc/self/ns/pid", &st) == 0) out->name_space = st.st_ino;
    if (stat("/proc/self/ns/time", &st) == 0) out->name_space ^= (uint64_t)st.st_ino << 32;
}

bool comm_process_can_check(const comm_process *own, const comm_process *other) {
    return own->name_space && own->name_space == other->name_space &&
           own->kernel == other->kernel && other->pid > 0;
}

bool comm_process_has_ended(const comm_process *own, const comm_process *other) {
    char path[64];
    stat_fields now;
    if (!comm_process_can_check(own, other)) return false;
    if (kill((pid_t)other->pid, 0) != 0 && errno == ESRCH) return true;
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)other->pid);
    if (read_stat(path, &now) != 0)
        return false; /* hidden, or just ended: the next check finds that */
    if (now.start != other->start) return true;
    return (now.state == 'Z' || now.state == 'X') && now.threads <= 1;
}

#define LOOK_NS 100000000 /* between two checks of processes */

comm_watch *comm_watch_create(int rank, int size) {
    comm_watch *watch = calloc(1, sizeof *watch + (size_t)size * sizeof *watch->processes);
    if (!watch) return NULL;
    watch->rank = rank;
    watch->size = size;
    atomic_flag_clear(&watch->is_receiving);
    atomic_store(&watch->users, 1);
    return watch;
}

comm_watch *comm_watch_share(comm_watch *watch) {
    atomic_fetch_add(&watch->users, 1);
    return watch;
}

void comm_watch_release(comm_watch *watch) {
    if (watch && atomic_fetch_sub(&watch->users, 1) == 1) free(watch);
}

int comm_watch_limit_of(double seconds, uint64_t *ns) {
    if (!(seconds >= 0 && seconds < 1e9)) return -1; /* this includes NaN */
    *ns = (uint64_t)(seconds * 1e9) + (seconds > 0 && seconds < 1e-9);
    return 0;
}

int comm_watch_read_limit(const char *seconds, uint64_t *ns) {
    char *end;
    if (!seconds || !*seconds) seconds = "0";
    const double value = strtod(seconds, &end);
    return end == seconds || *end ? -1 : comm_watch_limit_of(value, ns);
}

static comm_failure load_failure(_Atomic comm_failure *from) { return atomic_load(from); }

comm_failure comm_watch_failure(comm_watch *watch) {
    comm_failure failure = load_failure(&watch->failure);
    if (failure.why || !watch->shared) return failure;
    failure = load_failure(watch->shared);
    if (failure.why) atomic_store(&watch->failure, failure);
    return failure;
}

bool comm_watch_is_broken(comm_watch *watch) { return comm_watch_failure(watch).why != 0; }

void comm_watch_break(comm_watch *watch, comm_cause why, int code, int rank) {
    comm_failure none = {0};
    const comm_failure failure = {(int16_t)why, (int16_t)code, rank};
    if (watch->shared) atomic_compare_exchange_strong(watch->shared, &none, failure);
    if (comm_watch_is_broken(watch)) return;
    none = (comm_failure){0};
    atomic_compare_exchange_strong(&watch->failure, &none, failure);
}

bool comm_watch_has_ended(const comm_watch *watch, int rank, int *which) {
    const comm_process *own = &watch->processes[watch->rank];
    for (int r = rank < 0 ? 0 : rank; r < (rank < 0 ? watch->size : rank + 1); r++) {
        if (r == watch->rank || !comm_process_has_ended(own, &watch->processes[r])) continue;
        *which = r;
        return true;
    }
    return false;
}

int64_t comm_watch_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

comm_waiting comm_watch_wait(comm_watch *watch, comm_patience *p) {
    int64_t now = comm_watch_clock();
    if (comm_watch_is_broken(watch)) return COMM_BROKEN;
    if (!p->began) p->began = p->checked_at = now;
    if (now - p->checked_at > LOOK_NS) {
        p->checked_at = now;
        return COMM_CHECK;
    }
    const uint64_t limit = atomic_load(&watch->limit_ns);
    return limit && (uint64_t)(now - p->began) > limit ? COMM_TIMED_OUT : COMM_CONTINUE;
}

static int compare_keys(const void *a, const void *b, void *keys) {
    const int x = *(const int *)a, y = *(const int *)b;
    const uint64_t *key = keys;
    if (key[x] != key[y]) return key[x] < key[y] ? -1 : 1;
    return x - y;
}

/* The groups and their lists are one block of memory. */
comm_groups *comm_groups_allocate(int size) {
    const size_t n = (size_t)size;
    comm_groups *g = calloc(1, sizeof *g + (3 * n + 1) * sizeof(int));
    if (!g) return NULL;
    g->of = (int *)(g + 1);
    g->ranks = g->of + n;
    g->first = g->ranks + n;
    atomic_store(&g->users, 1);
    return g;
}

/* of[rank] is the lowest rank of its group at first, and becomes the group's number. */
static void number_groups(comm_groups *g, int rank, int size) {
    for (int r = 0; r < size; r++) g->of[r] = g->of[r] == r ? g->n++ : g->of[g->of[r]];
    for (int r = 0; r < size; r++) g->first[g->of[r] + 1]++;
    for (int i = 0; i < g->n; i++) g->first[i + 1] += g->first[i];
    for (int r = 0; r < size; r++) g->ranks[g->first[g->of[r]]++] = r;
    for (int i = g->n; i > 0; i--) g->first[i] = g->first[i - 1];
    g->first[0] = 0;
    g->own = g->of[rank];
}

int comm_groups_largest(const comm_groups *g) {
    int most = 0;
    for (int i = 0; i < g->n; i++)
        if (comm_groups_size(g, i) > most) most = comm_groups_size(g, i);
    return most;
}

void comm_groups_fill(comm_groups *g, int rank, int size, const uint64_t *keys) {
    int *sorted = g->ranks; /* temporarily */
    for (int r = 0; r < size; r++) sorted[r] = r;
    qsort_r(sorted, (size_t)size, sizeof *sorted, compare_keys, (void *)keys);
    for (int i = 0, lowest = 0; i < size; i++) {
        if (i == 0 || keys[sorted[i]] != keys[sorted[i - 1]]) lowest = sorted[i];
        g->of[sorted[i]] = lowest;
    }
    number_groups(g, rank, size);
}

comm_groups *comm_groups_make(int rank, int size, const uint64_t *keys) {
    comm_groups *g = comm_groups_allocate(size);
    if (g) comm_groups_fill(g, rank, size, keys);
    return g;
}

comm_groups *comm_groups_make_single(int rank, int size) {
    comm_groups *g = comm_groups_allocate(size);
    for (int r = 0; g && r < size; r++) g->of[r] = r;
    if (g) number_groups(g, rank, size);
    return g;
}

comm_groups *comm_groups_share(comm_groups *groups) {
    if (groups) atomic_fetch_add(&groups->users, 1);
    return groups;
}

void comm_groups_release(comm_groups *groups) {
    if (groups && atomic_fetch_sub(&groups->users, 1) == 1) free(groups);
}
