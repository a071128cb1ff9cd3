/* What a rank does, when, and for how long: the seconds of each kind of work and, with a trace,
 * every piece of it. Without a trace a piece of work costs one addition. Times are this rank's
 * MPI_Wtime. Used by one thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <dcp/error.h>

typedef enum timeline_kind {
    /* Work of the training thread, which never overlaps: */
    TIMELINE_DATA,
    TIMELINE_FORWARD,
    TIMELINE_BACKWARD,
    TIMELINE_WAIT,   /* for the gather of a unit that is needed now */
    TIMELINE_REDUCE, /* of a unit's gradients: the part that keeps the thread from computing */
    TIMELINE_OPTIMIZER,
    TIMELINE_STALL,    /* waiting for a save */
    TIMELINE_EVALUATE, /* including everything that it waits for and reads */
    TIMELINE_SPENT,    /* the number of kinds above */
    /* Work beside the training thread: */
    TIMELINE_GATHER = TIMELINE_SPENT, /* of a unit, from its start to its end */
    TIMELINE_SUM,                     /* of a unit's gradients, from its start to its end */
    TIMELINE_FILL,                    /* of a slower store with a step, in the background */
    TIMELINE_SAVE, /* of a step, by the thread that saves; its phases follow, as in dcp_phase */
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
    uint16_t kind, lane; /* lanes separate gathers, and fills, that may overlap */
    int32_t which;       /* the unit; the step for a save or a fill; -1: none */
} timeline_event;

enum { TIMELINE_LANES = 16 }; /* further concurrent gathers share the last one */

typedef struct timeline {
    double spent[TIMELINE_SPENT]; /* seconds since the start of the run */
    timeline_event *events;       /* NULL without a trace */
    size_t n, room;
    uint64_t dropped; /* that found no room */
    double lane_end[TIMELINE_LANES];
    double ahead; /* MPI_Wtime minus CLOCK_MONOTONIC */
} timeline;

/* Allocates room for `room` events between two calls of timeline_clear; 0: stores only seconds. */
int timeline_init(timeline *tl, size_t room, dcp_error *err);
void timeline_free(timeline *tl);

/* Records a piece of work that has ended. tl may be NULL. */
void timeline_add(timeline *tl, timeline_kind kind, long which, double begin, double end);
/* Replaces the seconds that this rank spent requesting a kind of work by those that a device has
 * spent on it since the start, by the device's clock. */
void timeline_set_device(timeline *tl, timeline_kind kind, double seconds);
/* Records a piece of libdcp's work, whose times are CLOCK_MONOTONIC. */
void timeline_add_monotonic(timeline *tl, timeline_kind kind, long which, double begin, double end);
/* Records a fill of a store, as libdcp reports it. tl: the timeline. */
void timeline_add_fill(void *tl, size_t store, uint64_t step, double begin, double end);
/* Discards the events after they were written. */
void timeline_clear(timeline *tl);
