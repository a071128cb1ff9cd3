/* A store: a directory of steps, `DIR/step-00000120/`, or one on each node. One writer at a time
 * holds it; readers need no store (dcp/checkpoint.h). */
#ifndef DCP_STORE_H
#define DCP_STORE_H

#include <stddef.h>

#include "dcp/comm.h"
#include "dcp/size.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dcp_store dcp_store;

#define DCP_STRIPE_ALL (-1) /* all object servers that there are */

typedef struct dcp_store_options {
    size_t size; /* dcp/size.h */
    /* Complete steps that stay after a save; 0: all. On local file systems one more stays until the
     * next save, or the close, in `.writer-.../spare`, for that save to write over. Steps that a
     * reader holds (dcp_checkpoint_open) stay besides, and go after a later save. Nothing goes
     * after a save of a step that is not the store's newest one. */
    uint32_t keep;
    /* A save of a step that exists replaces it, and one of a step that is older than the newest is
     * taken; 0: both are DCP_ERR_STATE. Whoever holds the old step still reads it. On several nodes
     * (private_dirs), and on file systems that can't exchange two names, a kill at the moment of
     * publication may leave the old step without its name; the next dcp_store_open gives it back.
     */
    int replace;
    /* Leave DIR/latest alone: for tools whose steps are not a run's newest. Older steps than the
     * newest are taken as well. */
    int keep_latest;
    /* Each rank passes a directory of its own node: see below. On all ranks or on none. */
    int private_dirs;
    /* "none", "partner" or "rs(K)", of a private store: what its saves add so that steps survive
     * the loss of nodes (dcp_store_rebuild). The same on all ranks; NULL: none. */
    const char *redundancy;
    const char *tool; /* the program that writes, for about.json; NULL: "libdcp" */
    dcp_log_fn log;   /* may be NULL */
    void *log_ctx;
    /* Where the file system has no locks: take the store also where its last writer is not known to
     * have ended, as it ran on another host. What that one still does then is undone. */
    int take_over;
    /* Of a private store: the failure domain that this rank is in, such as the name of its rack.
     * What is in one domain may be lost at once. On all ranks or on none; NULL: each host is one
     * (dcp_comm_set_host). Two directories on one host are lost with it, so they make two domains
     * only where that is named here. */
    const char *domain;
    /* Of a directory on a Lustre file system: over how many object servers a file of a step goes, 1
     * to 2000, or DCP_STRIPE_ALL. 0: a file of DCP_LAYOUT_GLOBAL over 4 for each host that writes
     * it, or as many as it has stripes where those are fewer; a shard over 1. On other file systems
     * this and the next member are ignored, which is logged once; what Lustre refuses is logged,
     * and the save goes on. */
    int64_t stripe_count;
    /* Of such a file: how many bytes go to a server before the next one's turn; a multiple of
     * 65,536 below 4 GiB. 0: 4 MiB, as the library cuts files among the ranks that write. Where
     * both are 0 and the directory has a layout of its own (lfs setstripe), files have that one. */
    uint64_t stripe_bytes;
} dcp_store_options;
#define DCP_STORE_OPTIONS_INIT DCP_SIZED(dcp_store_options)

/* Opens `dir` for writing, making it where it is missing. Collective. Takes the exclusive lock
 * `DIR/.lock`, gives steps that a killed writer had taken theirs from their names back, and removes
 * what else it left (.tmp-*, .trash-*, .writer-*). `comm` is borrowed until dcp_store_close;
 * `options` may be NULL for all defaults and is copied.
 *
 * `.lock` names the writer: host, pid, when the process began, and an identity at random. Locks can
 * be lost: somebody removes the file, a lease runs out, a file system grants them to all. So the
 * name is read again before each publication and each removal, and after a publication. A writer
 * that finds another's there has lost the store: its saves return DCP_ERR_BUSY with the other's
 * host and pid, publish nothing and remove nothing. A step that it was publishing at the very
 * moment at which the other opened the store may be there, whole. A lock whose holder is known to
 * be dead, and that a process which it forked still has, is no obstacle. Where the file system has
 * no locks, a store is free that was closed, or whose writer is known to be dead, as its process
 * ran under this kernel; another one is taken only with options->take_over. The log says so.
 * A process that is forked from the writer can't use the store, and does not hold it.
 *
 * The directory has to stay where it is. Where it was moved or removed, saves publish nothing, also
 * where another directory has its path by then, and return DCP_ERR_NOT_FOUND, or, where a writer
 * has that one, DCP_ERR_BUSY with that one's name. They go on once it is back.
 *
 * A shared store is one directory that all ranks see: rank 0's `dir` counts. Of a private store
 * (options->private_dirs), which may lie on disks or in memory that only one node sees, every rank
 * passes its own `dir`. The ranks to whom it is the same directory are a node; a node's lowest rank
 * does there what rank 0 does in a shared store, its log included. Only DCP_LAYOUT_SHARDED can be
 * saved into it: a rank's shard goes to its own node, and each node has the folder of every step,
 * with about.json. A step gets its name on all nodes or on none; what a kill in between leaves on
 * some nodes only is no complete step (dcp_checkpoint_open_private), is replaced by a save of that
 * step, and goes with the older ones by `keep`. A node that was away while the run went on without
 * it may come back with steps that the others have saved anew or set aside since: the open sets
 * those aside on that node, as `.abandoned-step-...`, and logs it.
 *
 * With options->redundancy the ranks of a private store form groups of about eight in different
 * failure domains (options->domain). Each save writes a file more beside every shard: with "rs(K)"
 * strips of a Reed-Solomon code, K / (members - K) of the group's longest shard, which make good
 * the loss of any K members' files of each group; with "partner" a copy of the file of the member
 * before, which makes good any loss without two neighbours of a group. So the loss of any K
 * domains, or any one, with all the directories of their ranks, can be made good. Such saves have
 * as many shards as ranks.
 *
 * DCP_ERR_BUSY: another writer holds it, or may hold it; the message names its host and pid, and
 * says what can be done. Also where two hosts pass one shared directory as private.
 *
 * DCP_ERR_MISMATCH: private_dirs on some ranks only, or for it different values of `keep`,
 * `replace`, `keep_latest` or `redundancy`.
 *
 * DCP_ERR_ARG: `redundancy` is none of these, of a shared store, or needs more failure domains or
 * ranks spread more evenly over them: less than was asked for is never given; the message says how
 * many there are and how many it takes. Or some ranks name a domain and others don't, or ranks with
 * one directory name different ones. Or the path leads to or through a file.
 *
 * DCP_ERR_IO: not writable; or about.json of a private store's step could not be read, so that
 * nobody knows whether it is still the run's. */
DCP_API int dcp_store_open(dcp_comm *comm, const char *dir, const dcp_store_options *options,
                           dcp_store **out, dcp_error *err);

/* Makes a step of a private store whole that has lost files: the newest of which enough is left.
 * Collective, on any number of ranks and whatever store->redundancy is now; before a load. Files
 * are written byte by byte as they were, durably, in failure domains that have none of their group,
 * where there are such; what lies damaged is replaced. Steps that can't be made whole are passed
 * over and logged. It is also logged that a step survives fewer losses than when it was saved,
 * where there are too few domains now. every_byte  1: all files of a step are read, and a damaged
 * one counts as lost; 0: only names, lengths and headers are looked at, until something is found
 * lost step        the step that is whole now, whether anything had to be written or not rebuilt
 * how many files were written; may be NULL
 *
 * DCP_ERR_BUSY: another writer has taken the store. DCP_ERR_NOT_FOUND: there is none; the message
 * says what the newest lacks. Extra memory: 16 MiB a rank. */
DCP_API int dcp_store_rebuild(dcp_store *store, int every_byte, uint64_t *step, int *rebuilt,
                              dcp_error *err);

/* Whether dcp_store_open would find `dir` free now: DCP_ERR_BUSY, with the same message, where
 * another writer has it. Not collective; takes no lock and makes nothing, so what it says may be
 * otherwise a moment later. A missing directory is free; a symbolic link to what is not there is
 * DCP_ERR_IO. */
DCP_API int dcp_store_check_free(const char *dir, dcp_error *err);

/* How many failure domains may be lost, whichever, with all that is in their directories, and each
 * step saved into this store be loaded still: K of "rs(K)", 1 of "partner", 0 of a private store
 * without redundancy. INT_MAX of a shared store, which is no rank's to lose. Steps say it in
 * about.json, as `survives`. Not collective. */
DCP_API int dcp_store_survives(const dcp_store *store);

/* Waits for the save in flight, and releases the lock. Every rank calls it: where saves ran beside
 * the caller, it frees a communicator, which MPI may do on all ranks together. NULL is ignored. A
 * process that was forked from the one that opened the store only frees its copy, and waits for
 * nothing. */
DCP_API void dcp_store_close(dcp_store *store);

/* Says that the run goes on from `step` (0: from the start): steps after it are moved aside to
 * `.abandoned-step-...` right before the first publication, and logged. A run that goes back has to
 * say so: a save of a step that is older than the newest one (of a private store: the newest that
 * all nodes have) is DCP_ERR_STATE, since the next start would go on from that one. Abandoned steps
 * count neither as newest nor for `keep`; they go when as many newer steps stand as `keep` asks
 * for, and stay where it is 0. No store need have `step`. What has a step's name and is no folder,
 * but a file or a symbolic link, is no step and stays: a save of that step is DCP_ERR_STATE. Not
 * collective; every rank calls it. */
DCP_API int dcp_store_continue_from(dcp_store *store, uint64_t step, dcp_error *err);

/* The newest step that is known to be intact (one that was loaded, or saved by this store); it is
 * never removed by `keep`. Naming a step that is not there keeps none. Not collective; every rank
 * calls it after a load. */
DCP_API int dcp_store_mark_intact(dcp_store *store, uint64_t step, dcp_error *err);

/* Removes the complete step of that number, durably, whatever options->keep says. Collective; waits
 * for the save in flight first. Any step may go, the newest and the last one, too, but for the one
 * that is known to be intact, as `keep` leaves that one as well: whoever doubts it marks another
 * one as intact before (dcp_store_mark_intact). DIR/latest leads to the newest step that is left. A
 * step of a private store goes on all nodes, with its redundancy. What has the step's name is
 * complete at every moment: a kill leaves the step as it was, or gone, where several nodes have it
 * perhaps on some of them, which is no complete step (see dcp_store_open). Abandoned and partial
 * steps stay.
 *
 * DCP_ERR_BUSY: the step stays, as some program has it open or pinned (dcp_checkpoint_open,
 * dcp_step_pin) on any node, or it is being copied into another store (dcp/tiers.h); where a pin
 * and a removal come at once, one of them fails. Or another writer has taken the store, and nothing
 * is removed. DCP_ERR_NOT_FOUND: there is no such step. DCP_ERR_STATE: it is the newest known to be
 * intact; or this process was forked from the one that opened the store. DCP_ERR_MISMATCH: ranks
 * name different steps. */
DCP_API int dcp_step_remove(dcp_store *store, uint64_t step, dcp_error *err);

typedef enum dcp_step_kind {
    DCP_STEP_COMPLETE,  /* step-N: published */
    DCP_STEP_PARTIAL,   /* .tmp-step-N (with ".IDENTITY" after it where the store was taken from a
                         * writer that may still have run): being written, or left by a killed one */
    DCP_STEP_ABANDONED, /* .abandoned-step-N: set aside by a run that went back */
} dcp_step_kind;

typedef struct dcp_step {
    uint64_t step;
    dcp_step_kind kind;
    char name[64]; /* of the folder in DIR */
} dcp_step;

/* Lists the steps in `dir`, ascending, complete ones first among equals. Not collective, takes no
 * lock. *out is freed by the caller with free(). An empty or missing directory gives 0 steps. */
DCP_API int dcp_steps_list(const char *dir, dcp_step **out, size_t *n_out, dcp_error *err);

/* A step that is kept: while this process has it pinned, no writer removes its files, whether by
 * `keep`, a replacement, dcp_step_remove, for room on a full disk, or at its start. */
typedef struct dcp_pin dcp_pin;

/* Pins the step in the folder `step_path`, such as DIR/step-00000120 or DIR/latest: what
 * dcp_checkpoint_open does for a step as long as it is open. Not collective; no right to write is
 * needed. The pin ends with dcp_step_unpin or with this process; a process forked from it holds
 * nothing. A step may be pinned by many, and several times. A replacement and a
 * run that goes back (dcp_store_continue_from) take the name from a pinned step, and its files
 * stay; nothing else takes it. Of a private store it counts on the node that `step_path` is on.
 * Where the writer may not write to the step's about.json, as it is another user's, a step that is
 * pinned while it is being removed may lose its name, too.
 * The lock is on about.json (F_OFD_SETLK), so it counts as far as locks of the file system do:
 * those that only one host knows (NFS mounted nolock) don't keep writers on other hosts away.
 *
 * DCP_ERR_NOT_FOUND: no such step, or its writer was removing it; a writer that has begun with that
 * and is stopped is waited for, some seconds long. DCP_ERR_UNSUPPORTED: the file system has no
 * locks. */
DCP_API int dcp_step_pin(const char *step_path, dcp_pin **out, dcp_error *err);

/* NULL is ignored. In a process that was forked from the one that pinned the step it only frees
 * this one's copy. */
DCP_API void dcp_step_unpin(dcp_pin *pin);

#ifdef __cplusplus
}
#endif
#endif
