/* The list of stores, from inside. */
#ifndef DCP_TIERS_TIERS_H
#define DCP_TIERS_TIERS_H

#include <pthread.h>

#include "comm/comm.h"
#include "dcp/tiers.h"
#include "store/store.h"

/* A store that is being filled from a faster one's step. */
typedef struct drain {
    dcp_comm *comm;  /* of the store that is filled */
    dcp_store *to;   /* nobody else touches it meanwhile */
    dcp_store *from; /* its step is pinned */
    char *path;      /* of the step's folder on this rank */
    char *about;     /* options.about_json */
    uint64_t step;
    dcp_save_options options;
    double begin, end;
    int status;
    dcp_error error;
    int has_thread;
    pthread_t thread;
    pthread_mutex_t lock; /* of: */
    int done;
} drain;

typedef struct tier {
    dcp_tier given; /* path and redundancy are copies, the path as it was given */
    char *path;     /* this rank's */
    dcp_comm *comm; /* of drains into it; NULL: there can be no thread */
    dcp_store *store;
    int owed;      /* due, whatever `every` says: the last save didn't get here */
    int failed;    /* and failed here */
    int waiting;   /* to be filled once the save in flight has ended */
    uint64_t step; /* the one that it got last */
    int has_step;
    drain *drain; /* NULL: it is not being filled */
} tier;

struct dcp_tiers {
    dcp_comm *comm; /* borrowed */
    tier *list;
    size_t n;
    dcp_log_fn log;
    void *log_ctx;
    void (*on_filled)(void *ctx, size_t i, uint64_t step, double begin, double end);
    void *filled_ctx;
    int set_aside;           /* later steps have been, or there are none */
    struct staging *staging; /* page-locked memory, lent to the store that is saved into */
    dcp_saving *flight;      /* NULL: none */
    tier *flight_tier;
    uint64_t flight_step;
    dcp_save_options given; /* to the save in flight; about_json is a copy */
};

/* The path with {rank} and {host} replaced, malloc'd. DCP_ERR_ARG: other braces, or any of them in
 * a shared store's path. */
int tiers_path(const dcp_tier *given, int rank, char **out, dcp_error *err);

/* Collective: all ranks have the same list, but for the paths. */
int tiers_agree(dcp_comm *comm, const dcp_tier *list, size_t n, dcp_error *err);

/* On rank 0. */
void tiers_log(const dcp_tiers *tiers, dcp_log_level level, const char *fmt, ...) DCP_PRINTF(3, 4);

/* Notes how a save of `step` into the tier ended. */
void tier_note(tier *t, uint64_t step, int status);
/* Logs that it failed, where no caller gets to know. */
void tier_warn(const dcp_tiers *tiers, const tier *t, uint64_t step, const dcp_error *err);

/* Collective: begins to fill `to` from the step that `from` got last. Where there can be no thread,
 * it is filled when this returns. Failures are noted and logged. */
void drain_start(const dcp_tiers *tiers, tier *to, tier *from);
/* 1 where drain_finish would not wait on this rank. */
int drain_is_done(tier *t);
/* Waits for the end, and notes the outcome. Nothing happens where the tier is not being filled. */
void drain_finish(const dcp_tiers *tiers, tier *t);

#endif
