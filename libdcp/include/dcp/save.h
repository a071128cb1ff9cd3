/* Saving a step. */
#ifndef DCP_SAVE_H
#define DCP_SAVE_H

#include "dcp/layout.h"
#include "dcp/size.h"
#include "dcp/state.h"
#include "dcp/store.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum dcp_busy {
    DCP_BUSY_WAIT,   /* a save first waits for the one in flight */
    DCP_BUSY_REFUSE, /* a save returns DCP_ERR_BUSY if one is in flight on any rank */
} dcp_busy;

#define DCP_STAGING_DEFAULT ((uint64_t)64 << 20)
#define DCP_STAGING_NONE UINT64_MAX
#define DCP_COPY_DEFAULT UINT64_MAX

/* An engine: how bytes get into a file and back. All engines write the same files, byte for byte,
 * and each can load what any of them wrote. */
typedef enum dcp_engine {
    /* The engine that the file system of rank 0's directory requires: if MPI is running, mpio for
     * PVFS2 and OrangeFS, whose clients are coherent only through MPI-IO; otherwise direct. */
    DCP_ENGINE_AUTO,
    /* Positioned writes and reads of whole pages, many in flight (by io_uring, or by a few threads
     * if the kernel refuses it), past the page cache; through the page cache if the file system
     * refuses O_DIRECT. */
    DCP_ENGINE_DIRECT,
    /* H5Dwrite and H5Dread through HDF5's MPI-IO driver, as independent transfers of each rank on
     * MPI_COMM_SELF. Works with any communicator; DCP_ERR_UNSUPPORTED if MPI is not running. HDF5
     * and MPI-IO are called only on the calling thread, so dcp_save_async does the save at the
     * fence. Under Open MPI the library sets the environment variable OMPI_MCA_io to "^ompio"
     * (ROMIO) before it opens the first file, unless the variable is set: Open MPI's own MPI-IO
     * loses writes on a full disk. This has no effect if the program has already opened a file by
     * MPI-IO. */
    DCP_ENGINE_MPIO,
} dcp_engine;

/* Returns "auto", "direct" or "mpio", in static storage; NULL for a value outside the enum. */
DCP_API const char *dcp_engine_name(dcp_engine engine);
/* Sets *out to the engine of that name. DCP_ERR_NOT_FOUND: there is none. */
DCP_API int dcp_engine_parse(const char *name, dcp_engine *out);
/* Checks whether this process can save and load with the engine, before anything has to be saved.
 * Not collective.
 * DCP_ERR_UNSUPPORTED: it cannot; the message says why.
 * DCP_ERR_ARG: there is no such engine. */
DCP_API int dcp_engine_check(dcp_engine engine, dcp_error *err);

/* Phases of a save. dcp_report has the time of each. */
typedef enum dcp_phase {
    DCP_PHASE_ALL,
    DCP_PHASE_PLAN,
    DCP_PHASE_GATHER,
    DCP_PHASE_COPY,
    DCP_PHASE_WRITE,
    DCP_PHASE_SYNC,
    DCP_PHASE_PUBLISH,
} dcp_phase;

/* How a save treats replicas: boxes that several ranks hold, and that must have the same bytes on
 * all of them. In layout global the holders share the writing: each writes its own parts of the
 * file. In layout sharded the lowest holder writes. Each holder reads all of its box once, for a
 * checksum. */
typedef enum dcp_replicas {
    /* If replicas differ, the save fails on all ranks with DCP_ERR_MISMATCH. The message names the
     * tensor, the box, its first block (of 4 MiB) that differs, and the ranks. */
    DCP_REPLICAS_CHECK,
    /* If replicas differ, rank 0 logs it (dcp_store_options.log). The lowest holder's replica is
     * saved, and that rank alone writes it. */
    DCP_REPLICAS_WARN,
    DCP_REPLICAS_TRUST, /* nothing is compared, so no rank reads bytes that it does not write */
} dcp_replicas;

/* Limits how often an expensive `stop` function is called, such as one in a language whose runtime
 * has to take a lock first. Pass dcp_stop_seldom as `stop` and a dcp_seldom as `stop_ctx`; the
 * dcp_seldom must exist as long as it is in use there. Set `asked` to 0 at the beginning. */
typedef struct dcp_seldom {
    int (*stop)(void *ctx); /* the program's function */
    void *ctx;
    double seconds; /* at least this long between two calls of `stop` */
    double asked;   /* when `stop` was last called, in seconds of CLOCK_MONOTONIC; 0: never */
} dcp_seldom;
/* Calls the program's function if `seconds` have passed since its last call, and returns its
 * answer; otherwise returns 0. */
DCP_API int dcp_stop_seldom(void *seldom);

typedef struct dcp_save_options {
    size_t size; /* dcp/size.h */
    dcp_layout layout;
    dcp_engine engine; /* the same on all ranks, else DCP_ERR_MISMATCH */
    /* The number of files of DCP_LAYOUT_SHARDED; 0: the communicator's size. Shard k has the boxes
     * that were added for rank k (dcp_state_add_source), and is written by rank k % size. */
    int shards;
    /* One JSON object, whose members are added to the library's own in about.json; NULL: none. At
     * most 1 MiB. */
    const char *about_json;
    /* How much memory of this rank the save may use so that dcp_save_fence returns sooner,
     * including the 16 MiB of its buffers. Once the program waits at the fence and the unwritten
     * rest fits into this memory, the save copies the rest and writes it from the copy. It copies
     * nothing before that. 0: DCP_STAGING_DEFAULT. DCP_STAGING_NONE: it never copies. Boxes on a
     * device are always copied: dcp/device.h. */
    uint64_t staging_bytes;
    dcp_busy when_busy;
    /* Called now and then, from the thread that saves, while this rank's bytes are read and
     * written. `total` is the number of bytes that this rank writes or sends to other ranks, and
     * `done` is how many of them it has written or sent; bytes that were only copied, to be written
     * later, do not count. May be NULL. */
    void (*on_progress)(void *ctx, uint64_t done, uint64_t total);
    void *progress_ctx;
    /* Called every few MiB, from the thread that saves, on each rank separately. If it returns
     * nonzero on at least one rank, all ranks give up with DCP_ERR_CANCELLED: the ranks of the same
     * host immediately, those of other hosts at the latest when their own part is written. Nothing
     * is published, and the store remains usable. Once everything is written and the ranks have
     * agreed to publish, the save succeeds regardless of the result. Not called again after it
     * returned nonzero. NULL: never stop. */
    int (*stop)(void *ctx);
    void *stop_ctx;
    /* Called as each phase ends, from the thread that saves; `begin` and `end` are seconds of
     * CLOCK_MONOTONIC. A phase may occur several times. A wait for the disk, DCP_PHASE_WRITE, lies
     * within the phase that waited; DCP_PHASE_ALL comes last and contains all others. May be
     * NULL. */
    void (*on_phase)(void *ctx, dcp_phase phase, double begin, double end);
    void *phase_ctx;
    dcp_replicas replicas; /* the same on all ranks, else DCP_ERR_MISMATCH */
    /* Nonzero: if there is no room for the save, it removes old steps one by one, regardless of
     * `keep`, until the save fits. Useful for the last save of a run, for example. Abandoned steps
     * are removed first, then the others, the oldest first in both cases. The newest step, the
     * newest one known to be intact, and steps that readers hold remain; if the save does not fit
     * because of held steps, the error names them. Each removal is logged. dcp_save_fence waits for
     * the end of such a save, which may have to read the memory again. All ranks must pass the same
     * value. */
    int make_room;
    /* For dcp_save_async. Nonzero: the call copies what this rank writes, so the step is the state
     * as it is during the call, and the memory may change once the call has returned. The value is
     * how much memory of this rank may be used for the copy, in addition to what a save needs
     * otherwise. DCP_COPY_DEFAULT: half of this rank's share of the memory available on its host,
     * which the host's ranks share equally; the system, control groups, RLIMIT_AS and RLIMIT_DATA
     * limit what is available. 0: nothing is copied, and the caller calls dcp_save_fence. Zero on
     * all ranks or on none, else DCP_ERR_MISMATCH.
     *
     * If copy_bytes is too small, or there is no memory, the call writes until the rest can be
     * copied, as if it called dcp_save_fence. If there can be no thread (see dcp_save_async), the
     * call does the whole save. The copy contains the bytes that this rank alone writes, and its
     * part of replicas whose writing the holders share; boxes on a device are copied to page-locked
     * memory. For replicas that are only compared, the call computes checksums. The memory is kept
     * for the store's next saves (dcp_tiers: for the next saves of all stores) until the store is
     * closed. The first save also has to allocate its pages; later ones take about as long as
     * memcpy. */
    uint64_t copy_bytes;
    /* For dcp_save_async: the value that dcp_save_copy returned in *is_copied. 1: the copy is
     * saved, even if the memory has changed since; DCP_ERR_STATE if there is no copy of this
     * state. */
    int is_copied;
} dcp_save_options;
#define DCP_SAVE_OPTIONS_INIT DCP_SIZED(dcp_save_options)

/* How long the parts of a save or load took, in seconds on this rank, and how large it was. */
typedef struct dcp_report {
    size_t size;           /* dcp/size.h */
    uint64_t bytes;        /* tensor bytes of all ranks */
    uint64_t cloned_bytes; /* how many of `bytes` were shared with the last step's file */
    uint64_t unchanged;    /* tensors with the same bytes as in the store's previous save */
    dcp_engine engine;     /* the engine that was used: never DCP_ENGINE_AUTO */
    double total_s;        /* the whole call */
    double plan_s;         /* agreeing on tensors and boxes, laying out the file */
    double gather_s;       /* exchanging edge bytes and small pieces between ranks */
    double copy_s;         /* checksums, copies into aligned buffers, sharing extents */
    double write_s;        /* waiting for the disk: writes, or a load's reads */
    double sync_s;         /* making the data durable; for a load: comparing checksums */
    double publish_s;      /* tables, redundancy, about.json, rename, retention */
    /* For a save: whether one rank was slow, for example because of a failing host or disk. A rank
     * is slow if its own work (copy_s, write_s and sync_s) took at least 3 times as long per byte
     * written as the median rank's, and half a second longer. The save then took as long as that
     * rank, since all others waited for it. slow_ratio is the slow rank's time per byte divided by
     * the median rank's; 0: no rank was slow, and the members below mean nothing. The same on all
     * ranks. Not known for saves in which fewer than two ranks write, and with engine mpio. */
    double slow_ratio;
    double slow_s;   /* time of the slow rank's own work, scaled to the largest number of bytes that
                        any rank wrote */
    double median_s; /* time of the median rank's own work, scaled likewise */
    int slow_rank;   /* the slow rank's number */
    char slow_host[68]; /* on rank 0, the slow rank's host: its name from dcp_comm_set_host or
                         * DCP_HOST, or else the system's name; on other ranks "" */
} dcp_report;
#define DCP_REPORT_INIT DCP_SIZED(dcp_report)

/* Writes `state` as `step` of `store`. Collective. When it returns DCP_OK, the step is complete and
 * durable.
 *
 *   json     one JSON object, kept in the checkpoint: what the program needs, besides the tensors,
 *            to continue from this step. Only rank 0's is used. NULL: none. The library sets the
 *            keys "format", "step" and "shard", and replaces values that are passed under them.
 *            Stored with sorted keys, so that equal states give equal files. At most 16 MiB and
 *            1,048,576 values (everything except keys counts, at any depth); more is DCP_ERR_ARG.
 *            Integers from -2^63 to 2^64 - 1 are kept exactly, others are DCP_ERR_ARG; reals are
 *            fp64.
 *   options  may be NULL
 *   report   may be NULL
 *   err      may be NULL
 *
 * On failure every rank gets the same status. Nothing is published (except that after DCP_ERR_COMM
 * the step may have been published), older steps remain, and the next save may be tried
 * immediately.
 * DCP_ERR_MISMATCH: ranks disagree about a tensor, boxes overlap or leave elements out, or replicas
 * differ.
 * DCP_ERR_STATE: the step exists; or the store holds a later one, and dcp_store_continue_from was
 * not called: see that function.
 * DCP_ERR_NOT_FOUND: the store's directory was moved or removed.
 * DCP_ERR_BUSY: another writer has taken the store (dcp_store_open), and all later saves into it
 * fail in the same way; or options->when_busy refuses the save.
 * DCP_ERR_NO_SPACE: there is no room; detected before any data is moved if the file system can
 * report it.
 * DCP_ERR_CANCELLED: options->stop.
 *
 * Extra memory: at most 64 MiB per rank, or options->staging_bytes if that is more. In addition:
 * the memory that ranks of one host share (dcp/mpi.h); and for a state of more than some 8,000
 * tensors, about 5 KiB per tensor on rank 0 while HDF5 lays out the first file.
 *
 * Rank 0 logs a warning (dcp_store_options.log) if the saved memory seems not to have been updated.
 * It compares the tensors with the store's previous save of the same tensors, if that save was of
 * an earlier step. It warns if no byte outside /files differs, or if tensors differ under only one
 * of /model and /optimizer. */
DCP_API int dcp_save(dcp_store *store, uint64_t step, const dcp_state *state, const char *json,
                     const dcp_save_options *options, dcp_report *report, dcp_error *err);

/* Allocates in advance what the first save of `state` would allocate for its device: a stream for
 * copies and page-locked memory. For programs that must not allocate during their steps. Without
 * boxes on a device it does nothing. Not collective; each rank that wants the effect calls it.
 *
 *   state    not borrowed; it may have changed by the time of the save
 *   options  those of the later saves; may be NULL
 *
 * DCP_ERR_STATE: a save is in flight.
 * DCP_ERR_NO_MEMORY, DCP_ERR_DEVICE: the store may have released what it had; its saves allocate
 * what they need as usual. */
DCP_API int dcp_save_prepare(dcp_store *store, const dcp_state *state,
                             const dcp_save_options *options, dcp_error *err);

/* A save in flight. */
typedef struct dcp_saving dcp_saving;

/* Starts an asynchronous save and returns immediately. Collective. Arguments as for dcp_save, with
 * these differences:
 *
 *   state    borrowed until dcp_save_wait. The memory of its boxes must not change until
 *            dcp_save_fence, or with options->copy_bytes until this call returns
 *   json     copied
 *   options  copied
 *   out      the save, for dcp_save_wait
 *
 * Failures that concern the arguments are returned here, all others by dcp_save_wait.
 * So DCP_ERR_BUSY from this call means that a save is in flight; from dcp_save_wait it means that
 * another writer has the store.
 *
 * A thread of the library does all the work, including publication, if the communicator allows it.
 * These communicators do: one over MPI if MPI_Init_thread granted MPI_THREAD_MULTIPLE, one over a
 * caller's table with `duplicate` and `threads`, and one of a single rank. Over MPI the thread
 * sleeps while it waits for other ranks. The thread receives no signals, and it calls the store's
 * log function. It never calls HDF5, which is not thread-safe: HDF5 lays out the files in this
 * call, at the first save of a state and whenever its tensors or boxes have changed since. With any
 * other communicator, and with DCP_ENGINE_MPIO, nothing happens before dcp_save_fence or
 * dcp_save_wait, which then do the save; with options->copy_bytes this call does it.
 *
 * Only one save of a store is in flight at a time. Depending on options->when_busy, another
 * dcp_save_async or dcp_save first waits for it, or is refused. dcp_store_continue_from,
 * dcp_store_mark_intact and dcp_store_close wait for it as well. After that, the dcp_save_wait of
 * the save still returns its outcome. */
DCP_API int dcp_save_async(dcp_store *store, uint64_t step, const dcp_state *state,
                           const char *json, const dcp_save_options *options, dcp_saving **out,
                           dcp_error *err);

/* Copies this rank's boxes in advance for the store's next dcp_save_async, so that the memory may
 * change before that call and the program waits for no other rank. Not collective: ranks may differ
 * in whether they call it and in its answer. Waits for the save in flight. The next dcp_save_async
 * must save the same state, to which nothing was added, with the value of *is_copied in
 * options->is_copied. That dcp_save_async may be called by another thread.
 *
 *   options    those of the next dcp_save_async, including copy_bytes
 *   is_copied  1: the memory may change. 0: nothing was copied, and dcp_save_async copies as usual
 *
 * The answer is 0 in these cases: the store's last save was not of these tensors and boxes; there
 * can be no thread; boxes are on a device or are read by a function; more than an eighth of the
 * bytes are replicas, of which dcp_save_async copies only this rank's share; or the boxes are
 * larger than options->copy_bytes. */
DCP_API int dcp_save_copy(dcp_store *store, const dcp_state *state, const dcp_save_options *options,
                          int *is_copied, dcp_error *err);

/* Waits until the save no longer needs this rank's memory, which may change afterwards. Every rank
 * calls it, even if the save has failed. With options->copy_bytes there is nothing to wait for, and
 * it need not be called. dcp_save_wait returns the outcome. */
DCP_API void dcp_save_fence(dcp_saving *saving);

/* Like dcp_save_fence, but waits at most `seconds`. Returns 1 if the memory may change, 0 if it is
 * still needed. If the save has no thread, this call does the whole save, however long that
 * takes. */
DCP_API int dcp_save_fence_within(dcp_saving *saving, double seconds);

/* Returns how far the save is on this rank. Not collective; any thread may call it.
 *
 *   1              the save has ended, successfully or not: dcp_save_wait would return at once
 *   0              a thread runs it, and the result becomes 1 without a fence or a wait
 *   DCP_ERR_STATE  (less than 0) no thread runs it, since there can be none (dcp_save_async):
 *                  dcp_save_fence, dcp_save_wait or the next save runs it; then the result is 1
 *   DCP_ERR_ARG    saving is NULL
 *
 * All ranks get the same kind of answer, unless the system refused a thread to one of them: that
 * rank gets DCP_ERR_STATE, and the others' save ends only once that rank fences or waits. */
DCP_API int dcp_save_is_done(dcp_saving *saving);

/* Cancels the save, as options->stop does; a call on one rank is enough. Returns immediately. Every
 * rank must still call dcp_save_wait, which returns DCP_ERR_CANCELLED if the call came in time;
 * dcp_save_fence returns soon. May be called from any thread and from signal handlers, until
 * dcp_save_wait is called. NULL is ignored. If the save has no thread, the call that would do it
 * cancels it instead. */
DCP_API void dcp_save_cancel(dcp_saving *saving);

/* Waits for the end of the save, frees `saving` and returns the outcome. Every rank must call it.
 * The outcome is the same on all ranks: DCP_OK if the step is published and durable, else what
 * dcp_save would have returned. In a process that was forked from the saving process, it
 * returns DCP_ERR_STATE, and neither it nor dcp_save_fence waits for anything. */
DCP_API int dcp_save_wait(dcp_saving *saving, dcp_report *report, dcp_error *err);

#ifdef __cplusplus
}
#endif
#endif
