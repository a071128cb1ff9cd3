/* A list of stores: what the caller passed, and its state. */
#pragma once

#include "dcp/tiers.h"
#include "save/context.h"
#include "store/store.h"

struct tiers_drain;

typedef struct tier {
    dcp_tier given; /* strings are copies; the path has its braces still */
    char *path;     /* this rank's */
    char *domain;   /* this rank's; NULL: its host */
    dcp_comm *comm; /* for filling it; NULL: that can have no thread */
    dcp_store *store;
    int asked;   /* due at the next save, whatever `every` says */
    int failed;  /* the last save into it failed */
    int waiting; /* is to be filled once the save in flight has ended */
    /* What is remembered of it; only tiers/tier_list.c changes that. `step` is what it got last. It
     * did not get `missed`, so it is due until it has `made_good`. */
    uint64_t step, missed, made_good;
    int has_step, has_missed, is_made_good;
    /* What its store has yet to learn, once no thread works on it; `intact` is pinned until then.
     */
    uint64_t intact, unread;
    int tells_intact, tells_unread;
    int is_marked; /* the caller named `intact`, and it was not checked yet that it exists */
    struct tiers_drain *drain; /* NULL: it is not being filled */
} tier;

struct dcp_tiers {
    dcp_comm *comm; /* borrowed */
    pid_t process;  /* that opened the list */
    tier *list;
    size_t n;
    dcp_log_fn log;
    void *log_ctx;
    void (*on_filled)(void *ctx, size_t i, uint64_t step, double begin, double end);
    void *filled_ctx;
    char *folder;   /* the working directory in which it was opened; NULL: unknown */
    int loads_only; /* dcp_tiers_options.loads_only */
    void (*on_fill_progress)(void *ctx, uint64_t done, uint64_t total);
    void *fill_progress_ctx;
    int rebuilt;   /* files of the loaded step that were rebuilt */
    int goes_back; /* steps after back_to are to be set aside */
    uint64_t back_to;
    save_memory memory; /* lent to the store that is saved into */
    dcp_saving *flight; /* NULL: none */
    tier *flight_tier;
    uint64_t flight_step;
    dcp_save_options given; /* of the save in flight; about_json is a copy */
};

/* Replaces {rank}, {host} and {env:NAME} in the path; *out is malloc'd. DCP_ERR_ARG: other braces,
 * a variable that is not set, or any of them in a shared store's path. */
int tiers_given_path(const dcp_tier *given, int rank, char **out, dcp_error *err);

/* Does the same for the failure domain; *out is NULL if none is named. */
int tiers_given_domain(const dcp_tier *given, int rank, char **out, dcp_error *err);

/* Copies element i of the caller's list into the library's struct (dcp/size.h). */
int tiers_given_take(const dcp_tier *list, size_t i, dcp_tier *own, dcp_error *err);

/* Collective: checks that all ranks have the same list, except for paths and domains. Copies it to
 * `own`, which has room for DCP_MAX_TIERS; its strings are the caller's. */
int tiers_given_agree(dcp_comm *comm, const dcp_tier *list, size_t n, dcp_tier *own,
                      dcp_error *err);

/* Logs on rank 0. */
void tiers_log(const dcp_tiers *tiers, dcp_log_level level, const char *fmt, ...) DCP_PRINTF(3, 4);

/* Logs that a save of `step` into the tier failed, when no caller gets that status. */
void tiers_warn(const dcp_tiers *tiers, const tier *t, uint64_t step, const dcp_error *err);

/* What the list remembers of its stores. Only the caller's thread uses it, so nothing here waits. A
 * store itself is changed only while no thread works on it (tiers_tell_store). */

/* Returns true if the run has gone back to before the step: the next save sets it aside, and what
 * is remembered of it no longer counts. */
int tiers_is_abandoned(const dcp_tiers *tiers, uint64_t step);

/* Returns true if the store has the step, as far as is known. */
int tiers_has_step(const dcp_tiers *tiers, const tier *t, uint64_t step);

/* Returns true if the store is due, whatever its `every` says. */
int tiers_is_owed(const dcp_tiers *tiers, const tier *t);

/* Notes how a save of `step` into the tier ended. */
void tiers_note(tier *t, uint64_t step, int status);

/* Notes that the tier did not get the step, since the save that it was to be filled from failed. */
void tiers_note_missed(tier *t, uint64_t step);

/* Notes that the tier's copy of the step is intact. From now on `keep` does not remove it. */
void tiers_note_intact(const dcp_tiers *tiers, tier *t, uint64_t step);

/* Collective. Looks for the steps that the caller has marked as intact, and forgets those that
 * their stores don't have. No save may be in flight. */
int tiers_check_marks(dcp_tiers *tiers, dcp_error *err);

/* Return what the caller has marked, or requested, since the last save, as one number. */
uint64_t tiers_marks(const dcp_tiers *tiers);
uint64_t tiers_asks(const dcp_tiers *tiers);

/* Notes that the tier's copy of the step is damaged or lost: the tier does not have the step. */
void tiers_note_lost(tier *t, uint64_t step);

/* Notes that nobody has read the tier's copy of the step, if it has one: a save of the step may
 * replace it. */
void tiers_note_unread(const dcp_tiers *tiers, tier *t, uint64_t step);

/* Passes what was noted while a thread was working on the tier's store on to the store, unless one
 * still is. */
void tiers_tell_store(const dcp_tiers *tiers, tier *t);

/* Forgets what is remembered of abandoned steps. */
void tiers_forget_abandoned(const dcp_tiers *tiers, tier *t);

/* A run that goes back to an earlier step. */

/* Collective: if the run has gone back, ends what is being filled, forgets later steps, and sets
 * them aside in all stores, also in those that the next save does not go to. No save may be in
 * flight. */
int tiers_go_back(dcp_tiers *tiers, dcp_error *err);
