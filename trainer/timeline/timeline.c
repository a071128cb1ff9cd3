#include "timeline/timeline.h"

#include <mpi.h>
#include <stdlib.h>

#include "programs/fail.h"
#include "programs/program.h"

/* Returns MPI_Wtime minus CLOCK_MONOTONIC. The shortest of several measurements is the most
 * precise. */
static double compare_clocks(void) {
    double best = 1e300, ahead = 0;
    for (int i = 0; i < 8; i++) {
        const double before = program_now_s(), there = MPI_Wtime(), after = program_now_s();
        if (after - before >= best) continue;
        best = after - before;
        ahead = there - (before + after) / 2;
    }
    return ahead;
}

int timeline_init(timeline *tl, size_t room, dcp_error *err) {
    *tl = (timeline){.capacity = room};
    if (!room) return DCP_OK;
    tl->ahead = compare_clocks();
    tl->events = malloc(room * sizeof *tl->events);
    return tl->events ? DCP_OK : core_fail_memory(err, room * sizeof *tl->events);
}

void timeline_free(timeline *tl) {
    free(tl->events);
    *tl = (timeline){0};
}

/* Returns the first lane that is free at `begin`. Events are recorded in the order of their ends,
 * so a lane is free at `begin` if its last event ended before then. */
static uint16_t take_lane(timeline *tl, double begin, double end) {
    uint16_t lane = 0;
    while (lane + 1 < TIMELINE_LANES && tl->lane_end[lane] > begin) lane++;
    tl->lane_end[lane] = end;
    return lane;
}

static void keep(timeline *tl, timeline_event event) {
    if (tl->n < tl->capacity)
        tl->events[tl->n++] = event;
    else
        tl->dropped++;
}

void timeline_add(timeline *tl, timeline_kind kind, long which, double begin, double end) {
    if (!tl) return;
    if (kind < TIMELINE_SPENT) tl->spent[kind] += end - begin;
    if (!tl->events) return;
    const uint16_t lane = kind == TIMELINE_GATHER ? take_lane(tl, begin, end) : 0;
    keep(tl, (timeline_event){begin, end, (uint16_t)kind, lane, (int32_t)which});
}

void timeline_set_device(timeline *tl, timeline_kind kind, double seconds) {
    tl->spent[kind] = seconds;
}

void timeline_add_monotonic(timeline *tl, timeline_kind kind, long which, double begin,
                            double end) {
    timeline_add(tl, kind, which, begin + tl->ahead, end + tl->ahead);
}

void timeline_add_fill(void *ctx, size_t store, uint64_t step, double begin, double end) {
    timeline *tl = ctx;
    if (tl->events)
        keep(tl, (timeline_event){begin + tl->ahead, end + tl->ahead, TIMELINE_FILL,
                                  (uint16_t)store, (int32_t)step});
}

void timeline_clear(timeline *tl) { tl->n = 0; }
