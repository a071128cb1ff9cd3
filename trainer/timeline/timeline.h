/* Records how a rank spends its time: the total seconds of each kind of work and, with a trace,
 * each piece of work. Without a trace, recording a piece costs one addition. Times are this rank's
 * MPI_Wtime. Only one thread may use a timeline. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <dcp/error.h>

typedef enum timeline_kind {
    /* Work of the training thread; these kinds never overlap: */
    TIMELINE_DATA,
    TIMELINE_FORWARD,
    TIMELINE_BACKWARD,
    TIMELINE_WAIT,   /* waiting for the gather of a unit that is needed now */
    TIMELINE_REDUCE, /* reducing a unit's gradients: only the time in which the thread cannot
                      * compute */
    TIMELINE_OPTIMIZER,
    TIMELINE_STALL,    /* waiting for a save */
    TIMELINE_EVALUATE, /* an evaluation, including its waits and reads */
    TIMELINE_SPENT,    /* the number of kinds above */
    /* Work that overlaps with the training thread's: */
    TIMELINE_GATHER = TIMELINE_SPENT, /* the gather of a unit, from start to end */
    TIMELINE_SUM,                     /* the sum of a unit's gradients, from start to end */
    TIMELINE_FILL,                    /* copying a step to a slower store, in the background */
    TIMELINE_SAVE, /* a save, by the thread that saves; its phases follow, numbered as in
                    * dcp_phase */
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
    uint16_t kind, lane; /* lane: separates overlapping gathers; of a fill: the store */
    int32_t which;       /* the unit; the step for a save or a fill; -1: none */
} timeline_event;

enum { TIMELINE_LANES = 16 }; /* further concurrent gathers share the last lane */

typedef struct timeline {
    double spent[TIMELINE_SPENT]; /* seconds since the start of the run */
    timeline_event *events;       /* NULL without a trace */
    size_t n, capacity;
    uint64_t dropped; /* events for which there was no room */
    double lane_end[TIMELINE_LANES];
    double ahead; /* MPI_Wtime minus CLOCK_MONOTONIC */
} timeline;

/* Allocates room for `room` events; timeline_clear empties it. If `room` is 0, only seconds are
 * recorded. */
int timeline_init(timeline *tl, size_t room, dcp_error *err);
void timeline_free(timeline *tl);

/* Records a piece of work that has ended. tl may be NULL. */
void timeline_add(timeline *tl, timeline_kind kind, long which, double begin, double end);
/* Sets the total seconds of a kind of work to the seconds that a device has spent on it since the
 * start, by the device's clock. The thread's own time only covers the requests to the device. */
void timeline_set_device(timeline *tl, timeline_kind kind, double seconds);
/* Records a piece of work of libdcp, with times on CLOCK_MONOTONIC. */
void timeline_add_monotonic(timeline *tl, timeline_kind kind, long which, double begin, double end);
/* Records a fill of a store, with libdcp's times. A callback; tl is the timeline. */
void timeline_add_fill(void *tl, size_t store, uint64_t step, double begin, double end);
/* Discards all events, once they have been written to the trace. */
void timeline_clear(timeline *tl);
