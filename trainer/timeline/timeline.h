/* What a rank does, when, and for how long: seconds of each kind of work, and, where a trace is
 * asked for, every piece of it. Without a trace a piece of work costs one addition. Times are
 * MPI_Wtime's of this rank. Used by one thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <dcp/error.h>

typedef enum timeline_kind {
    /* Of the training thread: no two of them at once. */
    TIMELINE_DATA,
    TIMELINE_FORWARD,
    TIMELINE_BACKWARD,
    TIMELINE_WAIT,   /* for the gather of a unit that is needed now */
    TIMELINE_REDUCE, /* a unit's gradients, as far as the thread is kept from computing */
    TIMELINE_OPTIMIZER,
    TIMELINE_STALL,    /* waiting for a save */
    TIMELINE_EVALUATE, /* with all that it waits for and reads */
    TIMELINE_SPENT,    /* how many the above are */
    /* Beside it. */
    TIMELINE_GATHER = TIMELINE_SPENT, /* of a unit, from its start to its end */
    TIMELINE_SUM,                     /* of a unit's gradients, likewise */
    TIMELINE_FILL,                    /* of a slower store with a step, in the background */
    TIMELINE_SAVE, /* of a step, by the thread that saves; then its pieces, as dcp_phase has them */
    TIMELINE_SAVE_PLAN,
    TIMELINE_SAVE_GATHER,
    TIMELINE_SAVE_COPY,
    TIMELINE_SAVE_WRITE,
    TIMELINE_SAVE_SYNC,
    TIMELINE_SAVE_PUBLISH,
    TIMELINE_KINDS,
} timeline_kind;

typedef struct timeline_event {
    double begin, end;
    uint16_t kind, lane; /* lane: of what may overlap, gathers and fills; those of one do not */
    int32_t which;       /* the unit; of a save or a fill its step; -1: none */
} timeline_event;

enum { TIMELINE_LANES = 16 }; /* more gathers at once share the last one */

typedef struct timeline {
    double spent[TIMELINE_SPENT]; /* seconds since the start of the run */
    timeline_event *events;       /* NULL: no trace is asked for */
    size_t n, room;
    uint64_t dropped; /* that found no room */
    double lane_end[TIMELINE_LANES];
    double ahead; /* MPI_Wtime, of CLOCK_MONOTONIC */
} timeline;

/* Room for `room` events from one timeline_clear to the next; 0: only seconds are kept. */
int timeline_init(timeline *tl, size_t room, dcp_error *err);
void timeline_free(timeline *tl);

/* Notes a piece of work that is over. tl may be NULL. */
void timeline_add(timeline *tl, timeline_kind kind, long which, double begin, double end);
/* How long a device has been at a kind of work since the start, by its own clock, takes the place
 * of how long this rank was asking for it. */
void timeline_set_device(timeline *tl, timeline_kind kind, double seconds);
/* Notes a piece of work of libdcp's, which goes by CLOCK_MONOTONIC. */
void timeline_add_monotonic(timeline *tl, timeline_kind kind, long which, double begin, double end);
/* Notes a fill of a store, as libdcp tells of it; `tl`: the timeline. */
void timeline_add_fill(void *tl, size_t store, uint64_t step, double begin, double end);
/* Forgets the events, once they are written. */
void timeline_clear(timeline *tl);
