/* Which steps stay in a store, how others go, and recycled files. */
#pragma once

#include "store/store.h"

/* Recycled files: those of a step that was removed, which the next save overwrites.
 *
 * To overwrite a file costs less than to write a new one: the file system neither reserves nor
 * frees blocks, and a file in memory needs no zeroing. A store keeps the files of at most one step,
 * in `spare` of the writer's folder, until its next save or until it is closed.
 *
 * Only files are used that this store itself has written since it was opened, and that nobody else
 * can be reading: see io_is_alone. */

#define RECYCLE_FOLDER "spare"

/* Not collective. This rank has written the file that is open as `fd`, for the step. pages: a
 * fingerprint of which bytes it wrote; all others are zero. */
void store_recycle_note(dcp_store *store, uint64_t step, int fd, uint64_t pages);

/* Not collective. Moves the recycled file `name` to `path` and returns 1, where it was noted with
 * the same `pages`. Otherwise the file is removed, if there is one, and the return value is 0. */
int store_recycle_take(dcp_store *store, const char *name, uint64_t pages, const char *path);

/* Removes all recycled files; on ranks that don't lead, nothing. */
void store_recycle_drop(dcp_store *store);

/* Which steps stay in a store, and how the others go. */

/* Sets the complete step aside, and logs it with the reason. A leader. */
int store_abandon_step(dcp_store *store, const dcp_step *step, const char *why, dcp_error *err);

/* Sets the steps after store->continue_from aside, and logs it. */
int store_abandon(dcp_store *store, dcp_error *err);

/* Collective: sets the steps after store->continue_from aside now, not at the next publication.
 * DCP_ERR_NOT_FOUND: the directory was moved, and may come back with them. */
int store_set_aside(dcp_store *store, dcp_error *err);

/* Moves the entry `name` into the writer's folder, durably: `path` is its path there. */
int store_lose_name(dcp_store *store, const char *name, const char *path, dcp_error *err);

/* Moves the entry out of the way so that it is no step any more, durably, then removes it; where a
 * reader holds it, store_sweep does that later. */
int store_discard(dcp_store *store, const char *name, dcp_error *err);

/* The same of a step, unless a reader holds it: then it stays, and *kept = 1. */
int store_discard_unheld(dcp_store *store, const char *name, int *kept, dcp_error *err);

/* Removes the entry, which is no step; where a reader holds it, store_sweep does that later. */
int store_clear(dcp_store *store, const char *name, dcp_error *err);

/* Removes the entry, of the store's directory or of the writer's folder, which has lost its name;
 * where a reader holds it, or one of the folders in it, store_sweep does that later. */
int store_remove_trash(dcp_store *store, const char *trash, dcp_error *err);

/* Removes what readers held when it was discarded, and hold no more. On ranks that don't lead,
 * nothing. */
void store_sweep(dcp_store *store);

/* A leader's steps when one has been published. */
typedef struct store_kept {
    dcp_step *steps; /* ascending; to be freed */
    size_t n;
    bool takes_part;      /* a leader, with options.keep set */
    bool is_listed;       /* false: the steps could not be listed */
    bool are_same;        /* after a vote: all leaders keep the same steps, if all are listed */
    uint64_t fingerprint; /* of those to keep */
} store_kept;

/* Not collective: lists them where options.keep asks for it; others than leaders have none. A
 * failure is logged. */
void store_retain_look(dcp_store *store, store_kept *out);

/* Collective, after the publication of that step: leaders remove the steps that options.keep does
 * not keep, but for those that a reader holds, and log where that fails. Nothing goes where it is
 * not the store's newest step: then the newer ones are not this writer's. `kept` is as it was
 * after the vote. */
int store_retain(dcp_store *store, uint64_t published, const store_kept *kept, dcp_error *err);

/* While a step is pinned, `keep` leaves it. Any thread may call these, also while another one saves
 * into the store. A step that is pinned twice is unpinned twice. */
void store_pin(dcp_store *store, uint64_t step);
void store_unpin(dcp_store *store, uint64_t step);
int store_is_pinned(const dcp_store *store, uint64_t step);

/* NULL where memory is short. */
struct store_pins *store_pins_make(void);
void store_pins_free(struct store_pins *pins);

/* Collective where there are several nodes; of one, only the leader learns anything. The leader's
 * steps, freed by the caller also after a failure, and into *step the newest one before *step
 * (UINT64_MAX: of all) that every node has complete; *found = 0 where there is none. */
int store_newest(dcp_store *store, dcp_step **steps, size_t *n, uint64_t *step, int *found,
                 dcp_error *err);
/* What *step begins with there, so that steps that are about to be set aside don't count. */
uint64_t store_newest_limit(const dcp_store *store);
