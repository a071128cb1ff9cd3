/* A list of stores, fastest first: memory at every step, a node's disk at some, the shared file
 * system at few. A save goes into the fastest store that is due; slower ones that are due as well
 * are filled in the background from the faster one's files. A load takes the newest step of all.
 *
 *     dcp_tier list[] = {DCP_TIER_INIT, DCP_TIER_INIT};
 *     list[0].path = "/dev/shm/run", list[0].every = 1, list[0].keep = 2;
 *     list[0].is_private = 1, list[0].redundancy = "rs(2)";
 *     list[1].path = "/shared/run", list[1].every = 100, list[1].keep = 3;
 *     dcp_tiers_open(comm, list, 2, NULL, &tiers, &err);
 *     dcp_tiers_load(tiers, load_it, ctx, &step, &err);     then dcp_tiers_continue_from
 *     each step: dcp_tiers_fence; change the memory; where dcp_tiers_is_due, dcp_tiers_save_async
 *     dcp_tiers_save(tiers, step, state, json, NULL, 1, NULL, &err);    the last one
 *     dcp_tiers_close(tiers);
 *
 * A store that fails is told of through the log and is due again at the next save; the others go
 * on. Every function with a status is collective, but where it says otherwise. */
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
    const char *tool; /* as there */
    dcp_log_fn log;   /* as there, also called by the threads that fill stores; may be NULL */
    void *log_ctx;
    /* Called once a filling of store `i` of the list is known to have ended, well or not, with its
     * begin and end in seconds of CLOCK_MONOTONIC: from within dcp_tiers_save_async, dcp_tiers_save
     * or dcp_tiers_close. May be NULL. */
    void (*on_filled)(void *ctx, size_t i, uint64_t step, double begin, double end);
    void *filled_ctx;
    int take_over; /* as in dcp_store_options */
    /* Called as dcp_save_options.on_progress while a store is filled, from the thread that fills
     * it. May be NULL. */
    void (*on_fill_progress)(void *ctx, uint64_t done, uint64_t total);
    void *fill_progress_ctx;
    /* What dcp_tiers_load passes a checkpoint to asks of it no more than its JSON, its tensors and
     * loads. So where a private store's files are each seen by some ranks alone, no rank keeps a
     * copy of all tables (dcp_checkpoint_open_private): dcp_checkpoint_box, _piece and _read fail
     * there for most tensors. Where any rank passes 0, all keep copies. */
    int loads_only;
} dcp_tiers_options;
#define DCP_TIERS_OPTIONS_INIT DCP_SIZED(dcp_tiers_options)

typedef struct dcp_tiers dcp_tiers;

/* Opens all stores, 1 to DCP_MAX_TIERS. `comm` is borrowed until the close; the rest is copied.
 * Where a save in flight may have a thread (dcp_save_async), stores are filled by threads, each
 * over a communicator of its own; else by dcp_tiers_wait and dcp_tiers_close. The threads never
 * call HDF5, which is not thread-safe: dcp_tiers_wait opens the step that is read, and lays the
 * files out where its tensors or boxes have changed.
 * A store whose directory was away while the list was opened without it, and the run went back from
 * steps that it has, has these set aside here once it is back, with a warning for each: the store
 * with the latest save says which they are, for the last 64 times that the run began or went back.
 * So it is with the steps of a branch: where the run has gone on from an older step of a store that
 * was away while the branch was saved. Steps that another run had saved before its store came into
 * the list stay. A step that was set aside can be opened by its path. Errors as dcp_store_open's,
 * of the first store that can't be opened; DCP_ERR_COMM, a caller's table could not be duplicated;
 * DCP_ERR_MISMATCH where the ranks' lists differ. */
DCP_API int dcp_tiers_open(dcp_comm *comm, const dcp_tier *list, size_t n,
                           const dcp_tiers_options *options, dcp_tiers **out, dcp_error *err);

/* Waits for the save in flight and for all stores that are being filled, and closes them. Every
 * rank calls it. What failed is logged. NULL is ignored. A process that was forked from the one
 * that opened them only frees its copies. */
DCP_API void dcp_tiers_close(dcp_tiers *tiers);

/* Says that the run goes on from `step` (0: from the start), as dcp_store_continue_from does. It
 * waits for nothing: from now on later steps count neither as held nor as due, and the next save
 * sets them aside. That one waits for the save in flight, ends all fillings, those of later steps
 * before they are published where that is possible, and sets later steps aside in all stores before
 * it saves into any, also where none is due; where a store's directory was moved meanwhile, with
 * later steps in it, it is DCP_ERR_NOT_FOUND until that is back. So every store holds from then on
 * what it would hold if these steps had never been, but for older ones that `keep` has removed for
 * them. Until that save nothing is set aside: a load alone, or dcp_tiers_mark_intact, sets nothing
 * aside. The last call before a save counts. Not collective; every rank calls it with the same
 * step: the next save is DCP_ERR_MISMATCH otherwise. */
DCP_API int dcp_tiers_continue_from(dcp_tiers *tiers, uint64_t step, dcp_error *err);

/* Whether a save of `step` would go anywhere: into a store that is due, or that failed last time.
 * The same on all ranks, without communication. */
DCP_API int dcp_tiers_is_due(const dcp_tiers *tiers, uint64_t step);

/* Makes store `i` of the list due at the next save, whatever `every` says, also while the store is
 * being filled with an earlier one. Not collective; every rank calls it: the next save is
 * DCP_ERR_MISMATCH otherwise. DCP_ERR_ARG: there is no such store. */
DCP_API int dcp_tiers_ask(dcp_tiers *tiers, size_t i, dcp_error *err);

/* How many files of the step that dcp_tiers_load loads, or has loaded last, were rebuilt first. */
DCP_API int dcp_tiers_rebuilt(const dcp_tiers *tiers);

/* Whether store `i` of the list has `step`: the one that was saved into it last, or that
 * dcp_tiers_load loaded from there; not one that dcp_tiers_load has found damaged since, that
 * dcp_tiers_save has not found there, or that the run has gone back behind
 * (dcp_tiers_continue_from). The same on all ranks, without communication. */
DCP_API int dcp_tiers_has(const dcp_tiers *tiers, size_t i, uint64_t step);

/* dcp_store_survives of store `i` of the list; 0 where there is no such store. */
DCP_API int dcp_tiers_survives(const dcp_tiers *tiers, size_t i);

/* dcp_store_mark_intact of store `i`, for a step that was loaded without dcp_tiers_load; the store
 * has it from then on. Best while the checkpoint is open: `keep` may remove the step once it is
 * not. Waits for nothing. Not collective; every rank calls it with the same step: the next save is
 * DCP_ERR_MISMATCH otherwise. That one forgets the mark, and logs it, where the store has no such
 * step. */
DCP_API int dcp_tiers_mark_intact(dcp_tiers *tiers, size_t i, uint64_t step, dcp_error *err);

/* dcp_save_prepare of the list, whichever store a save goes to: one at a time has the page-locked
 * memory, and all together no more. DCP_ERR_STATE: a save is in flight, or a store is being filled.
 */
DCP_API int dcp_tiers_prepare(dcp_tiers *tiers, const dcp_state *state,
                              const dcp_save_options *options, dcp_error *err);

/* Starts a save of `step` into the fastest store that is due; where none is, or all that are have
 * the step, it does nothing. Arguments and what is borrowed as for dcp_save_async, dcp_tiers_fence
 * and dcp_tiers_wait taking the places of dcp_save_fence and dcp_save_wait; options->layout and
 * options->shards are the stores' own matter. A save in flight is waited for first, its failure
 * logged, or the new one refused with DCP_ERR_BUSY, as options->when_busy says; a store that is
 * still being filled when it is due again is waited for, or left out this time. Without a save in
 * flight DCP_ERR_BUSY means that another writer has a store (dcp_store_open). A step that is
 * being read to fill other stores is kept, whatever `keep` says. */
DCP_API int dcp_tiers_save_async(dcp_tiers *tiers, uint64_t step, const dcp_state *state,
                                 const char *json, const dcp_save_options *options, dcp_error *err);

/* Waits until this rank's memory is not needed by the save in flight any more; with
 * options->copy_bytes it is not, once dcp_tiers_save_async has returned. */
DCP_API void dcp_tiers_fence(dcp_tiers *tiers);
/* The same as dcp_save_fence_within. 1 also where no save is in flight. */
DCP_API int dcp_tiers_fence_within(dcp_tiers *tiers, double seconds);

/* dcp_save_is_done of the save in flight: 1, 0 (it becomes 1 by itself) or DCP_ERR_STATE (nobody
 * does it before dcp_tiers_fence or dcp_tiers_wait). 1 also where none is in flight. Fillings of
 * other stores don't count. DCP_ERR_ARG: tiers is NULL. */
DCP_API int dcp_tiers_is_done(dcp_tiers *tiers);

/* Waits for the save in flight; then begins to fill the other stores that are due, which goes on in
 * the background. Returns the save's outcome: DCP_OK also where there was none. `report` may be
 * NULL. */
DCP_API int dcp_tiers_wait(dcp_tiers *tiers, dcp_report *report, dcp_error *err);

/* Waits for everything that is under way, then saves `step` from memory into each store that is
 * due and hasn't got it, or has lost it, one after the other, and with `also_last` into the last
 * one whatever its `every` says. DCP_OK where all of it is durable in at least one of them, with
 * `also_last` in the last one; else the error of the last one that failed, which also says where
 * the step is all the same. `report` is of the last save made; `options` and `report` may be NULL.
 */
DCP_API int dcp_tiers_save(dcp_tiers *tiers, uint64_t step, const dcp_state *state,
                           const char *json, const dcp_save_options *options, int also_last,
                           dcp_report *report, dcp_error *err);

/* A step in one of the stores. */
typedef struct dcp_tiers_step {
    uint64_t step;
    size_t tier; /* in the list */
} dcp_tiers_step;

/* The steps that any rank sees in any store of the list, newest first, of equal ones the faster
 * store's first, but for those that came back with a node (dcp_tiers_load). Needs no open stores,
 * takes no lock. Whether a step is whole shows when it is opened. *out is freed by the caller with
 * free(). */
DCP_API int dcp_tiers_steps(dcp_comm *comm, const dcp_tier *list, size_t n, dcp_tiers_step **out,
                            size_t *n_out, dcp_error *err);

/* dcp_checkpoint_open or dcp_checkpoint_open_private of such a step. Not rebuilt. */
DCP_API int dcp_tiers_open_step(dcp_comm *comm, const dcp_tier *list, const dcp_tiers_step *which,
                                dcp_checkpoint **out, dcp_error *err);

/* What to do with an open checkpoint; collective. DCP_ERR_CORRUPT and DCP_ERR_NOT_FOUND, which say
 * that it is damaged: an older one may be tried. DCP_ERR_IO and DCP_ERR_NO_MEMORY, which prove
 * nothing: another copy of the same step is. */
typedef int (*dcp_tiers_load_fn)(void *ctx, dcp_checkpoint *ckpt, dcp_error *err);

/* Opens the newest step that is whole, or can be rebuilt from its redundancy, in whichever store,
 * and passes it to `load`. Where that finds damage, the step is rebuilt, if it can be, and passed
 * once more; else the next one is tried: the same step in a slower store, then older steps. The log
 * says which step of which store was loaded, and whether it was rebuilt, and why others were passed
 * over. *step (may be NULL): the step loaded, which `keep` never removes from its store. Copies of
 * it in other stores were not read: a save of that step writes them anew, where they are due. What
 * has to be rebuilt in a store that is being filled is rebuilt when that has ended.
 * A step that could not be read, in whichever store, is no damaged one: no older step is taken for
 * it. DCP_ERR_IO, DCP_ERR_NO_MEMORY: so it was, and to go on from an older step all the same, it is
 * opened by dcp_tiers_open_step and named by dcp_tiers_continue_from; later steps are set aside
 * then, whether they can be read or not.
 * DCP_ERR_NOT_FOUND: the stores hold no step at all; one that was set aside by a run that went back
 * and was ended before its first save was done is named by the message and the log.
 * DCP_ERR_CORRUPT: none is intact. Other statuses are `load`'s. */
DCP_API int dcp_tiers_load(dcp_tiers *tiers, dcp_tiers_load_fn load, void *ctx, uint64_t *step,
                           dcp_error *err);

/* The same for the step of that number alone: the copies of it in all stores, the fastest first,
 * each rebuilt as there. DCP_ERR_NOT_FOUND: no store has it. DCP_ERR_CORRUPT: none of its copies is
 * intact. DCP_ERR_MISMATCH: ranks name different steps. */
DCP_API int dcp_tiers_load_step(dcp_tiers *tiers, uint64_t step, dcp_tiers_load_fn load, void *ctx,
                                dcp_error *err);

#ifdef __cplusplus
}
#endif
#endif
