#include "timeline.h"

#include <stdlib.h>

#include "../fail.h"

int timeline_init(timeline *tl, size_t room, dcp_error *err) {
    *tl = (timeline){.room = room};
    if (room) tl->events = malloc(room * sizeof *tl->events);
    return tl->events || !room ? DCP_OK : trainer_fail_memory(err, room * sizeof *tl->events);
}

void timeline_free(timeline *tl) { free(tl->events); }

void timeline_add(timeline *tl, timeline_kind kind, long which, double begin, double end) {
    if (!tl) return;
    if (kind < TIMELINE_SPENT) tl->spent[kind] += end - begin;
    if (!tl->events) return;
    if (tl->n < tl->room)
        tl->events[tl->n++] = (timeline_event){begin, end, kind, (int32_t)which};
    else
        tl->dropped++;
}

void timeline_clear(timeline *tl) { tl->n = 0; }
