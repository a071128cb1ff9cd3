/* What a save or load tells its caller while bytes move, and asks it: how far it is, how long its
 * phases took, when the caller's memory is free, and whether to give up. */
#pragma once

#include <stdint.h>

#include "comm/stop.h"
#include "dcp/save.h"

typedef struct move_progress {
    void (*on_progress)(void *ctx, uint64_t done, uint64_t total); /* may be NULL */
    void *progress_ctx;
    void (*on_phase)(void *ctx, dcp_phase phase, double begin, double end); /* may be NULL */
    void *phase_ctx;
    uint64_t done, total; /* bytes of this rank */
    uint64_t untold;      /* since it was told last */
    comm_stop stop;       /* asked as often */
    /* Of a save in flight, else NULL: the memory has been read; whether somebody waits for that. */
    void (*released)(void *ctx);
    int (*is_awaited)(void *ctx);
    void *ctx;
    uint64_t staging_bytes; /* to be copied at most, to release the memory sooner */
} move_progress;

/* `bytes` more were written or handed on. */
void move_progress_written(move_progress *progress, uint64_t bytes);
/* They were only read: a caller whose memory is mapped from a file may let go of them. */
void move_progress_read(move_progress *progress, uint64_t bytes);

/* DCP_ERR_CANCELLED once the caller, or another rank, gave up: what follows need not be done. NULL:
 * never. */
int move_progress_status(const move_progress *progress, dcp_error *err);
/* The same, but asks first: where the steps are long, and before what cannot be taken back. */
int move_progress_ask(move_progress *progress, dcp_error *err);

/* A phase has ended: tells how long it took. `progress` may be NULL. */
double move_progress_phase(const move_progress *progress, dcp_phase phase, double begin,
                           double end);

/* The caller's memory is not needed any more. */
void move_progress_release(const move_progress *progress);

/* Whether it is worth copying the `left` bytes that are still to be read. */
int move_progress_wants_copy(const move_progress *progress, uint64_t left);
