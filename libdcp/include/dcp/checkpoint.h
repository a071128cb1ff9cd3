/* Reading a checkpoint: inspecting it, loading it on any world size, checking every byte. */
#ifndef DCP_CHECKPOINT_H
#define DCP_CHECKPOINT_H

#include "dcp/save.h"
#include "dcp/size.h"
#include "dcp/state.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct dcp_checkpoint dcp_checkpoint;

/* Opens a step of either layout. Collective. Reads no tensor.
 *
 *   comm  borrowed until the close
 *   path  a step's folder; or a checkpoint directory, which means its newest complete step
 *
 * DCP_ERR_NOT_FOUND: there is no such folder, it contains no complete step, or a stopped writer has
 * begun to remove the step.
 * DCP_ERR_CORRUPT: a table's checksum, a table's bounds or a file's size is wrong, or the folder
 * has the name of another step.
 * DCP_ERR_VERSION: the step was written in a newer format.
 * DCP_ERR_ARG: the folder holds only one node's part of a private store's step (dcp/store.h);
 * other nodes have the rest.
 *
 * In layout global, rank 0 reads and checks the tables, and all ranks get them. In layout sharded,
 * each shard's tables are read and checked by one rank; the ranks do so simultaneously. Every rank
 * then knows the tensors' names, types and shapes. For each tensor, one rank stores where the
 * tensor's boxes lie; a load requests this information from that rank. Shards' files are opened
 * when they are read. At most 64 remain open, or a quarter of the number of files that the process
 * may open (RLIMIT_NOFILE) if that is less, but at least 8.
 *
 * Until the close, the step is held by a lock on its about.json: no writer of the store removes its
 * files, and a load can read them even if a save has replaced the step. A child of fork holds
 * nothing. File systems without locks have no holds: a reader loses a step that `keep` removes. If
 * a step disappears while it is being opened, the call searches again for the newest step, or for a
 * step of the given name. */
DCP_API int dcp_checkpoint_open(dcp_comm *comm, const char *path, dcp_checkpoint **out,
                                dcp_error *err);
/* Opens a step whose files lie on several nodes, each of which may see only its own (private
 * stores, dcp/store.h). Collective, on any number of ranks.
 *
 *   own_path  this rank's own path. Either all ranks pass their node's directory of steps, or all
 *             pass the step's folder in it. A rank whose path does not exist sees no file, which is
 *             not an error; NULL has the same effect
 *
 * DCP_ERR_NOT_FOUND: no step is complete; the message says what the newest step lacks.
 * DCP_ERR_CORRUPT: the step's folder was given, and no rank sees one of the step's files; or as for
 * dcp_checkpoint_open.
 * DCP_ERR_MISMATCH: some ranks pass directories of steps, and other ranks pass folders of steps.
 *
 * Other errors are those of dcp_checkpoint_open. If directories are given, the call opens the
 * newest step of which every file is seen by at least one rank. The tables of a file are read by a
 * rank that sees it, if possible by the rank with the shard's number. dcp_load reads a file on any
 * rank that sees it, and sends the parts that other ranks need over the communicator. Unless every
 * rank sees every file, each rank stores a copy of all shards' tables, about 80 bytes per box. */
DCP_API int dcp_checkpoint_open_private(dcp_comm *comm, const char *own_path, dcp_checkpoint **out,
                                        dcp_error *err);
/* Waits for a load in flight (dcp_load_async), then closes the checkpoint and ends the hold. */
DCP_API void dcp_checkpoint_close(dcp_checkpoint *ckpt);

/* Return the path of the step's folder, the step's number, and its layout. The path is valid until
 * the close. For a step of a private store it is the folder on this rank's node or, if that node
 * has none, the folder on another rank's node. */
DCP_API const char *dcp_checkpoint_path(const dcp_checkpoint *ckpt);
DCP_API uint64_t dcp_checkpoint_step(const dcp_checkpoint *ckpt);
DCP_API dcp_layout dcp_checkpoint_layout(const dcp_checkpoint *ckpt);
/* Returns the number of files: 1 for DCP_LAYOUT_GLOBAL, otherwise the number of shards. */
DCP_API int dcp_checkpoint_files(const dcp_checkpoint *ckpt);
/* Returns the JSON that dcp_save received as `json`, with "format" and "step" added; valid until
 * the close. */
DCP_API const char *dcp_checkpoint_json(const dcp_checkpoint *ckpt);

/* Return the number of tensors, and tensor i. Tensors are in bytewise ascending order of their
 * paths; pointers are valid until the close. */
DCP_API size_t dcp_checkpoint_tensors(const dcp_checkpoint *ckpt);
DCP_API const dcp_tensor *dcp_checkpoint_tensor(const dcp_checkpoint *ckpt, size_t i);
/* Returns the tensor with that path; NULL if there is none. */
DCP_API const dcp_tensor *dcp_checkpoint_find(const dcp_checkpoint *ckpt, const char *path);

/* dcp_checkpoint_boxes returns the number of boxes in which the files store tensor i: 1 for
 * DCP_LAYOUT_GLOBAL; for shards the number in all files, which is 0 for an empty tensor.
 * dcp_checkpoint_box sets *box to box k, and returns the number of the file that contains it (from
 * 0), or -1 if there is no such box. Not collective; both give the same results on every rank.
 *
 * For shards, this rank might not be the one that stores where a tensor's boxes lie
 * (dcp_checkpoint_open). Then the first dcp_checkpoint_box for that tensor looks up the boxes in
 * the files' tables. What it finds remains in memory, about 300 bytes per box. If the lookup fails,
 * dcp_checkpoint_box returns -1. */
DCP_API size_t dcp_checkpoint_boxes(const dcp_checkpoint *ckpt, size_t i);
DCP_API int dcp_checkpoint_box(const dcp_checkpoint *ckpt, size_t i, size_t k, dcp_box *box);

/* A tensor whose name in the state is `from` has the name `to` in the checkpoint. Either both are
 * exact names, without a `*`; or each has one `*`, and both stars stand for the same text, which
 * may be any bytes including '/'. Example: {"/model/backbone.*", "/model/model.*"}. Nothing else is
 * special. */
typedef struct dcp_rename {
    const char *from, *to;
} dcp_rename;

/* How a load treats missing and unexpected tensors. A missing tensor is in the state and not in the
 * checkpoint. An unexpected tensor is in the checkpoint, and no tensor of the state is loaded from
 * it. Tensors under /files, which an import stores for the export, are never unexpected. PyTorch's
 * strict=True refuses both kinds. */
typedef enum dcp_missing_keys {
    DCP_MISSING_KEYS_REFUSE, /* DCP_ERR_NOT_FOUND; the message gives the first name and a count */
    DCP_MISSING_KEYS_KEEP,   /* their memory remains unchanged; see on_missing */
} dcp_missing_keys;
typedef enum dcp_unexpected_keys {
    DCP_UNEXPECTED_KEYS_IGNORE,
    DCP_UNEXPECTED_KEYS_REFUSE, /* DCP_ERR_MISMATCH; the message gives the first name and a count */
} dcp_unexpected_keys;

/* Options of a load. All ranks must pass the same values, else the call fails with
 * DCP_ERR_MISMATCH, and the error names the option and the ranks; only the functions and their
 * contexts may differ. Everything is borrowed during the call. If all members except `size` are 0,
 * the load behaves like dcp_load. */
typedef struct dcp_load_options {
    size_t size; /* dcp/size.h */
    /* Globs over the state's names: only tensors that match at least one are loaded, and the memory
     * of the others remains unchanged. They work as in fnmatch(3) without flags: `*` matches any
     * text, including '/', `?` one character, [a-z] one of these characters, and a backslash quotes
     * the next character. NULL: all tensors. A glob that matches no tensor of the state
     * is DCP_ERR_NOT_FOUND. */
    const char *const *only;
    size_t n_only;
    /* The first pair whose `from` matches a tensor's name renames it; other tensors keep their
     * names. Two tensors of the state may be loaded from the same stored tensor. DCP_ERR_ARG: the
     * stars of a pair do not match, or a name is invalid. */
    const dcp_rename *renames;
    size_t n_renames;
    /* Nonzero: a stored tensor of another dtype and the same shape is converted to the state's
     * dtype, as dcp_convert does it; a pair of types without a conversion is DCP_ERR_UNSUPPORTED,
     * and the message names both. The stored bytes are checked against their checksums, the
     * converted ones are not. 0: another dtype is DCP_ERR_MISMATCH. Extra memory: 32 MiB per rank
     * if the state's elements are smaller than the stored ones, else none. */
    int cast;
    dcp_missing_keys missing_keys;
    /* With `only`, a stored tensor counts as unexpected only if its name in the state, as given by
     * `renames`, would match a glob. */
    dcp_unexpected_keys unexpected_keys;
    /* Any engine can load what any other engine wrote. With DCP_ENGINE_MPIO, HDF5 opens a file only
     * after the checksum of all its bytes outside of tensors has been verified. A dataset that is
     * not contiguous, or not at the offset that the index gives, is DCP_ERR_CORRUPT. Tensors that
     * the ranks' boxes do not cover exactly are read block by block, without HDF5. Unless every
     * rank sees every file of the step, DCP_ENGINE_DIRECT reads the step, whichever engine is
     * requested. */
    dcp_engine engine;
    /* Called on every rank for each missing tensor that is kept, in ascending order of paths,
     * before anything is read. May be NULL. */
    void (*on_missing)(void *ctx, const char *path);
    void *ctx;
    /* Reports that `done` of the `total` bytes of this rank's boxes have arrived; bytes are counted
     * in the stored dtype. Called every few MiB (DCP_ENGINE_MPIO: every 32 MiB), from the thread
     * that loads. May be NULL. */
    void (*on_progress)(void *ctx, uint64_t done, uint64_t total);
    void *progress_ctx;
    /* Called as often as on_progress, from the same thread, on each rank separately. If it returns
     * nonzero on at least one rank, all ranks give up with DCP_ERR_CANCELLED: the ranks of the same
     * host immediately, those of other hosts at the latest when they have read their own part. The
     * checkpoint remains usable for further loads. Once all bytes have arrived, the result has no
     * effect. Not called again after it returned nonzero. NULL: never stop. */
    int (*stop)(void *ctx);
    void *stop_ctx;
} dcp_load_options;
#define DCP_LOAD_OPTIONS_INIT DCP_SIZED(dcp_load_options)

/* Fills the memory of `state`'s boxes from the checkpoint. Collective.
 *
 *   state    may name any subset of the checkpoint's tensors; its boxes may differ from those that
 *            were saved
 *   options  may be NULL
 *   report   may be NULL
 *   err      may be NULL
 *
 * If anything is wrong, all ranks fail, and the memory's content is undefined.
 * DCP_ERR_NOT_FOUND: the checkpoint lacks a tensor.
 * DCP_ERR_MISMATCH: a shape or a dtype differs (dtypes are converted only with `cast`), or ranks
 * disagree.
 * DCP_ERR_CORRUPT: bytes differ from what was saved; the message names tensor and block.
 * DCP_ERR_CANCELLED: options->stop.
 *
 * If the ranks' boxes cover a tensor exactly once (equal boxes count once), the bytes in memory are
 * checked against the stored checksums, and equal boxes of several ranks are compared with each
 * other. For other tensors, every rank checks each block that it reads. Unless every rank sees
 * every file, these blocks are checked by the ranks that read the files, and not again after they
 * were sent to other ranks. Extra memory: at most 64 MiB per rank, plus what `cast` needs. */
DCP_API int dcp_load_with(dcp_checkpoint *ckpt, const dcp_state *state,
                          const dcp_load_options *options, dcp_report *report, dcp_error *err);

/* dcp_load_with without options. */
DCP_API int dcp_load(dcp_checkpoint *ckpt, const dcp_state *state, dcp_report *report,
                     dcp_error *err);

/* A load in flight. */
typedef struct dcp_loading dcp_loading;

/* Starts dcp_load_with and returns. Collective. Arguments as for dcp_load_with, with these
 * differences:
 *
 *   ckpt     must remain open until dcp_load_wait, or until another call that waits
 *   state    must exist until then; nothing else may access the memory of its boxes meanwhile
 *   options  borrowed during the call. on_missing is called during the call, on_progress and stop
 *            later
 *   out      the load, for dcp_load_wait
 *
 * Failures that concern the arguments are returned here, all others by dcp_load_wait.
 *
 * If a thread of the library can use the communicator (see dcp_save_async), this thread reads, and
 * calls options->on_progress and stop. It sleeps while it waits for other ranks, receives no
 * signals and does not call HDF5. Otherwise, and with DCP_ENGINE_MPIO, nothing is read before
 * dcp_load_wait, which then loads and calls these functions.
 *
 * Only one load of a checkpoint is in flight at a time. dcp_load, dcp_load_async, dcp_rewrite from
 * the checkpoint and dcp_checkpoint_close wait for it first, on all ranks alike; dcp_load_wait of
 * that load still returns its outcome, even after the close. dcp_checkpoint_read and readers
 * (dcp/inspect.h) can be used meanwhile. */
DCP_API int dcp_load_async(dcp_checkpoint *ckpt, const dcp_state *state,
                           const dcp_load_options *options, dcp_loading **out, dcp_error *err);

/* Returns how far the load is on this rank. Not collective; any thread may call it.
 *
 *   1              the load has ended, successfully or not: dcp_load_wait would return soon
 *   0              a thread is loading, and the result becomes 1 without a call that waits
 *   DCP_ERR_STATE  (less than 0) no thread runs it, since there can be none: dcp_load_wait, or
 *                  another call that waits, runs it
 *   DCP_ERR_ARG    loading is NULL */
DCP_API int dcp_load_is_done(dcp_loading *loading);

/* Cancels the load, as options->stop does; a call on one rank is enough. Returns immediately. Every
 * rank must still call dcp_load_wait, which returns DCP_ERR_CANCELLED if the call came in time. May
 * be called from any thread and from signal handlers, until dcp_load_wait is called. NULL is
 * ignored. */
DCP_API void dcp_load_cancel(dcp_loading *loading);

/* Waits for the end of the load, frees `loading` and returns the outcome. Collective. The outcome
 * is the same on all ranks; on failure the memory's content is undefined. In a process that was
 * forked from the loading process, dcp_load_wait returns DCP_ERR_STATE and waits for nothing. */
DCP_API int dcp_load_wait(dcp_loading *loading, dcp_report *report, dcp_error *err);

/* Reads one box of one tensor into `data` (dense), and checks every block that it touches. For
 * tools. Not collective. The errors are those of dcp_load. In addition:
 * DCP_ERR_UNSUPPORTED: the box lies in a file that this rank does not see.
 *
 * Any number of threads may call it simultaneously. Each thread keeps the block of 4 MiB that it
 * read last; up to 64 such blocks are kept until the close. Meanwhile threads may also call other
 * functions that are not collective and take the checkpoint as a const argument, but not
 * dcp_checkpoint_close. */
DCP_API int dcp_checkpoint_read(dcp_checkpoint *ckpt, const char *path, const dcp_box *box,
                                void *data, dcp_error *err);

/* Sets *json to the content of about.json in the step's folder, one JSON object: who wrote the
 * step, when, and what dcp_save was given as about_json. The caller frees it with free(). Not
 * collective.
 * DCP_ERR_NOT_FOUND: about.json is missing.
 * DCP_ERR_CORRUPT: its checksum is wrong. */
DCP_API int dcp_about_read(const char *step_path, char **json, dcp_error *err);

typedef struct dcp_verify_options {
    size_t size; /* dcp/size.h */
    /* Called for each damaged part that is found. `what` is one line that names the file, and
     * within the file the tensor and block, or the structure (user block, index, blocks, meta, HDF5
     * metadata, padding, size, about.json). */
    void (*on_damage)(void *ctx, const char *what);
    /* Called for something unusual that is not damage: HDF5 metadata that differs from what this
     * library writes for these tensors, although its checksum is right. A load does not read that
     * metadata, but other programs do. May be NULL. */
    void (*on_note)(void *ctx, const char *what);
    void *ctx;
    /* Called every few MiB; like all functions of this struct, on the calling thread. May be
     * NULL. */
    void (*on_progress)(void *ctx, uint64_t done, uint64_t total);
    void *progress_ctx;
    /* Called as often as on_progress, on each rank separately. If it returns nonzero on at least
     * one rank, all ranks give up with DCP_ERR_CANCELLED. Not called again after that. NULL: never
     * stop. */
    int (*stop)(void *ctx);
    void *stop_ctx;
} dcp_verify_options;
#define DCP_VERIFY_OPTIONS_INIT DCP_SIZED(dcp_verify_options)

/* Reads and checks every byte of the step in the folder `path`, including about.json and redundancy
 * files, and holds the step meanwhile. Not collective. Returns DCP_OK if the step is intact.
 * DCP_ERR_CORRUPT: damage was reported through on_damage.
 * DCP_ERR_CANCELLED: options->stop.
 *
 * Other statuses mean that the check itself could not be done. For a step of a private store, only
 * the files on this node are checked; this cannot show whether the shards of all nodes together
 * form one state. The files are read past the page cache by one thread per core that the process
 * may use, at most 32, with 16 MiB of memory per thread. */
DCP_API int dcp_verify(const char *path, const dcp_verify_options *options, dcp_error *err);
/* Like dcp_verify, but several ranks that see the same files share the reading. Collective. The
 * functions of `options` are called on rank 0 only, except for `stop`, which is called on all
 * ranks. All ranks return the same status. */
DCP_API int dcp_verify_with(dcp_comm *comm, const char *path, const dcp_verify_options *options,
                            dcp_error *err);

#ifdef __cplusplus
}
#endif
#endif
