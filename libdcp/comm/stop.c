/* In shared memory lies one number, of the operation that was given up last, and by which rank. As
 * operations are numbered, nobody has to take it back. */
#include "comm/stop.h"

#include "core/fail.h"
#include "core/system.h"
#include "dcp/save.h"

void comm_stop_begin(comm_stop *stop, dcp_comm *comm) {
    stop->comm = comm;
    stop->number = ++comm->operations;
    stop->stopped = 0;
}

comm_stop comm_stop_of(dcp_comm *comm, const char *what, const char *outcome) {
    comm_stop stop = {.what = what, .outcome = outcome};
    comm_stop_begin(&stop, comm);
    return stop;
}

static void note_stop(comm_stop *stop, int rank) {
    stop->stopped = 1;
    stop->rank = rank;
}

static void look_at_others(comm_stop *stop, _Atomic uint64_t *told) {
    uint64_t seen = atomic_load_explicit(told, memory_order_relaxed);
    if (seen >> 32 == stop->number) note_stop(stop, (int)(uint32_t)seen);
}

static int is_asked_for(const comm_stop *stop) {
    if (stop->cancelled && atomic_load(stop->cancelled)) return 1;
    if (stop->asked && stop->asked(stop->ctx)) return 1;
    return stop->comm && stop->comm->stop && stop->comm->stop(stop->comm->stop_ctx);
}

int comm_stop_ask(comm_stop *stop, dcp_error *err) {
    if (!stop) return DCP_OK;
    _Atomic uint64_t *told = stop->comm && stop->comm->shared ? stop->comm->shared->stopped : NULL;
    if (!stop->stopped && told) look_at_others(stop, told);
    if (!stop->stopped && is_asked_for(stop)) {
        note_stop(stop, stop->comm ? stop->comm->rank : 0);
        if (told) atomic_store(told, (uint64_t)stop->number << 32 | (uint32_t)stop->rank);
    }
    return comm_stop_status(stop, err);
}

int comm_stop_status(const comm_stop *stop, dcp_error *err) {
    if (!stop || !stop->stopped) return DCP_OK;
    if (!stop->comm || stop->comm->size == 1)
        return core_fail(err, DCP_ERR_CANCELLED, "%s was cancelled: %s", stop->what, stop->outcome);
    core_fail(err, DCP_ERR_CANCELLED, "%s was cancelled by rank %d: %s", stop->what, stop->rank,
              stop->outcome);
    if (err) err->rank = stop->rank; /* and not the first one that has seen it */
    return core_fail_rank(DCP_ERR_CANCELLED, stop->rank, err);
}

int dcp_stop_seldom(void *seldom) {
    dcp_seldom *s = seldom;
    if (!s || !s->stop) return 0;
    const double now = core_clock_now();
    if (s->asked > 0 && now - s->asked < s->seconds) return 0;
    s->asked = now;
    return s->stop(s->ctx);
}
