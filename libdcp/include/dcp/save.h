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
    DCP_BUSY_WAIT,   /* a save waits for the one in flight first */
    DCP_BUSY_REFUSE, /* a save returns DCP_ERR_BUSY where one is in flight on any rank */
} dcp_busy;

#define DCP_STAGING_DEFAULT ((uint64_t)64 << 20)
#define DCP_STAGING_NONE UINT64_MAX
#define DCP_COPY_DEFAULT UINT64_MAX

/* How bytes reach a file and come back. The files are the same, byte for byte, and each engine
 * loads what any of them wrote. */
typedef enum dcp_engine {
    /* As the file system of the directory on rank 0 wants it: mpio for PVFS2 and OrangeFS, whose
     * clients are only coherent through MPI-IO (if MPI is running), direct for all others. */
    DCP_ENGINE_AUTO,
    /* Positioned writes and reads of whole pages past the page cache, many in flight (io_uring, or
     * a few threads where the kernel refuses it); through the page cache where the file system
     * refuses O_DIRECT. */
    DCP_ENGINE_DIRECT,
    /* H5Dwrite and H5Dread through HDF5's MPI-IO driver, by independent transfers of each rank on
     * MPI_COMM_SELF. DCP_ERR_UNSUPPORTED where MPI is not running; any communicator will do. HDF5
     * and MPI-IO are called on the calling thread only, so dcp_save_async does the save at the
     * fence. Under Open MPI the environment variable OMPI_MCA_io is set to "^ompio" (ROMIO) where
     * it is not set, before the first file is opened: Open MPI's own MPI-IO loses writes on a full
     * disk. A program that has opened a file by MPI-IO before has made the choice itself. */
    DCP_ENGINE_MPIO,
} dcp_engine;

/* "auto", "direct", "mpio"; NULL for a value outside the enum. Static storage. */
DCP_API const char *dcp_engine_name(dcp_engine engine);
/* The engine of that name; DCP_ERR_NOT_FOUND where there is none. */
DCP_API int dcp_engine_parse(const char *name, dcp_engine *out);
/* Whether this process can save and load with that engine, before anything is to be saved; not
 * collective. DCP_ERR_UNSUPPORTED says why not, DCP_ERR_ARG that there is no such engine. */
DCP_API int dcp_engine_check(dcp_engine engine, dcp_error *err);

/* Phases of a save. All but the first are figures of dcp_report. */
typedef enum dcp_phase {
    DCP_PHASE_ALL,
    DCP_PHASE_PLAN,
    DCP_PHASE_GATHER,
    DCP_PHASE_COPY,
    DCP_PHASE_WRITE,
    DCP_PHASE_SYNC,
    DCP_PHASE_PUBLISH,
} dcp_phase;

/* What becomes of replicas, boxes that several ranks hold, which have to hold the same bytes. In
 * layout global their holders share the writing, each of its own parts of the file; in layout
 * sharded the lowest holder writes. Each reads all of its box once, for a checksum. */
typedef enum dcp_replicas {
    /* Where they differ, the save fails on all ranks with DCP_ERR_MISMATCH, which names the tensor,
     * the box, the first block of it (of 4 MiB) that differs, and the ranks. */
    DCP_REPLICAS_CHECK,
    /* Rank 0 logs that (dcp_store_options.log); the lowest holder's is saved, written by it alone.
     */
    DCP_REPLICAS_WARN,
    DCP_REPLICAS_TRUST, /* nobody looks: no rank reads what it does not write */
} dcp_replicas;

/* A `stop` function for programs whose own are dear to call, as those of languages that take a lock
 * first. Given as `stop` with one of these, which stays as long, as `stop_ctx`, it asks the
 * program's function with `ctx` where `seconds` have passed since it was asked last, and else
 * returns 0. All other members are 0 at the beginning. */
typedef struct dcp_seldom {
    int (*stop)(void *ctx);
    void *ctx;
    double seconds;
    double asked; /* of CLOCK_MONOTONIC; 0: not yet */
} dcp_seldom;
DCP_API int dcp_stop_seldom(void *seldom);

typedef struct dcp_save_options {
    size_t size; /* dcp/size.h */
    dcp_layout layout;
    dcp_engine engine; /* the same on all ranks, else DCP_ERR_MISMATCH */
    /* Files of DCP_LAYOUT_SHARDED; 0: the communicator's size. Shard r is written by the rank r %
     * size, from the boxes that were added for rank r. */
    int shards;
    /* Members of one JSON object that about.json gets besides the library's own; NULL: none. At
     * most 1 MiB. */
    const char *about_json;
    /* Memory of this rank that the save may spend for dcp_save_fence to be done sooner, the 16 MiB
     * of its buffers included: once somebody waits at the fence and what is left to write fits, it
     * is copied, and written from the copy. Nothing is copied before. 0: DCP_STAGING_DEFAULT.
     * DCP_STAGING_NONE: never. Boxes on a device are always copied: dcp/device.h. */
    uint64_t staging_bytes;
    dcp_busy when_busy;
    /* Called now and then while this rank's bytes are read and written, from the thread that saves:
     * `done` of `total` bytes that this rank writes or hands to other ranks, which stay the same
     * while bytes are only copied to be written later. May be NULL. */
    void (*on_progress)(void *ctx, uint64_t done, uint64_t total);
    void *progress_ctx;
    /* Asked every few MiB, from the thread that saves, on each rank for itself: not 0, on one rank
     * or more, and all ranks give up with DCP_ERR_CANCELLED. The ranks of a host do so at once,
     * those of other hosts at the latest when their own part is written. Nothing is published, and
     * the store can be used on. Once all is written and the ranks have agreed to publish, the save
     * succeeds whatever is said. Not asked again once it was not 0. NULL: never. */
    int (*stop)(void *ctx);
    void *stop_ctx;
    /* Called as each phase ends, from the thread that saves; `begin` and `end` are seconds of
     * CLOCK_MONOTONIC. Phases come as often as they do: a wait for the disk, DCP_PHASE_WRITE, lies
     * within the one that waited, and DCP_PHASE_ALL, the last, around them all. May be NULL. */
    void (*on_phase)(void *ctx, dcp_phase phase, double begin, double end);
    void *phase_ctx;
    dcp_replicas replicas; /* the same on all ranks, else DCP_ERR_MISMATCH */
    /* Where there is no room for the save, old steps are given up for it, whatever `keep` says, one
     * after the other until it fits: those that were set aside, then the others, the oldest first.
     * The newest step, the newest one known to be intact and steps that readers hold stay; where
     * that is why it still does not fit, the error names them. Each is logged. For the last save of
     * a run, say. dcp_save_fence waits for the end of such a save, which may have to read the
     * memory again. The same on all ranks. */
    int make_room;
    /* Of dcp_save_async: not 0, and the step is the state as it is during the call, whatever
     * changes once that has returned: what this rank writes is copied before. So much memory of
     * this rank may be spent for that, beside what a save takes otherwise; DCP_COPY_DEFAULT: half
     * of what the ranks of its host find available in equal parts, as the system, control groups,
     * RLIMIT_AS and RLIMIT_DATA limit it. Where that is too little, or there is no memory, the call
     * writes instead until what is left can be copied, as if dcp_save_fence were called in it; and
     * all of it where nobody else could (see there). What is written by this rank alone, or its
     * parts of what holders of replicas share, is copied, page-locked where it is on a device;
     * replicas that are only compared are summed in the call. The memory stays for the store's next
     * saves (dcp_tiers: for those of all stores) until it is closed. The first save pays for its
     * pages; later ones about what memcpy takes. 0: nothing is copied, the caller fences. On all
     * ranks 0 or on none, else DCP_ERR_MISMATCH. */
    uint64_t copy_bytes;
    /* Of dcp_save_async: what dcp_save_copy has said; 1: its copy is saved, whatever the memory is
     * by now. DCP_ERR_STATE where there is none of this state. */
    int is_copied;
} dcp_save_options;
#define DCP_SAVE_OPTIONS_INIT DCP_SIZED(dcp_save_options)

/* Where a save's or load's time went, in seconds of this rank; and its size. */
typedef struct dcp_report {
    size_t size;           /* dcp/size.h */
    uint64_t bytes;        /* tensor bytes of all ranks */
    uint64_t cloned_bytes; /* of them: not written, but shared with the last step's file */
    uint64_t unchanged;    /* tensors with the same bytes as in the store's previous save */
    dcp_engine engine;     /* the one used: never DCP_ENGINE_AUTO */
    double total_s;        /* the whole call */
    double plan_s;         /* agreeing on tensors and boxes, laying the file out */
    double gather_s;       /* edge bytes and small pieces travelling between ranks */
    double copy_s;         /* checksums, copies into aligned buffers, sharing extents */
    double write_s;        /* waiting for the disk: writes, or a load's reads */
    double sync_s;         /* making the data durable; for a load: comparing checksums */
    double publish_s;      /* tables, redundancy, about.json, rename, retention */
    /* Of a save: whether one rank was slow, as with a host or a disk that fails. Its own work,
     * which is copy_s, write_s and sync_s, took at least 3 times the median rank's for each byte
     * that it wrote, and half a second longer. Then the save took as long as that rank: all others
     * waited for it. The same on all ranks. slow_ratio is how many times as long; 0: no rank was
     * slow, and what follows means nothing. Not known of saves with fewer than two ranks that
     * write, and of engine mpio. */
    double slow_ratio;
    double slow_s;      /* what its work took, for as many bytes as any rank wrote at most */
    double median_s;    /* the same of the median rank */
    int slow_rank;      /* its number */
    char slow_host[68]; /* on rank 0, its host: as somebody named it (dcp_comm_set_host, DCP_HOST)
                         * or as the system calls it; elsewhere "" */
} dcp_report;
#define DCP_REPORT_INIT DCP_SIZED(dcp_report)

/* Writes `state` as `step` of `store`: complete and durable when it returns DCP_OK. Collective.
 *   json     one JSON object, kept in the checkpoint (rank 0's counts, the others' is ignored):
 *            what determines the next step beside the tensors. Its keys "format", "step" and
 *            "shard" are the library's: what is passed under them is replaced. NULL: none. Stored
 *            with sorted keys, so that equal states give equal files. At most 16 MiB
 *            and 1,048,576 values (all but keys count, at any depth): more are DCP_ERR_ARG.
 *            Integers of -2^63 to 2^64 - 1 are kept exactly, others are DCP_ERR_ARG; reals are
 *            fp64.
 *   options, report, err   may be NULL.
 * On failure every rank gets the same status; nothing is published (after DCP_ERR_COMM it may have
 * been), older steps stay, and the next save may be tried at once. Extra memory: at most 64 MiB a
 * rank, or options->staging_bytes where that is more; besides, the memory that ranks of one host
 * share (dcp/mpi.h); and where a state has more than some 8,000 tensors, about 5 KiB a tensor on
 * rank 0 while HDF5 lays out the first file.
 * DCP_ERR_MISMATCH: ranks disagree about a tensor, boxes overlap or leave elements out, or replicas
 * differ.
 * DCP_ERR_STATE: the step exists; or the store holds a later one, and dcp_store_continue_from was
 * not called: see there. DCP_ERR_NOT_FOUND: the store's directory was moved or removed.
 * DCP_ERR_BUSY: another writer has taken the store (dcp_store_open), as all later saves into it
 * will find; or options->when_busy.
 * DCP_ERR_NO_SPACE: found before data moves where the file system can tell.
 * DCP_ERR_CANCELLED: options->stop.
 * Rank 0 logs a warning (dcp_store_options.log) where an update seems not to have reached what is
 * saved: the step is later than that of the store's previous save of the same tensors and no byte
 * outside /files differs from it; or tensors under /optimizer do, but none under /model, or the
 * other way round. */
DCP_API int dcp_save(dcp_store *store, uint64_t step, const dcp_state *state, const char *json,
                     const dcp_save_options *options, dcp_report *report, dcp_error *err);

/* Takes now what the first save of `state` would take of its device, a stream for copies and
 * page-locked memory: for programs in whose steps nothing is to be allocated. Without boxes on a
 * device there is nothing to do. `options` (may be NULL) as for the saves to come; the state may
 * have changed by then, and is not borrowed. Not collective, though each rank has to call it that
 * wants the effect. DCP_ERR_STATE: a save is in flight. DCP_ERR_NO_MEMORY, DCP_ERR_DEVICE: the
 * store may have given back what it had; its saves take what they need as ever. */
DCP_API int dcp_save_prepare(dcp_store *store, const dcp_state *state,
                             const dcp_save_options *options, dcp_error *err);

/* A save in flight. */
typedef struct dcp_saving dcp_saving;

/* Starts a save and returns at once; arguments as dcp_save's. Collective. `json` and `options` are
 * copied; `state` and the memory of its boxes are borrowed: the memory must not change until
 * dcp_save_fence, or with options->copy_bytes the end of the call; the state object must stay until
 * dcp_save_wait.
 *
 * Where the communicator is MPI's and MPI_Init_thread granted MPI_THREAD_MULTIPLE, or is a caller's
 * table with `duplicate` and `threads`, or has one rank, a thread of the library does all the work,
 * publication included; over MPI it sleeps while it waits for other ranks. It takes no signals.
 * Else, and with DCP_ENGINE_MPIO, nothing happens before dcp_save_fence or dcp_save_wait, which do
 * it then; with options->copy_bytes this call does it.
 *
 * One save of a store is in flight at a time: another dcp_save_async or dcp_save waits for it first
 * (its outcome still is for its own dcp_save_wait) or is refused, as options->when_busy says; so
 * wait dcp_store_continue_from, dcp_store_mark_intact and dcp_store_close. The store's log function
 * is called from the thread. Failures of the arguments are returned here, all others by
 * dcp_save_wait: so DCP_ERR_BUSY means here that a save is in flight, and there that another writer
 * has the store. The thread never calls HDF5, which is not thread-safe: HDF5 lays the files out
 * here, at the first save of a state and where its tensors or boxes have changed since. */
DCP_API int dcp_save_async(dcp_store *store, uint64_t step, const dcp_state *state,
                           const char *json, const dcp_save_options *options, dcp_saving **out,
                           dcp_error *err);

/* Copies this rank's boxes for the store's next dcp_save_async, which has to be of the same state,
 * unchanged, and to have what this says as options->is_copied. That call need not come before the
 * memory changes then, and may be another thread's: the program waits for no other rank. Not
 * collective: ranks may differ in whether they call it and in what it says. Waits for the save in
 * flight.
 *   options    as of that save, with its copy_bytes
 *   is_copied  1: the memory may change. 0: that can't be done, and dcp_save_async copies as ever:
 *              the store's last save was not of these tensors and boxes, or there can be no thread;
 *              boxes are on a device or are read by a function; more than an eighth of the bytes
 *              are replicas, of which that call copies this rank's share alone; or they are more
 *              than options->copy_bytes */
DCP_API int dcp_save_copy(dcp_store *store, const dcp_state *state, const dcp_save_options *options,
                          int *is_copied, dcp_error *err);

/* Waits until this rank's memory is not needed any more: it may change afterwards. Every rank calls
 * it, also where the save has failed; with options->copy_bytes there is nothing to wait for, and it
 * need not be called. The outcome is for dcp_save_wait. */
DCP_API void dcp_save_fence(dcp_saving *saving);

/* The same, and returns after some seconds also where the memory is still needed: 0 then, else 1. A
 * save without a thread is done here, however long it takes. */
DCP_API int dcp_save_fence_within(dcp_saving *saving, double seconds);

/* How far the save is on this rank; not collective, any thread may ask.
 *   1               it has ended, well or not: dcp_save_wait would return at once
 *   0               a thread does it, and this becomes 1 by itself, without a fence or a wait
 *   DCP_ERR_STATE   (less than 0) nobody does it, since there can be no thread (dcp_save_async): it
 *                   is done by dcp_save_fence, dcp_save_wait or the next save, then this is 1
 * Ranks have the same kind of answer, unless the system refused one of them a thread: it says
 * DCP_ERR_STATE, and the others are done once that one fences or waits. DCP_ERR_ARG: saving is
 * NULL. */
DCP_API int dcp_save_is_done(dcp_saving *saving);

/* Gives the save up, as options->stop does: one rank is enough. Returns at once; every rank still
 * calls dcp_save_wait, which tells whether it came in time (DCP_ERR_CANCELLED), and dcp_save_fence
 * returns soon. From any thread and from handlers of signals, until dcp_save_wait is called. NULL
 * is ignored. A save without a thread is given up when it would be done. */
DCP_API void dcp_save_cancel(dcp_saving *saving);

/* Waits for the end and returns the save's outcome, the same on all ranks: DCP_OK, published and
 * durable; or what dcp_save would have returned. Frees `saving`. A process that was forked from the
 * one that saves gets DCP_ERR_STATE, and waits for nothing, also at the fence. */
DCP_API int dcp_save_wait(dcp_saving *saving, dcp_report *report, dcp_error *err);

#ifdef __cplusplus
}
#endif
#endif
