/* A list of stores, fastest first: for example memory, which gets every step, a node's disk, which
 * gets some steps, and the shared file system, which gets few. A save goes into the fastest store
 * that is due; slower stores that are due as well are filled in the background from the faster
 * store's files. A load uses the newest step of all stores.
 *
 *     dcp_tier list[] = {DCP_TIER_INIT, DCP_TIER_INIT};
 *     list[0].path = "/dev/shm/run", list[0].every = 1, list[0].keep = 2;
 *     list[0].is_private = 1, list[0].redundancy = "rs(2)";
 *     list[1].path = "/shared/run", list[1].every = 100, list[1].keep = 3;
 *     dcp_tiers_open(comm, list, 2, NULL, &tiers, &err);
 *     dcp_tiers_load(tiers, load_it, ctx, &step, &err);     then dcp_tiers_continue_from
 *     each step: dcp_tiers_fence; change the memory; if dcp_tiers_is_due, dcp_tiers_save_async
 *     dcp_tiers_save(tiers, step, state, json, NULL, 1, NULL, &err);    the last one
 *     dcp_tiers_close(tiers);
 *
 * If a save into a store fails, the log reports it and the store is due again at the next save; the
 * other stores continue. Every function that returns a status is collective, unless its comment
 * says otherwise. */
#ifndef DCP_TIERS_H
#define DCP_TIERS_H

#include "dcp/checkpoint.h"
#include "dcp/size.h"
#include "dcp/tier.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dcp_tiers_options {
    size_t size;      /* dcp/size.h */
    int replace;      /* as in dcp_store_options */
    const char *tool; /* as in dcp_store_options */
    /* As in dcp_store_options; threads that fill stores call it as well. May be NULL. */
    dcp_log_fn log;
    void *log_ctx;
    /* Called once the filling of store `i` of the list is known to have ended, successfully or not;
     * `begin` and `end` are seconds of CLOCK_MONOTONIC. Called from within dcp_tiers_save_async,
     * dcp_tiers_save, dcp_tiers_close, or a load that rebuilds a step in that store. May be
     * NULL. */
    void (*on_filled)(void *ctx, size_t i, uint64_t step, double begin, double end);
    void *filled_ctx;
    int take_over; /* as in dcp_store_options */
    /* Called like dcp_save_options.on_progress while a store is filled, from the thread that fills
     * it. May be NULL. */
    void (*on_fill_progress)(void *ctx, uint64_t done, uint64_t total);
    void *fill_progress_ctx;
    /* Nonzero: the function given to dcp_tiers_load uses only the checkpoint's JSON, its tensors,
     * and loads. Then, if some rank does not see every file of a private store's step, no rank
     * keeps a copy of all tables (dcp_checkpoint_open_private), and dcp_checkpoint_box, _piece and
     * _read fail for most tensors. If any rank passes 0, all ranks keep copies. */
    int loads_only;
} dcp_tiers_options;
#define DCP_TIERS_OPTIONS_INIT DCP_SIZED(dcp_tiers_options)

typedef struct dcp_tiers dcp_tiers;

/* Opens all stores of a list.
 *
 *   comm     borrowed until the close
 *   list     the stores, fastest first; copied
 *   n        their number, 1 to DCP_MAX_TIERS
 *   options  copied; may be NULL
 *
 * The errors are those of dcp_store_open, for the first store that cannot be opened. In addition:
 * DCP_ERR_COMM: `comm` could not be duplicated (dcp_comm_ops.duplicate).
 * DCP_ERR_MISMATCH: the ranks' lists differ.
 *
 * If a save in flight can have a thread (dcp_save_async), threads fill the stores, each over a
 * communicator of its own; otherwise dcp_tiers_wait and dcp_tiers_close fill them. The threads
 * never call HDF5, which is not thread-safe: dcp_tiers_wait opens the step that is read, and lays
 * out the files if its tensors or boxes have changed.
 *
 * A store's directory may be away for a while. The list can be opened without that store, and the
 * run may then continue from a step that is older than some steps of that store. When the store is
 * in the list again, dcp_tiers_open sets these newer steps aside, with a warning for each. It
 * learns which steps they are from a record in the store with the latest save, which covers the
 * last 64 times that the run began or went back. Steps that were saved while some store was away
 * form a branch if the run has since continued from an older step of that store. The steps of a
 * branch are set aside in the same way. Steps that another run saved before the store came into the
 * list remain. A step that was set aside can be opened by its path. If it is renamed to `step-...`
 * instead, it remains if a step of its store was saved since the run went back; otherwise it is set
 * aside again. */
DCP_API int dcp_tiers_open(dcp_comm *comm, const dcp_tier *list, size_t n,
                           const dcp_tiers_options *options, dcp_tiers **out, dcp_error *err);

/* Waits for the save in flight and for all stores that are being filled, then closes the stores.
 * Every rank must call it. Failures are logged. NULL is ignored. In a process forked from the one
 * that opened the stores, it only frees the copies. */
DCP_API void dcp_tiers_close(dcp_tiers *tiers);

/* Declares that the run continues from `step` (0: from the start), as dcp_store_continue_from does.
 * Not collective, but every rank must call it with the same step; otherwise the next save fails
 * with DCP_ERR_MISMATCH. The last call before a save counts. Waits for nothing.
 *
 * From now on, later steps no longer count: no store is regarded as having one, and no store is due
 * because it lacks one. The next save sets them aside. That save first waits for the save in flight
 * and for all stores that are being filled; it cancels the filling of stores with later steps, if
 * possible before these are published. Then it sets later steps aside in all stores, even if no
 * store is due, and only then saves. If a store's directory that contains later steps was moved
 * meanwhile, the save fails with DCP_ERR_NOT_FOUND until the directory is back. Afterwards every
 * store holds what it would hold if the later steps had never been saved, except for older steps
 * that `keep` removed in their favour. Before that save nothing is set aside; loads and
 * dcp_tiers_mark_intact set nothing aside. */
DCP_API int dcp_tiers_continue_from(dcp_tiers *tiers, uint64_t step, dcp_error *err);

/* Returns whether a save of `step` would go into any store: one that is due, or one whose last save
 * failed. The same on all ranks, without communication. */
DCP_API int dcp_tiers_is_due(const dcp_tiers *tiers, uint64_t step);

/* Makes store `i` of the list due at the next save, regardless of its `every`, even while it is
 * being filled with an earlier step. Not collective, but every rank must call it; otherwise the
 * next save fails with DCP_ERR_MISMATCH. DCP_ERR_ARG: there is no such store. */
DCP_API int dcp_tiers_ask(dcp_tiers *tiers, size_t i, dcp_error *err);

/* Returns how many files of the step that dcp_tiers_load is loading, or has loaded last, were
 * rebuilt. */
DCP_API int dcp_tiers_rebuilt(const dcp_tiers *tiers);

/* Returns whether store `i` of the list has `step`. A store has the step that was saved into it
 * last, or that dcp_tiers_load loaded from it. It no longer has a step that dcp_tiers_load has
 * since found damaged, a step that dcp_tiers_save did not find there, or a step from which the run
 * has gone back (dcp_tiers_continue_from). The same on all ranks, without communication. */
DCP_API int dcp_tiers_has(const dcp_tiers *tiers, size_t i, uint64_t step);

/* Returns dcp_store_survives of store `i` of the list; 0 if there is no such store. */
DCP_API int dcp_tiers_survives(const dcp_tiers *tiers, size_t i);

/* Does what dcp_store_mark_intact does for store `i`, after a step was loaded without
 * dcp_tiers_load; from then on the store has the step. Not collective, but every rank must call it
 * with the same step; otherwise the next save fails with DCP_ERR_MISMATCH. Waits for nothing. Call
 * it while the checkpoint is open if possible: once it is closed, `keep` may remove the step. If
 * the store has no such step, the next save drops the mark and logs this. */
DCP_API int dcp_tiers_mark_intact(dcp_tiers *tiers, size_t i, uint64_t step, dcp_error *err);

/* Does what dcp_save_prepare does, for all stores: they share the page-locked memory, which only
 * one store uses at a time. Not collective.
 * DCP_ERR_STATE: a save is in flight, or a store is being filled. */
DCP_API int dcp_tiers_prepare(dcp_tiers *tiers, const dcp_state *state,
                              const dcp_save_options *options, dcp_error *err);

/* Starts a save of `step` into the fastest store that is due. If none is due, or all that are due
 * have the step, it does nothing. The arguments, and how long each is borrowed, are as for
 * dcp_save_async, with dcp_tiers_fence and dcp_tiers_wait in place of dcp_save_fence and
 * dcp_save_wait. options->layout and options->shards are not used; the stores determine them.
 *
 * options->when_busy determines what happens while a save or the filling of a store is in progress.
 * With DCP_BUSY_WAIT, the call first waits for a save in flight, whose failure is logged, and for a
 * store that is due again while it is still being filled. With DCP_BUSY_REFUSE, the call fails with
 * DCP_ERR_BUSY if a save is in flight, and a store that is still being filled is left out this
 * time. If no save is in flight, DCP_ERR_BUSY means that another writer has a store
 * (dcp_store_open). A step that is being read to fill other stores remains, regardless of
 * `keep`. */
DCP_API int dcp_tiers_save_async(dcp_tiers *tiers, uint64_t step, const dcp_state *state,
                                 const char *json, const dcp_save_options *options, dcp_error *err);

/* Waits until the save in flight no longer needs this rank's memory. With options->copy_bytes, the
 * save does not need the memory once dcp_tiers_save_async has returned. */
DCP_API void dcp_tiers_fence(dcp_tiers *tiers);
/* Like dcp_save_fence_within. Also returns 1 if no save is in flight. */
DCP_API int dcp_tiers_fence_within(dcp_tiers *tiers, double seconds);

/* Returns dcp_save_is_done of the save in flight: 1, 0 (it becomes 1 without a fence or a wait)
 * or DCP_ERR_STATE (no thread runs the save: dcp_tiers_fence or dcp_tiers_wait does). Also returns
 * 1 if no save is in flight, even while other stores are being filled. DCP_ERR_ARG: tiers is
 * NULL. */
DCP_API int dcp_tiers_is_done(dcp_tiers *tiers);

/* Returns 0 while threads of this rank fill stores, 1 if no thread does: then a process may exit
 * without dcp_tiers_close, and each store has the steps that it was being filled with, unless the
 * filling failed, or dcp_tiers_wait_in_thread has left it to the thread that uses the list. Not
 * collective. DCP_ERR_ARG: tiers is NULL. */
DCP_API int dcp_tiers_is_filled(dcp_tiers *tiers);

/* Waits for the save in flight, then begins to fill the other stores that are due, which continues
 * in the background. Returns the save's outcome, or DCP_OK if none was in flight. `report` may be
 * NULL. */
DCP_API int dcp_tiers_wait(dcp_tiers *tiers, dcp_report *report, dcp_error *err);

/* Does what dcp_tiers_wait does, in a thread of the program: it needs no call by the threads that
 * use the list on other ranks, as long as every rank has a thread that calls it. These calls may
 * begin at different times. So that the ranks agree all the same, dcp_tiers_is_due and
 * dcp_tiers_has continue to answer as if the save were still in flight, until the next call of
 * dcp_tiers_save_async, dcp_tiers_save, dcp_tiers_wait, dcp_tiers_load or dcp_tiers_load_step.
 *
 *   store  receives the store that got the step, by its place in the list, or the number of stores
 *          if none did; may be NULL
 *
 * While it runs, other threads may call only these two functions and, until the save has ended
 * (dcp_tiers_is_done), dcp_tiers_is_done and dcp_tiers_fence_within. It calls HDF5. Some stores can
 * be filled only by the thread that uses the list, which does so in its next save or in the close:
 * the list's first store, if its last save has failed; stores whose engine calls MPI-IO; and all
 * stores if `comm` cannot be duplicated. */
DCP_API int dcp_tiers_wait_in_thread(dcp_tiers *tiers, size_t *store, dcp_report *report,
                                     dcp_error *err);

/* Waits for everything under way, then saves `step` from memory into one store after the other:
 * into each that is due, unless it has the step. Checks that a store still has the step before it
 * relies on this.
 *
 *   also_last  nonzero: also save into the last store, regardless of its `every`
 *   options    may be NULL
 *   report     the report of the last save made; may be NULL
 *
 * Returns DCP_OK if the whole step is durable in at least one of these stores; with `also_last`, if
 * it is durable in the last store. Otherwise returns the error of the last save that failed; its
 * message also says which store has the step nevertheless. */
DCP_API int dcp_tiers_save(dcp_tiers *tiers, uint64_t step, const dcp_state *state,
                           const char *json, const dcp_save_options *options, int also_last,
                           dcp_report *report, dcp_error *err);

/* A step in one of the stores. */
typedef struct dcp_tiers_step {
    uint64_t step;
    size_t tier; /* in the list */
} dcp_tiers_step;

/* Lists the steps in all stores of the list, newest first; if several stores have a step, the
 * faster store's comes first. A shared store has the steps that rank 0 sees, a private store those
 * that any rank sees. Needs no open stores and takes no lock. Whether a step is complete is found
 * out only when it is opened. The caller frees *out with free(). */
DCP_API int dcp_tiers_steps(dcp_comm *comm, const dcp_tier *list, size_t n, dcp_tiers_step **out,
                            size_t *n_out, dcp_error *err);

/* Opens such a step with dcp_checkpoint_open or dcp_checkpoint_open_private. Does not rebuild
 * it. */
DCP_API int dcp_tiers_open_step(dcp_comm *comm, const dcp_tier *list, const dcp_tiers_step *which,
                                dcp_checkpoint **out, dcp_error *err);

/* Loads from an open checkpoint. Collective. DCP_ERR_CORRUPT reports that it is damaged, and so
 * does DCP_ERR_NOT_FOUND if a file of the step is missing; an older step may then be tried.
 * For DCP_ERR_IO and DCP_ERR_NO_MEMORY, which prove nothing, only another copy of the same step may
 * be tried. If ranks return different statuses, the status of the lowest rank that has failed
 * counts. */
typedef int (*dcp_tiers_load_fn)(void *ctx, dcp_checkpoint *ckpt, dcp_error *err);

/* Loads the newest step of all stores that is complete or can be rebuilt from its redundancy: opens
 * it and passes it to `load`.
 *
 *   load  called with the open checkpoint and `ctx`
 *   step  the step that was loaded; may be NULL
 *
 * DCP_ERR_NOT_FOUND: the stores hold no step at all. If a run that went back set a step aside and
 * ended before its first save was complete, the message and the log name that step.
 * DCP_ERR_CORRUPT: no step is intact.
 * DCP_ERR_IO, DCP_ERR_NO_MEMORY: a step could not be read, and no copy of it in another store could
 * be loaded. That does not prove damage, so no older step takes its place. To continue from an
 * older step nevertheless, open it with dcp_tiers_open_step and pass its number to
 * dcp_tiers_continue_from; later steps are then set aside, whether or not they can be read.
 *
 * DCP_ERR_MISMATCH: `load` has returned DCP_ERR_NOT_FOUND, but the step has all of its files: for
 * example, the program wants a tensor that the step lacks. No older step takes its place.
 *
 * Other statuses are those of `load`.
 *
 * If `load` finds damage, the step is rebuilt if possible and passed to `load` once more. Otherwise
 * the next candidate is tried: the same step in a slower store, then older steps. If the step's
 * store is being filled, the rebuild waits until the filling has ended. The log says which step of
 * which store was loaded, whether it was rebuilt, and why others were passed over.
 *
 * `keep` never removes the loaded step from its store. Copies of it in other stores were not read:
 * a save of that step writes them again in the stores that are due. */
DCP_API int dcp_tiers_load(dcp_tiers *tiers, dcp_tiers_load_fn load, void *ctx, uint64_t *step,
                           dcp_error *err);

/* Like dcp_tiers_load, but loads only the step `step`: its copies in all stores are tried, the
 * fastest store's first, and each is rebuilt if necessary, as by dcp_tiers_load.
 * DCP_ERR_NOT_FOUND: no store has it.
 * DCP_ERR_CORRUPT: none of its copies is intact.
 * DCP_ERR_MISMATCH: ranks name different steps. */
DCP_API int dcp_tiers_load_step(dcp_tiers *tiers, uint64_t step, dcp_tiers_load_fn load, void *ctx,
                                dcp_error *err);

#ifdef __cplusplus
}
#endif
#endif
