/* A list of stores: the caller's description of each store, and the list's state. */
#pragma once

#include <stdbool.h>

#include "dcp/tiers.h"
#include "save/context.h"
#include "store/store.h"

struct tiers_drain;

typedef struct tier {
    dcp_tier given; /* strings are copies; braces in the path are not replaced */
    char *path;     /* this rank's path of the store */
    char *domain;   /* this rank's failure domain; NULL: its host */
    dcp_comm *comm; /* for filling the store; NULL: no thread can fill it */
    dcp_store *store;
    bool requested; /* due at the next save, regardless of `every` */
    bool failed;    /* the last save into it failed */
    bool waiting;   /* to be filled once the save in flight has ended */
    /* What the list knows about the store; changed only by tiers/tier_list.c. `step` is the last
     * step that it got. If the save of step `missed` failed, the store is due until it has got a
     * later step, which becomes `made_good`. */
    uint64_t step, missed, made_good;
    bool has_step, has_missed, is_made_good;
    /* What must be passed on to the store once no thread works on it. Until then `intact` is
     * pinned. */
    uint64_t intact, unread;
    bool intact_pending, unread_pending;
    bool is_marked;            /* the caller marked `intact`; not yet checked whether it exists */
    struct tiers_drain *drain; /* the filling of the store; NULL: it is not being filled */
} tier;

struct dcp_tiers {
    dcp_comm *comm; /* borrowed */
    pid_t process;  /* the process that opened the list */
    tier *list;
    size_t n;
    /* A copy of the list from the time when the save in flight began. While answers_as_before is
     * set, dcp_tiers_is_due and dcp_tiers_has use it, since dcp_tiers_wait_in_thread may change the
     * list at any time. */
    tier *before;
    bool answers_as_before;
    dcp_log_fn log;
    void *log_ctx;
    void (*on_filled)(void *ctx, size_t i, uint64_t step, double begin, double end);
    void *filled_ctx;
    int loads_only; /* dcp_tiers_options.loads_only */
    void (*on_fill_progress)(void *ctx, uint64_t done, uint64_t total);
    void *fill_progress_ctx;
    int rebuilt;    /* how many files of the loaded step were rebuilt */
    bool goes_back; /* steps after back_to are to be set aside */
    uint64_t back_to;
    save_memory memory; /* lent to the store that a save goes into */
    dcp_saving *flight; /* the save in flight; NULL: none */
    tier *flight_tier;
    uint64_t flight_step;
    dcp_save_options given; /* of the save in flight; about_json is a copy */
};

/* The store's own communicator or, if it has none, the list's. */
static inline dcp_comm *tiers_comm_of(const dcp_tiers *tiers, const tier *t) {
    return t->comm ? t->comm : tiers->comm;
}

/* Replaces {rank}, {host} and {env:NAME} in the path; *out is malloc'd. DCP_ERR_ARG: the path has
 * other braces, names a variable that is not set, or is a shared store's path with braces. */
int tiers_given_path(const dcp_tier *given, int rank, char **out, dcp_error *err);

/* Replaces the braces in the name of the failure domain in the same way; *out is NULL if no domain
 * is named. */
int tiers_given_domain(const dcp_tier *given, int rank, char **out, dcp_error *err);

/* Copies element i of the caller's list into the library's struct (dcp/size.h). */
int tiers_given_copy(const dcp_tier *list, size_t i, dcp_tier *own, dcp_error *err);

/* Collective: checks that all ranks have the same list, except for paths and domains. Copies it to
 * own[DCP_MAX_TIERS]; the strings remain the caller's. */
int tiers_given_agree(dcp_comm *comm, const dcp_tier *list, size_t n, dcp_tier *own,
                      dcp_error *err);

/* Logs on rank 0. */
void tiers_log(const dcp_tiers *tiers, dcp_log_level level, const char *fmt, ...) DCP_PRINTF(3, 4);

/* Logs that a save of `step` into the tier failed. Used if the save's status is not returned to the
 * caller. */
void tiers_warn(const dcp_tiers *tiers, const tier *t, uint64_t step, const dcp_error *err);

/* Functions for what the list knows about its stores. Only one thread at a time uses this
 * knowledge, the one that uses the list or the one in dcp_tiers_wait_in_thread, so none of these
 * functions waits. A store itself is changed only while no thread works on it (tiers_update_store).
 */

/* Returns the tier as it is, or as it was when the save in flight began, if only that is the same
 * on all ranks. For calls that are not collective. */
const tier *tiers_agreed(const dcp_tiers *tiers, size_t i);

/* From now on, tiers_agreed returns the tiers as they are now. */
void tiers_answer_as_before(dcp_tiers *tiers);

/* Ends that. Called by the thread that uses the list, once no thread can be in
 * dcp_tiers_wait_in_thread. */
void tiers_answer_as_of_now(dcp_tiers *tiers);

/* Returns true if the run has gone back to a step before this one. Then the next save sets this
 * step aside, and what the list knows about the step no longer counts. */
bool tiers_is_abandoned(const dcp_tiers *tiers, uint64_t step);

/* Returns true if, as far as the list knows, the store has the step. */
bool tiers_has_step(const dcp_tiers *tiers, const tier *t, uint64_t step);

/* Returns true if the store is due regardless of its `every`. */
bool tiers_is_overdue(const dcp_tiers *tiers, const tier *t);

/* Records the status of a save of `step` into the tier. */
void tiers_record_save(tier *t, uint64_t step, int status);

/* Records that the tier did not get the step: it was to be filled from a save, but that failed. */
void tiers_record_missed(tier *t, uint64_t step);

/* Records that the tier's copy of the step is intact. From now on `keep` does not remove it. */
void tiers_record_intact(const dcp_tiers *tiers, tier *t, uint64_t step);

/* Collective. Checks whether the steps that the caller has marked as intact exist, and forgets the
 * marks of steps that their stores don't have. No save may be in flight. */
int tiers_check_marks(dcp_tiers *tiers, dcp_error *err);

/* Returns a number that represents the steps that the caller has marked as intact since the last
 * save. It must be the same on all ranks. */
uint64_t tiers_marks(const dcp_tiers *tiers);
/* Returns the stores that the caller has requested with dcp_tiers_ask, one bit per store. They must
 * be the same on all ranks. */
uint64_t tiers_requests(const dcp_tiers *tiers);

/* Records that the tier's copy of the step is damaged or lost, so the tier does not have the
 * step. */
void tiers_record_lost(tier *t, uint64_t step);

/* Records that nobody has read the tier's copy of the step, if it has one, so a save of the step
 * may replace it. */
void tiers_record_unread(const dcp_tiers *tiers, tier *t, uint64_t step);

/* Passes on to the tier's store what was recorded while a thread was working on it. Does nothing if
 * a thread still works on it. */
void tiers_update_store(const dcp_tiers *tiers, tier *t);

/* Forgets what the list knows about abandoned steps. */
void tiers_forget_abandoned(const dcp_tiers *tiers, tier *t);

/* Handling a run that goes back to an earlier step. */

/* Gives all stores the same next save number, so a later save into any store has a higher number
 * than all saves so far, even if the clock was wrong. When a store that was absent returns, the
 * numbers show which of its steps are past (store/store.h). */
void tiers_number_alike(dcp_tiers *tiers);

/* Collective. If the run has gone back, cancels the fillings of later steps, waits for all
 * fillings, forgets later steps, and sets them aside in all stores, even in stores that the next
 * save does not go into. No save may be in flight. */
int tiers_go_back(dcp_tiers *tiers, dcp_error *err);
