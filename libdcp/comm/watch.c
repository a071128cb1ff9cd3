#include "comm/watch.h"

#include <stdlib.h>
#include <time.h>

#define LOOK_NS 100000000 /* between two looks at a process */

comm_watch *comm_watch_create(int rank, int size) {
    comm_watch *watch = calloc(1, sizeof *watch + (size_t)size * sizeof *watch->processes);
    if (!watch) return NULL;
    watch->rank = rank;
    watch->size = size;
    atomic_flag_clear(&watch->hears);
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
    if (!(seconds >= 0 && seconds < 1e9)) return -1; /* or it is no number */
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

int comm_watch_is_broken(comm_watch *watch) { return comm_watch_failure(watch).why != 0; }

void comm_watch_break(comm_watch *watch, comm_why why, int code, int rank) {
    comm_failure none = {0};
    const comm_failure failure = {(int16_t)why, (int16_t)code, rank};
    if (watch->shared) atomic_compare_exchange_strong(watch->shared, &none, failure);
    if (comm_watch_is_broken(watch)) return;
    none = (comm_failure){0};
    atomic_compare_exchange_strong(&watch->failure, &none, failure);
}

int comm_watch_has_ended(const comm_watch *watch, int rank, int *which) {
    const comm_process *own = &watch->processes[watch->rank];
    for (int r = rank < 0 ? 0 : rank; r < (rank < 0 ? watch->size : rank + 1); r++) {
        if (r == watch->rank || !comm_process_has_ended(own, &watch->processes[r])) continue;
        *which = r;
        return 1;
    }
    return 0;
}

int64_t comm_watch_clock(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

comm_waiting comm_watch_wait(comm_watch *watch, comm_patience *p) {
    int64_t now = comm_watch_clock();
    if (comm_watch_is_broken(watch)) return COMM_BROKEN;
    if (!p->began) p->began = p->looked = now;
    if (now - p->looked > LOOK_NS) {
        p->looked = now;
        return COMM_LOOK;
    }
    const uint64_t limit = atomic_load(&watch->limit_ns);
    return limit && (uint64_t)(now - p->began) > limit ? COMM_OVER : COMM_GOES_ON;
}
