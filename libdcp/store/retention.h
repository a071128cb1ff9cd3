/* Which steps remain in a store, how the others are removed, and recycled files. */
#pragma once

#include <stdbool.h>

#include "store/store.h"

/* Recycled files: the files of a removed step, which the next save overwrites.
 *
 * Overwriting a file takes less time than writing a new one: the file system neither reserves nor
 * frees blocks, and a file in memory need not be zeroed. A store retains the files of at most one
 * step, in `spare` of the writer's folder, until its next save or until it is closed.
 *
 * A file is recycled only if this store has written the file since the store was opened, and nobody
 * else can be reading it (io_is_alone). */

#define RECYCLE_FOLDER "spare"

/* Not collective. Records that this rank has written the file `fd` of the step. `pages` is a
 * fingerprint of the ranges that it wrote; all other bytes are zero. */
void store_recycle_record(dcp_store *store, uint64_t step, int fd, uint64_t pages);

/* Not collective. If the recycled file `name` was recorded with the same `pages`, moves it to
 * `path` and returns true. Otherwise removes the file, if it exists, and returns false. */
bool store_recycle_reuse(dcp_store *store, const char *name, uint64_t pages, const char *path);

/* Removes all recycled files. Does nothing on ranks that don't lead. */
void store_recycle_remove(dcp_store *store);

/* Which steps remain in a store, and how the others are removed. */

/* For a leader: sets aside the complete step, and logs that with the reason `why`. */
int store_abandon_step(dcp_store *store, const dcp_step *step, const char *why, dcp_error *err);

/* For a leader: sets aside the steps after store->continue_from, and logs that. */
int store_abandon(dcp_store *store, dcp_error *err);

/* Collective: sets aside the steps after store->continue_from now, not at the next publication.
 * DCP_ERR_NOT_FOUND: the directory was moved, and may come back with such steps. */
int store_set_aside(dcp_store *store, dcp_error *err);

/* Moves the entry `name` to `path`, which is in the writer's folder, durably. */
int store_move_to_writer_folder(dcp_store *store, const char *name, const char *path,
                                dcp_error *err);

/* Moves the entry away, durably, so it is no longer a step, and then removes it. If a reader holds
 * it, store_remove_released removes it later. */
int store_discard(dcp_store *store, const char *name, dcp_error *err);

/* Discards a step like store_discard, unless a reader holds it. In that case the step remains, and
 * *kept becomes true. */
int store_discard_unheld(dcp_store *store, const char *name, bool *kept, dcp_error *err);

/* Removes the entry, which is not a step. If a reader holds it, store_remove_released removes it
 * later. */
int store_clear(dcp_store *store, const char *name, dcp_error *err);

/* Removes the entry `trash`, which is not a step, or no longer one, from the store's directory or
 * the writer's folder. If a reader holds it, or one of the folders in it, store_remove_released
 * removes it later. */
int store_remove_trash(dcp_store *store, const char *trash, dcp_error *err);

/* Removes discarded steps that readers held when the steps were discarded and no longer hold. Does
 * nothing on ranks that don't lead. */
void store_remove_released(dcp_store *store);

/* The steps of a leader after a publication. */
typedef struct store_retention {
    dcp_step *steps; /* ascending; to be freed */
    size_t n;
    bool takes_part;      /* this rank is a leader, and options.keep is set */
    bool is_listed;       /* false: the steps could not be listed */
    bool are_same;        /* after the vote: all leaders keep the same steps; valid if is_listed */
    uint64_t fingerprint; /* of the steps to keep */
} store_retention;

/* Lists the steps of a leader if options.keep is set; on other ranks leaves *out unchanged. Not
 * collective. A failure is logged. */
void store_retain_list(dcp_store *store, store_retention *out);

/* Returns DCP_ERR_ARG if the options whose names begin with `keep` contradict each other. */
int store_retention_check(const dcp_store_options *options, dcp_error *err);

/* Collective; called after the publication of step `published`. Leaders remove the steps that
 * options.keep and the other policies do not retain, except steps that a reader holds. Failures to
 * remove are logged. If `published` is not the store's newest step, nothing is removed, since this
 * writer did not save the newer steps. `own` is the result of store_retain_list and the vote. */
int store_retain(dcp_store *store, uint64_t published, const store_retention *own, dcp_error *err);

/* Pins: `keep` never removes a pinned step. Any thread may call these functions, even while another
 * thread saves into the store. A step that was pinned twice must be unpinned twice. */
void store_pin(dcp_store *store, uint64_t step);
void store_unpin(dcp_store *store, uint64_t step);
bool store_is_pinned(const dcp_store *store, uint64_t step);

/* Returns NULL if memory is short. */
struct store_pins *store_pins_make(void);
void store_pins_free(struct store_pins *pins);

/* Collective if there are several nodes; with one node, only the leader gets the results. Sets
 * *steps to the leader's steps, which the caller frees, even after a failure. Sets *step to the
 * newest step below the given *step (UINT64_MAX: the newest of all) that is complete on every node.
 * Sets *found to false if there is none. */
int store_newest(dcp_store *store, dcp_step **steps, size_t *n, uint64_t *step, bool *found,
                 dcp_error *err);
/* Returns the initial *step for store_newest; it excludes steps that are about to be set aside. */
uint64_t store_newest_limit(const dcp_store *store);
