/* The list of stores: as a caller gives it, and from inside. */
#pragma once

#include "dcp/tiers.h"
#include "save/context.h"
#include "store/store.h"

struct tiers_drain;

typedef struct tier {
    dcp_tier given; /* strings are copies, the path as it was given */
    char *path;     /* this rank's */
    char *domain;   /* this rank's; NULL: its host */
    dcp_comm *comm; /* of drains into it; NULL: there can be no thread */
    dcp_store *store;
    int asked;   /* due at the next save, whatever `every` says */
    int failed;  /* the last save failed here */
    int waiting; /* to be filled once the save in flight has ended */
    /* What it remembers is changed in tiers/tiers.c. `missed` did not get here, which makes it due
     * until `made_good` did. */
    uint64_t step, missed, made_good; /* `step`: the one that it got last */
    int has_step, has_missed, is_made_good;
    /* For its store, which is told once no thread works on it; `intact` is pinned until then. */
    uint64_t intact, unread;
    int tells_intact, tells_unread;
    int is_marked; /* `intact` was named by the caller, and nobody has looked whether it is there */
    struct tiers_drain *drain; /* NULL: it is not being filled */
} tier;

struct dcp_tiers {
    dcp_comm *comm; /* borrowed */
    pid_t process;  /* that opened them */
    tier *list;
    size_t n;
    dcp_log_fn log;
    void *log_ctx;
    void (*on_filled)(void *ctx, size_t i, uint64_t step, double begin, double end);
    void *filled_ctx;
    char *folder;   /* the working directory in which it was opened; NULL: not known */
    int loads_only; /* dcp_tiers_options */
    void (*on_fill_progress)(void *ctx, uint64_t done, uint64_t total);
    void *fill_progress_ctx;
    int rebuilt;   /* files of the step that is loaded */
    int goes_back; /* steps after back_to are to be set aside */
    uint64_t back_to;
    save_memory memory; /* lent to the store that is saved into */
    dcp_saving *flight; /* NULL: none */
    tier *flight_tier;
    uint64_t flight_step;
    dcp_save_options given; /* to the save in flight; about_json is a copy */
};

/* The path with {rank}, {host} and {env:NAME} replaced, malloc'd. DCP_ERR_ARG: other braces, a
 * variable that is not set, or any of them in a shared store's path. */
int tiers_given_path(const dcp_tier *given, int rank, char **out, dcp_error *err);

/* The same of the failure domain; *out is NULL where none is named. */
int tiers_given_domain(const dcp_tier *given, int rank, char **out, dcp_error *err);

/* Element i of the caller's list, in the library's struct (dcp/size.h). */
int tiers_given_take(const dcp_tier *list, size_t i, dcp_tier *own, dcp_error *err);

/* Collective: all ranks have the same list, but for the paths and domains. It is copied to `own`,
 * DCP_MAX_TIERS of them; its strings are the caller's. */
int tiers_given_agree(dcp_comm *comm, const dcp_tier *list, size_t n, dcp_tier *own,
                      dcp_error *err);

/* On rank 0. */
void tiers_log(const dcp_tiers *tiers, dcp_log_level level, const char *fmt, ...) DCP_PRINTF(3, 4);

/* Logs that a save of `step` into the tier failed, where no caller gets to know. */
void tiers_warn(const dcp_tiers *tiers, const tier *t, uint64_t step, const dcp_error *err);

/* What the list remembers of its stores. The caller's thread alone touches it, so nothing here
 * waits. What a store itself has to know is told to it only while no thread works on it. */

/* Whether the run has gone back behind the step: what is remembered of it counts no more. The next
 * save sets it aside. */
int tiers_is_abandoned(const dcp_tiers *tiers, uint64_t step);

/* Whether the store has the step, as far as is known. */
int tiers_has_step(const dcp_tiers *tiers, const tier *t, uint64_t step);

/* Whether the store is due, whatever its `every` says. */
int tiers_is_owed(const dcp_tiers *tiers, const tier *t);

/* Notes how a save of `step` into the tier ended. */
void tiers_note(tier *t, uint64_t step, int status);

/* The step could not be saved into the tier, since the save that it was to be filled from failed.
 */
void tiers_note_missed(tier *t, uint64_t step);

/* The tier's copy of the step is intact. `keep` leaves it from now on. */
void tiers_note_intact(const dcp_tiers *tiers, tier *t, uint64_t step);

/* Collective. Looks for the steps that the caller has marked as intact, and forgets those that
 * their stores have not got. No save is in flight. */
int tiers_check_marks(dcp_tiers *tiers, dcp_error *err);

/* What the caller has marked, or asked for, since the last save, in one number for all stores. */
uint64_t tiers_marks(const dcp_tiers *tiers);
uint64_t tiers_asks(const dcp_tiers *tiers);

/* The tier's copy of the step is damaged or lost: it is none that the tier has. */
void tiers_note_lost(tier *t, uint64_t step);

/* A copy of the step that the tier is not known to have is replaced by a save of the step, as
 * nobody has read it. */
void tiers_note_unread(const dcp_tiers *tiers, tier *t, uint64_t step);

/* Tells the tier's store what was noted while a thread was working on it, unless one still is. */
void tiers_tell_store(const dcp_tiers *tiers, tier *t);

/* Forgets for good what is remembered of abandoned steps. */
void tiers_forget_abandoned(const dcp_tiers *tiers, tier *t);

/* Which step a list of stores loads: the newest that is whole, or an earlier one. */

/* A run that goes back to an earlier step. */

/* Collective: where the run has gone back, ends what is being filled, forgets all of later steps,
 * and sets them aside in all stores, whether the save that follows goes into any or not. No save is
 * in flight. */
int tiers_go_back(dcp_tiers *tiers, dcp_error *err);
