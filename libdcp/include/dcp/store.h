/* A store: a directory of steps, `DIR/step-00000120/`, or one such directory on each node. A store
 * has one writer at a time. Readers need no store (dcp/checkpoint.h). */
#ifndef DCP_STORE_H
#define DCP_STORE_H

#include <stddef.h>

#include "dcp/comm.h"
#include "dcp/size.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dcp_store dcp_store;

#define DCP_STRIPE_ALL (-1) /* all object servers */

typedef struct dcp_store_options {
    size_t size; /* dcp/size.h */
    /* How many complete steps remain after a save; 0: all. Steps that a reader holds
     * (dcp_checkpoint_open) remain as well; a later save removes them. On local file systems one
     * more step remains, in `.writer-.../spare`, until the next save overwrites it or the store is
     * closed. A save of a step that is not the store's newest removes nothing. */
    uint32_t keep;
    /* Nonzero: a save of a step that exists replaces it, and a save of a step older than the newest
     * is accepted. 0: both are DCP_ERR_STATE. Readers that hold the replaced step can still read
     * it. On several nodes (private_dirs), and on file systems that cannot exchange two names, a
     * kill at the moment of publication may leave the old step without its name; the next
     * dcp_store_open restores the name. */
    int replace;
    /* Nonzero: leave DIR/latest unchanged, and accept steps older than the newest. For tools whose
     * steps are not a run's newest. */
    int keep_latest;
    /* Nonzero: a private store, for which each rank passes a directory of its own node; see
     * dcp_store_open. On all ranks or on none. */
    int private_dirs;
    /* For a private store: what its saves add so that steps survive the loss of nodes
     * (dcp_store_rebuild): "none", "partner" or "rs(K)". The same on all ranks; NULL: none. */
    const char *redundancy;
    const char *tool; /* the program that writes, for about.json; NULL: "libdcp" */
    dcp_log_fn log;   /* may be NULL */
    void *log_ctx;
    /* Nonzero: on a file system without locks, open the store even if its last writer is not known
     * to have ended, for example because that writer ran on another host. Changes that the last
     * writer still makes are undone. */
    int take_over;
    /* For a private store: the failure domain of this rank, such as the name of its rack.
     * Everything in one domain may be lost simultaneously. On all ranks or on none; NULL: each host
     * is a domain (dcp_comm_set_host). Two directories on one host are lost together with the host;
     * they are in two domains only if this member says so. */
    const char *domain;
    /* For a directory on a Lustre file system: the number of object servers over which a file of a
     * step is striped, 1 to 2000, or DCP_STRIPE_ALL. 0: for a file of DCP_LAYOUT_GLOBAL, 4 per host
     * that writes it, but no more than the file has stripes; for a shard, 1. On other file systems
     * this member and the next are ignored, which is logged once. If Lustre refuses the layout,
     * that is logged and the save continues. */
    int64_t stripe_count;
    /* For such a file: the number of bytes that go to one server before the next server follows; a
     * multiple of 65,536 below 4 GiB. 0: 4 MiB, the unit in which the library divides files among
     * the ranks that write. If both members are 0 and the directory has a layout of its own (lfs
     * setstripe), files have that layout. */
    uint64_t stripe_bytes;
    /* Which steps remain in addition to the newest `keep`; these members require `keep`. A step
     * remains while at least one of them applies.
     *
     * keep_every    steps whose numbers are multiples of it, such as 1,000; 0: none
     * keep_seconds  the first step, and each later one that was saved at least this many seconds
     *               after the previous one that remained for this reason; 0: none. The times are
     *               read from about.json.
     * keep_best     this number of steps with the best values of keep_metric; 0: none. If values
     *               are equal, the newer step is the better one.
     * keep_metric   the member of about.json with a step's value, a number, which a save passes in
     *               dcp_save_options.about_json: {"eval_loss": 2.25}. A step that lacks this
     *               member, or whose member is not a number, is not among the best. Required by
     *               keep_best.
     * keep_highest  nonzero: the highest values are the best, as for accuracies; 0: the lowest
     *
     * A step whose about.json cannot be read at the moment remains, which is logged. In a private
     * store, about.json on rank 0's node decides; steps that this node lacks remain. */
    uint64_t keep_every;
    uint64_t keep_seconds;
    uint32_t keep_best;
    int keep_highest;
    const char *keep_metric;
} dcp_store_options;
#define DCP_STORE_OPTIONS_INIT DCP_SIZED(dcp_store_options)

/* Opens `dir` for writing, and creates it if it is missing. Collective. Takes the exclusive lock
 * `DIR/.lock`, restores the names of steps that a killed writer had renamed, and removes whatever
 * else that writer left (.tmp-*, .trash-*, .writer-*).
 *
 *   comm     borrowed until dcp_store_close
 *   dir      for a shared store only rank 0's is used; for a private store each rank's own, see
 *            below
 *   options  copied; NULL: all defaults
 *
 * DCP_ERR_BUSY: another writer holds the store, or may hold it; the message names its host and pid,
 * and says what can be done. The status is the same if two hosts pass one shared directory as
 * private.
 * DCP_ERR_MISMATCH: private_dirs is set on some ranks only; or, for a private store, ranks pass
 * different values of `keep`, `replace`, `keep_latest`, `redundancy` or a member that begins with
 * `keep_`.
 * DCP_ERR_ARG: `redundancy` is none of the values above, or is set for a shared store. Or it
 * requires more failure domains, or ranks that are spread more evenly over them (the library never
 * provides less redundancy than was requested); the message says how many there are and how many
 * are required. Or some ranks name a domain and others do not. Or ranks with the same directory
 * name different domains. Or `dir` is a file, or its path leads through a file. Or keep_every,
 * keep_seconds or keep_best is set although `keep` is 0, so all steps remain anyway; or keep_best
 * is set without keep_metric.
 * DCP_ERR_IO: the directory is not writable. Or about.json of a private store's step, or of a
 * shared store's newest step, could not be read, so it is unknown whether the steps still belong to
 * the run.
 *
 * Locks. `.lock` names the writer: host, pid, start time of the process, and a random identity. A
 * lock can be lost: somebody removes the file, a lease expires, or the file system grants it to
 * everyone. So the writer reads `.lock` again before each publication and each removal, and after a
 * publication. A writer that finds another writer's name there has lost the store: its saves
 * return DCP_ERR_BUSY with the other writer's host and pid, publish nothing and remove nothing.
 * There is one exception: a step that it was publishing at the very moment when the other writer
 * opened the store may exist, and is then complete.
 *
 * A lock whose holder is known to be dead is no obstacle, even if a process that the holder forked
 * still has it. On a file system without locks, a store is free if it was closed, or if its writer
 * is known to be dead because its process ran under this kernel; any other store is opened only
 * with options->take_over. The log reports such a file system. A process forked from the writer
 * cannot use the store and does not hold it.
 *
 * The directory must stay where it is. If it is moved or removed, saves publish nothing and
 * return DCP_ERR_NOT_FOUND, even if another directory has its path by then; if a writer has that
 * other directory, they return DCP_ERR_BUSY and name that writer. Saves work again once the
 * directory is back.
 *
 * Private stores. A shared store is one directory that all ranks see. A private store
 * (options->private_dirs) may lie on disks or in memory that only one node sees, so every rank
 * passes its own `dir`. The ranks that pass the same directory are a node. The lowest rank of a
 * node does there what rank 0 does in a shared store, including logging. A private store accepts
 * only DCP_LAYOUT_SHARDED: each rank's shard goes to its own node, and every node has the folder of
 * every step, with about.json. A step gets its name on all nodes or on none. If a kill leaves the
 * name on some nodes only, the step is not complete (dcp_checkpoint_open_private): a save of that
 * step replaces it, and `keep` removes it with the older steps. A node that was away while the run
 * continued without it may come back with steps that the others have saved again or set aside
 * since. dcp_store_open sets those aside on that node, as `.abandoned-step-...`, and logs it. If a
 * step has redundancy files, dcp_store_open also writes about.json again on nodes where it is
 * missing or damaged, because a rebuild could not write it.
 *
 * Redundancy. With options->redundancy, the ranks of a private store form groups of about eight in
 * different failure domains (options->domain), and each save writes one more file beside every
 * shard. With "rs(K)" that file holds strips of a Reed-Solomon code, and its size is the size of
 * the group's longest shard times K / (members - K). The strips restore the files of any K members
 * of each group. With "partner" the file is a copy of the previous member's file; the copies
 * suffice unless two neighbours of a group are lost. So a step survives the loss of any K domains
 * ("rs(K)"), or of any one domain ("partner"), with all the directories of their ranks. Saves into
 * such a store have as many shards as ranks. */
DCP_API int dcp_store_open(dcp_comm *comm, const char *dir, const dcp_store_options *options,
                           dcp_store **out, dcp_error *err);

/* Rebuilds the lost files of a step of a private store. It chooses the newest step that has enough
 * files left. Collective, on any number of ranks and with any options->redundancy; call it before a
 * load.
 *
 *   every_byte  1: all files of a step are read, and a damaged file counts as lost; 0: only names,
 *               lengths and headers are checked at first, and if something is lost, all files are
 *               read. For a step without redundancy files, only names, lengths and headers are
 *               checked in either case
 *   step        the step that is complete now, whether or not anything had to be written
 *   rebuilt     the number of files written; may be NULL
 *
 * DCP_ERR_BUSY: another writer has taken the store.
 * DCP_ERR_NOT_FOUND: no step can be made complete; the message says what the newest one lacks.
 *
 * Rebuilt files equal the lost ones byte by byte, and are durable. They go into failure domains
 * that have no file of the same group, if there are any; damaged files are replaced in place, also
 * if another node has an intact copy, because the file was rebuilt there while this node was away.
 * A directory in a file's place is renamed, with a number at its end, or removed if it is empty.
 * Steps that cannot be rebuilt are passed over and logged. The log also says if a step survives
 * fewer losses than when it was saved, because there are too few domains now. Extra memory: 16 MiB
 * per rank. */
DCP_API int dcp_store_rebuild(dcp_store *store, int every_byte, uint64_t *step, int *rebuilt,
                              dcp_error *err);

/* Checks whether dcp_store_open would find `dir` free now. Not collective. It takes no lock and
 * creates nothing, so the answer may change a moment later. A missing directory is free.
 * DCP_ERR_BUSY: another writer has it; the message is the same as from dcp_store_open.
 * DCP_ERR_IO: `dir` is a symbolic link whose target does not exist. */
DCP_API int dcp_store_check_free(const char *dir, dcp_error *err);

/* Returns the number of failure domains that may be lost, whichever they are and with everything in
 * their directories, without making a step saved into this store unloadable. Not collective. K for
 * "rs(K)", 1 for "partner", 0 for a private store without redundancy; INT_MAX for a shared store,
 * which no loss of ranks affects. Steps of a private store record the number in about.json, as
 * `survives`. */
DCP_API int dcp_store_survives(const dcp_store *store);

/* Waits for the save in flight, releases the lock and frees the store. Every rank must call it:
 * after saves in a thread, it frees a communicator, which MPI may do collectively. NULL is ignored.
 * In a process forked from the one that opened the store, it only frees the copy and waits for
 * nothing. */
DCP_API void dcp_store_close(dcp_store *store);

/* Declares that the run continues from `step` (0: from the start). Not collective, but every rank
 * must call it. `step` need not exist in any store.
 *
 * Right before the first publication, later steps are moved aside to `.abandoned-step-...`, and
 * this is logged. A run that goes back must call this function: without it, a save of a step older
 * than the newest one is DCP_ERR_STATE, since the next start would resume from the newest. In a
 * private store, only steps that all nodes have, or that were marked as intact, count as the
 * newest. Abandoned steps count neither as newest nor for `keep`. They are removed once as many
 * newer steps exist as `keep` requires, and never if `keep` is 0. A file or a symbolic link with a
 * step's name is not a step and remains; a save of that step
 * is DCP_ERR_STATE, unless options->replace is set. A folder with a step's name that has other
 * files, but none of a step (docs/format.md), is not a step and always remains; a save of that step
 * is DCP_ERR_STATE. dcp_store_open logs such folders. */
DCP_API int dcp_store_continue_from(dcp_store *store, uint64_t step, dcp_error *err);

/* Declares that `step`, which was loaded, or saved by this store, is the newest step that is known
 * to be intact. `keep` never removes it. Not collective, but every rank must call it after a load.
 * If the store has no such step, none is protected. */
DCP_API int dcp_store_mark_intact(dcp_store *store, uint64_t step, dcp_error *err);

/* Removes the complete step `step` durably, regardless of options->keep. Collective; waits for the
 * save in flight first.
 *
 * DCP_ERR_BUSY: the step remains, because a program has it open or pinned (dcp_checkpoint_open,
 * dcp_step_pin) on some node, or because it is being copied into another store (dcp/tiers.h). If a
 * pin and a removal come simultaneously, one of them fails. Or another writer has taken the store,
 * and nothing is removed.
 * DCP_ERR_NOT_FOUND: there is no such step.
 * DCP_ERR_STATE: the step is the newest known to be intact; or this process was forked from the one
 * that opened the store.
 * DCP_ERR_MISMATCH: ranks name different steps.
 *
 * Any step can be removed, even the newest or the only remaining one, except for the newest one
 * known to be intact, which `keep` leaves as well. To remove that one, mark another one as intact
 * first (dcp_store_mark_intact). Afterwards DIR/latest points to the newest step that is left. In a
 * private store the step is removed on all nodes, with its redundancy. At every moment, a folder
 * with the step's name is complete: a kill leaves the step either as it was or removed. On several
 * nodes it may be removed on some of them only; then it is not a complete step (see
 * dcp_store_open). Abandoned and partial steps remain. */
DCP_API int dcp_step_remove(dcp_store *store, uint64_t step, dcp_error *err);

typedef enum dcp_step_kind {
    DCP_STEP_COMPLETE,  /* step-N: published */
    DCP_STEP_PARTIAL,   /* .tmp-step-N: being written, or left by a killed writer. The name ends in
                         * ".IDENTITY" if the store was taken from a writer that may still have
                         * been running. */
    DCP_STEP_ABANDONED, /* .abandoned-step-N: set aside by a run that went back */
} dcp_step_kind;

typedef struct dcp_step {
    uint64_t step;
    dcp_step_kind kind;
    char name[64]; /* of the folder in DIR */
} dcp_step;

/* Lists the steps in `dir` in ascending order; among steps with the same number, the complete one
 * comes first. Not collective; takes no lock. The caller frees *out with free(). An empty or
 * missing directory gives 0 steps. A folder `step-N` that has other files, but none of a step, is
 * left out. */
DCP_API int dcp_steps_list(const char *dir, dcp_step **out, size_t *n_out, dcp_error *err);

/* A pinned step. While a process has a step pinned, no writer removes the step's files: not by
 * `keep`, by a replacement, by dcp_step_remove, to make room on a full disk, or when it opens the
 * store. */
typedef struct dcp_pin dcp_pin;

/* Pins the step in the folder `step_path`, such as DIR/step-00000120 or DIR/latest, as
 * dcp_checkpoint_open does while the step is open. Not collective; no write permission is needed.
 * The pin ends with dcp_step_unpin or with this process; a process forked from it holds nothing.
 *
 * DCP_ERR_NOT_FOUND: there is no such step, or its writer was removing it. If a writer was stopped
 * during the removal, the call waits for it for some seconds first.
 * DCP_ERR_UNSUPPORTED: the file system has no locks.
 *
 * Several processes may pin a step, and each may pin it several times. A replacement, and a run
 * that goes back (dcp_store_continue_from), take the name from a pinned step, but its files remain.
 * Nothing else takes the name, with one exception: if the writer lacks permission to write to the
 * step's about.json because the file belongs to another user, a step that is pinned while it is
 * being removed may lose its name, too. In a private store the pin takes effect on the node that
 * has `step_path`. The pin is a lock on about.json (F_OFD_SETLK), so it is only as good as the file
 * system's locks: locks that only one host knows (NFS mounted nolock) do not stop writers on other
 * hosts. */
DCP_API int dcp_step_pin(const char *step_path, dcp_pin **out, dcp_error *err);

/* Ends a pin. NULL is ignored. In a process forked from the one that pinned the step, it only frees
 * this process's copy. */
DCP_API void dcp_step_unpin(dcp_pin *pin);

#ifdef __cplusplus
}
#endif
#endif
