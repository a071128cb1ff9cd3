#include "timeline.h"

#include <stdlib.h>

#include "../fail.h"

int timeline_init(timeline *tl, size_t room, dcp_error *err) {
    *tl = (timeline){.room = room};
    if (room) tl->events = malloc(room * sizeof *tl->events);
    return tl->events || !room ? DCP_OK : trainer_fail_memory(err, room * sizeof *tl->events);
}

void timeline_free(timeline *tl) { free(tl->events); }

/* The first lane that is free at `begin`. Pieces are noted in the order in which they end. */
static uint16_t take_lane(timeline *tl, double begin, double end) {
    uint16_t lane = 0;
    while (lane + 1 < TIMELINE_LANES && tl->lane_end[lane] > begin) lane++;
    tl->lane_end[lane] = end;
    return lane;
}

void timeline_add(timeline *tl, timeline_kind kind, long which, double begin, double end) {
    if (!tl) return;
    if (kind < TIMELINE_SPENT) tl->spent[kind] += end - begin;
    if (!tl->events) return;
    if (tl->n < tl->room)
        tl->events[tl->n++] = (timeline_event){
            begin, end, (uint16_t)kind, kind == TIMELINE_GATHER ? take_lane(tl, begin, end) : 0,
            (int32_t)which};
    else
        tl->dropped++;
}

void timeline_clear(timeline *tl) { tl->n = 0; }
