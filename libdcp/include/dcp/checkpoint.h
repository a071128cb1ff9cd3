/* Reading a checkpoint: looking into it, loading it on any world size, checking every byte. */
#ifndef DCP_CHECKPOINT_H
#define DCP_CHECKPOINT_H

#include "dcp/save.h"
#include "dcp/size.h"
#include "dcp/state.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dcp_checkpoint dcp_checkpoint;

/* Opens a step's folder, or a checkpoint directory, meaning its newest complete step, of either
 * layout. Collective over `comm` (which is borrowed until the close). The tables of layout global
 * are read and checked by rank 0, and all ranks get them. Each shard's are read and checked by one
 * rank, all at the same time; every rank gets to know the tensors' names, types and shapes, while
 * where their boxes lie is kept by one rank for each tensor, which a load asks. No tensor is read.
 * Files of shards are opened when they are read, and at most 64 stay open, or a quarter of
 * the files that the process may open (RLIMIT_NOFILE).
 * Until the close the step is held, by a lock on its about.json: no writer of the store removes its
 * files, and a load reads them also where a save has replaced the step. A child of fork holds
 * nothing. On file systems without locks there are no holds: a step that `keep` removes is lost to
 * its reader. A step that goes while it is being opened is looked for again: the newest one then,
 * or the one of that name.
 * DCP_ERR_NOT_FOUND: no such folder, or no complete step in it, or none but one that a writer which
 * is stopped has begun to remove. DCP_ERR_CORRUPT: a table's checksum or bounds are wrong, or the
 * file's size is, or the folder is named as another step's. DCP_ERR_VERSION: written by a newer
 * format. DCP_ERR_ARG: it is one node's part of a private store's step (dcp/store.h), of which
 * other nodes have the rest. */
DCP_API int dcp_checkpoint_open(dcp_comm *comm, const char *path, dcp_checkpoint **out,
                                dcp_error *err);
/* The same of steps whose files lie on several nodes (private stores, dcp/store.h), each of which
 * may see only its own. Collective over any number of ranks. Every rank passes its own path: of its
 * node's directory of steps, or all of them of the step's folder there. A path that doesn't exist
 * is no failure: its rank sees no file, as with NULL. Of directories, the newest step is opened all
 * of whose files are seen by some rank. Each file's tables are read by a rank that sees it, the
 * shard's own number where possible; dcp_load reads a file on any rank that sees it, and brings
 * what others want of it over the communicator. Where some rank doesn't see some file, each rank
 * keeps a copy of all shards' tables, some 80 bytes a box.
 * DCP_ERR_NOT_FOUND: no step is complete; the message says what the newest lacks. DCP_ERR_CORRUPT:
 * of the folder that was given, a file is on no node; else as dcp_checkpoint_open.
 * DCP_ERR_MISMATCH: directories and steps' folders at once. */
DCP_API int dcp_checkpoint_open_private(dcp_comm *comm, const char *own_path, dcp_checkpoint **out,
                                        dcp_error *err);
DCP_API void dcp_checkpoint_close(dcp_checkpoint *ckpt);

/* The step's folder, of a private one this rank's, or where it has none another's; valid until the
 * close. */
DCP_API const char *dcp_checkpoint_path(const dcp_checkpoint *ckpt);
DCP_API uint64_t dcp_checkpoint_step(const dcp_checkpoint *ckpt);
DCP_API dcp_layout dcp_checkpoint_layout(const dcp_checkpoint *ckpt);
/* Files: 1 for DCP_LAYOUT_GLOBAL, else the number of shards. */
DCP_API int dcp_checkpoint_files(const dcp_checkpoint *ckpt);
/* What dcp_save was given as `json`, with "format" and "step"; valid until the close. */
DCP_API const char *dcp_checkpoint_json(const dcp_checkpoint *ckpt);

/* The tensors, bytewise ascending by path; pointers are valid until the close. */
DCP_API size_t dcp_checkpoint_tensors(const dcp_checkpoint *ckpt);
DCP_API const dcp_tensor *dcp_checkpoint_tensor(const dcp_checkpoint *ckpt, size_t i);
/* The tensor of that path; NULL where there is none. */
DCP_API const dcp_tensor *dcp_checkpoint_find(const dcp_checkpoint *ckpt, const char *path);

/* In how many boxes tensor i lies in the files: 1 for DCP_LAYOUT_GLOBAL, else as many as the shards
 * have of it; 0 for an empty tensor of shards. Box k, and which file it is in (from 0); -1 where
 * there is no such box. Not collective, and the same on every rank. On a rank that does not keep
 * the tensor's boxes (dcp_checkpoint_open), the first of these calls for a tensor of shards looks
 * for them in the files' tables, and they stay in memory, some 300 bytes a box: -1 also where that
 * fails. */
DCP_API size_t dcp_checkpoint_boxes(const dcp_checkpoint *ckpt, size_t i);
DCP_API int dcp_checkpoint_box(const dcp_checkpoint *ckpt, size_t i, size_t k, dcp_box *box);

/* Another name in the checkpoint: `from` in the state is `to` there. Either no `*` in both, an
 * exact name; or one in each, which stands for the same text, any bytes with '/', for example
 * {"/model/backbone.*", "/model/model.*"}. Nothing else is special. */
typedef struct dcp_rename {
    const char *from, *to;
} dcp_rename;

/* Tensors of the state that the checkpoint lacks (missing), and tensors of the checkpoint that no
 * tensor of the state is loaded from (unexpected), but for /files, which an import keeps for the
 * export. PyTorch's strict=True refuses both. */
typedef enum dcp_missing_keys {
    DCP_MISSING_KEYS_REFUSE, /* DCP_ERR_NOT_FOUND names the first and how many there are */
    DCP_MISSING_KEYS_KEEP,   /* their memory is left as it is; see on_missing */
} dcp_missing_keys;
typedef enum dcp_unexpected_keys {
    DCP_UNEXPECTED_KEYS_IGNORE,
    DCP_UNEXPECTED_KEYS_REFUSE, /* DCP_ERR_MISMATCH names the first and how many there are */
} dcp_unexpected_keys;

/* All ranks pass the same (DCP_ERR_MISMATCH names what differs and the ranks); the functions and
 * `ctx` may differ. Everything is borrowed during the call. Zero is dcp_load's behaviour. */
typedef struct dcp_load_options {
    size_t size; /* dcp/size.h */
    /* Globs of the state's names: only tensors that one of them matches are loaded, the others'
     * memory is left as it is. As fnmatch(3) without flags: `*` is any text, also with '/', `?` one
     * character, [a-z] one of these, a backslash quotes. NULL: all tensors. A glob that matches no
     * tensor of the state is DCP_ERR_NOT_FOUND. */
    const char *const *only;
    size_t n_only;
    /* The first pair whose `from` matches a tensor's name renames it; others keep their names. Two
     * tensors may be loaded from one. DCP_ERR_ARG: stars that don't fit, a name that isn't one. */
    const dcp_rename *renames;
    size_t n_renames;
    /* A stored tensor of another dtype and the same shape is converted to the state's, as
     * dcp_convert does it; DCP_ERR_UNSUPPORTED names a pair of types for which there is none. What
     * was stored is proven, not what became of it. 0: another dtype is DCP_ERR_MISMATCH. Extra
     * memory: 32 MiB a rank where the state's elements are smaller, else none. */
    int cast;
    dcp_missing_keys missing_keys;
    /* With `only`, a tensor counts whose name in the state, by `renames`, would match a glob. */
    dcp_unexpected_keys unexpected_keys;
    /* Whatever engine wrote. DCP_ENGINE_MPIO lets HDF5 see a file only when the checksum of all its
     * bytes outside of tensors was found right, and takes only contiguous datasets that lie where
     * the index says, else DCP_ERR_CORRUPT; tensors that the ranks' boxes do not cover exactly are
     * read block by block without HDF5. Steps of which some rank doesn't see some file are read by
     * DCP_ENGINE_DIRECT. */
    dcp_engine engine;
    /* Called on every rank for each missing tensor that is kept, ascending by path, before anything
     * is read. May be NULL. */
    void (*on_missing)(void *ctx, const char *path);
    void *ctx;
    /* Called every few MiB (DCP_ENGINE_MPIO: every 32 MiB) from the thread that loads: `done` of
     * `total` bytes, as they are stored, of this rank's boxes have arrived. May be NULL. */
    void (*on_progress)(void *ctx, uint64_t done, uint64_t total);
    void *progress_ctx;
    /* Asked as often from the same thread, on each rank for itself: not 0, on one rank or more, and
     * all ranks give up with DCP_ERR_CANCELLED. The ranks of a host do so at once, those of other
     * hosts at the latest when they have read their own part. The checkpoint can be loaded from
     * again. Once all bytes have arrived it is too late: the load ends as it ends. Not asked again
     * once it was not 0. NULL: never. */
    int (*stop)(void *ctx);
    void *stop_ctx;
} dcp_load_options;
#define DCP_LOAD_OPTIONS_INIT DCP_SIZED(dcp_load_options)

/* Fills the memory of `state`'s boxes. Collective; `state` may name any part of the checkpoint's
 * tensors, and its boxes may differ from those that were saved. Where the ranks' boxes of a tensor
 * cover it once (equal boxes count once), what arrived in memory is proven against the stored
 * checksums, and equal boxes of several ranks against each other. Of other tensors every rank
 * checks each block that it reads; where some rank does not see some file, the files' readers check
 * those blocks in the files, and what then travels between ranks is not checked again. If anything
 * is wrong, all ranks fail. On failure the memory's content is undefined.
 *
 *   options, report, err   may be NULL.
 *
 * DCP_ERR_NOT_FOUND: a tensor that the checkpoint lacks. DCP_ERR_MISMATCH: another shape, or
 * another dtype (never cast unasked), or ranks disagree. DCP_ERR_CORRUPT: bytes differ from what
 * was saved; the message names tensor and block. Extra memory: at most 64 MiB a rank, and what
 * `cast` takes. DCP_ERR_CANCELLED: options->stop. */
DCP_API int dcp_load_with(dcp_checkpoint *ckpt, const dcp_state *state,
                          const dcp_load_options *options, dcp_report *report, dcp_error *err);

/* dcp_load_with without options. */
DCP_API int dcp_load(dcp_checkpoint *ckpt, const dcp_state *state, dcp_report *report,
                     dcp_error *err);

/* A load in flight. */
typedef struct dcp_loading dcp_loading;

/* Starts dcp_load_with and returns; arguments as there. Collective. Failures of the arguments are
 * returned here, all others by dcp_load_wait. `options` is borrowed during the call, and
 * options->on_missing is called in it; options->on_progress and stop are called later. `state`, its
 * boxes' memory, which nobody touches meanwhile, and the checkpoint stay until dcp_load_wait, or
 * another call that waits.
 *
 * Where the communicator can be used by a thread of the library (dcp_save_async says which can), a
 * thread does the reading, and sleeps while it waits for other ranks; it takes no signals and calls
 * no HDF5. It calls options->on_progress and stop. Else, and with DCP_ENGINE_MPIO, nothing is read
 * before dcp_load_wait, which does it then and calls them.
 *
 * One load of a checkpoint is in flight at a time: dcp_load, dcp_load_async, dcp_rewrite from it
 * and dcp_checkpoint_close wait for it first, on all ranks alike; its outcome still is for its own
 * dcp_load_wait, also after the close. dcp_checkpoint_read and readers (dcp/inspect.h) can be used
 * meanwhile. */
DCP_API int dcp_load_async(dcp_checkpoint *ckpt, const dcp_state *state,
                           const dcp_load_options *options, dcp_loading **out, dcp_error *err);

/* How far the load is on this rank; not collective, any thread may ask.
 *   1               it has ended, well or not: dcp_load_wait would return soon
 *   0               a thread does it, and this becomes 1 by itself
 *   DCP_ERR_STATE   (less than 0) nobody does it, since there can be no thread: it is done by
 *                   dcp_load_wait, or another call that waits
 * DCP_ERR_ARG: no load. */
DCP_API int dcp_load_is_done(dcp_loading *loading);

/* Gives the load up, as options->stop does: one rank is enough. Returns at once; every rank still
 * calls dcp_load_wait, which tells whether it came in time. From any thread and from handlers of
 * signals, until dcp_load_wait is called. NULL is ignored. */
DCP_API void dcp_load_cancel(dcp_loading *loading);

/* Collective: waits for the end and returns the load's outcome, the same on all ranks; on failure
 * the memory's content is undefined. Frees `loading`. A process that was forked from the one that
 * loads gets DCP_ERR_STATE, and waits for nothing. */
DCP_API int dcp_load_wait(dcp_loading *loading, dcp_report *report, dcp_error *err);

/* Reads one box of one tensor into data (dense), checking every block it touches. Not collective:
 * for tools. Errors as dcp_load's, and DCP_ERR_UNSUPPORTED where the box lies in a file that this
 * rank doesn't see. Any number of threads may call it at once: each has its own block of 4 MiB that
 * it read last, of which up to 64 are kept until the close. Threads may also call whatever else is
 * not collective and takes the checkpoint as const meanwhile, but not dcp_checkpoint_close. */
DCP_API int dcp_checkpoint_read(dcp_checkpoint *ckpt, const char *path, const dcp_box *box,
                                void *data, dcp_error *err);

/* What about.json in the step's folder says (who wrote it, when, and what dcp_save was given as
 * about_json), as one JSON object in *json, freed by the caller with free(). Not collective.
 * DCP_ERR_NOT_FOUND: it is missing. DCP_ERR_CORRUPT: its checksum is wrong. */
DCP_API int dcp_about_read(const char *step_path, char **json, dcp_error *err);

typedef struct dcp_verify_options {
    size_t size; /* dcp/size.h */
    /* Called for each damage found: `what` is one line that names the file and the tensor and
     * block, or the structure (user block, index, blocks, meta, HDF5 metadata, padding, size,
     * about.json). */
    void (*on_damage)(void *ctx, const char *what);
    /* Called for what is odd but no damage: HDF5 metadata under a right checksum that is not what
     * this library writes for these tensors. A load does not read it, other programs do. May be
     * NULL. */
    void (*on_note)(void *ctx, const char *what);
    void *ctx;
    /* Called every few MiB, as all others on the calling thread; may be NULL. */
    void (*on_progress)(void *ctx, uint64_t done, uint64_t total);
    void *progress_ctx;
    /* Asked as often, on each rank for itself: not 0, on one rank or more: all give up with
     * DCP_ERR_CANCELLED. Not asked again then. NULL: never. */
    int (*stop)(void *ctx);
    void *stop_ctx;
} dcp_verify_options;
#define DCP_VERIFY_OPTIONS_INIT DCP_SIZED(dcp_verify_options)

/* Reads every byte of the step's folder `path`, which it holds meanwhile, and checks it, with
 * about.json and redundancy files. Of a private store's step: what this node has of it, which can't
 * show that the nodes' shards together are one state. Not collective. DCP_OK: intact.
 * DCP_ERR_CORRUPT: damage was reported through on_damage. DCP_ERR_CANCELLED: options->stop.
 * Other statuses: the check itself could not be done. A thread for each core that the process may
 * use, 32 at most, with 16 MiB of memory each, reads past the page cache. */
DCP_API int dcp_verify(const char *path, const dcp_verify_options *options, dcp_error *err);
/* The same, where several ranks that see the same files share the reading. Collective; the
 * functions of `options` are called on rank 0 alone, but `stop` on all, and all ranks return the
 * same status. */
DCP_API int dcp_verify_with(dcp_comm *comm, const char *path, const dcp_verify_options *options,
                            dcp_error *err);

#ifdef __cplusplus
}
#endif
#endif
