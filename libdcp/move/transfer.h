/* One move of bytes, its progress, and the checksums of boxes that are only read. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "comm/comm.h"
#include "dcp/comm.h"
#include "dcp/save.h"
#include "move/piece.h"

/* What a save or load reports to its caller while bytes move: its progress, the times of its
 * phases, and that it no longer needs the caller's memory. The caller is also asked whether to give
 * up. */

typedef struct move_progress {
    void (*on_progress)(void *ctx, uint64_t done, uint64_t total); /* may be NULL */
    void *progress_ctx;
    void (*on_phase)(void *ctx, dcp_phase phase, double begin, double end); /* may be NULL */
    void *phase_ctx;
    uint64_t done, total; /* this rank's, in bytes */
    uint64_t unreported;  /* bytes since the last report */
    comm_stop stop;       /* asks the caller whether to give up, as often as progress is reported */
    /* For a save in flight, otherwise NULL. `released` reports that the caller's memory has been
     * read. `is_awaited` returns true if somebody is waiting for that. */
    void (*released)(void *ctx);
    bool (*is_awaited)(void *ctx);
    void *ctx;
    uint64_t staging_bytes; /* the most bytes that are copied to release the memory sooner */
} move_progress;

/* Reports that `bytes` more bytes were written or passed on. */
void move_progress_written(move_progress *progress, uint64_t bytes);
/* Reports that `bytes` more bytes were read, but not written: a caller whose memory is mapped from
 * a file can then release that memory. */
void move_progress_read(move_progress *progress, uint64_t bytes);

/* Returns DCP_ERR_CANCELLED if the caller or another rank gave up, so the rest can be skipped.
 * Returns DCP_OK if `progress` is NULL. */
int move_progress_status(const move_progress *progress, dcp_error *err);
/* Does the same, but first asks the caller whether to give up. Called where the caller might
 * otherwise not be asked for a long time, and before anything that cannot be undone. */
int move_progress_poll(move_progress *progress, dcp_error *err);

/* Reports the end of a phase, and returns its duration. `progress` may be NULL. */
double move_progress_phase(const move_progress *progress, dcp_phase phase, double begin,
                           double end);

/* Reports that the caller's memory is not needed any more. */
void move_progress_release(const move_progress *progress);

/* Returns true if it is worth copying the `left` bytes that remain to be read. */
bool move_progress_should_copy(const move_progress *progress, uint64_t left);

/* One move of bytes, in either direction, between ranks' boxes and files: the argument of
 * engines. */

struct io_file;
struct io_queue;
struct move_device;
struct move_window_cache;
struct move_piece;
struct move_progress;

typedef enum move_direction { MOVE_TO_FILE, MOVE_FROM_FILE } move_direction;

/* Files lie one after the other in one address space, so they all look like one file. */
typedef struct move_file {
    uint64_t base, end;   /* the file's addresses */
    struct io_file *file; /* open, or opened on use; only for files that this rank sees */
    const char *path;
    void *owner; /* the first argument of move_transfer.check_metadata */
} move_file;

typedef struct move_transfer {
    move_direction direction;
    dcp_comm *comm;         /* the ranks that move together */
    struct io_queue *queue; /* for engines that work by position */
    const move_file *files;
    size_t n_files; /* 1 if the direction is to the file */
    /* If some files are visible only to some ranks: rank r alone reads the addresses
     * [reader_ranges[r], reader_ranges[r + 1]), for itself and for all other ranks. NULL: each rank
     * sees all files. */
    const uint64_t *reader_ranges;
    struct move_piece *pieces; /* this rank's pieces, sorted; their file_offset is an address */
    size_t n_pieces;
    /* To a file: boxes of this rank that other ranks write. move_sums reads them before the
     * caller's memory is released. */
    const struct move_piece *replicas;
    size_t n_replicas;
    bool others_are_summed; /* parts that other holders supply are not summed again */
    /* Windows from earlier moves of equal pieces (window_cache.h); NULL: none are kept.
     * uses_window_cache: all ranks have agreed to use the cached windows. */
    struct move_window_cache *window_cache;
    bool uses_window_cache;
    struct move_device *device;
    struct move_progress *progress;
    bool is_last;    /* to a file: no later move of the save reads the caller's memory */
    bool skips_bulk; /* the caller moves the bulk parts */
    /* From files: checks that a file's metadata is what was saved, before HDF5 opens it. */
    int (*check_metadata)(void *owner, dcp_error *err);
    /* Set if this rank has failed already. Such a rank has no pieces, and the other ranks learn of
     * the failure at the end. NULL: no failure. */
    const dcp_error *failure;
    bool is_agreed_later; /* the ranks agree on their status after the move; no sums are joined */
    /* Raw checksums that are joined over all ranks at the end, followed by COMM_XOR_SCRATCH
     * elements of scratch memory (comm/comm.h). NULL: none. */
    uint64_t *sums;
    size_t n_sums;
    /* called when all of this rank's sums are complete; NULL: not called */
    void (*on_summed)(void *ctx);
    void *ctx;
    dcp_report *report; /* receives the times */
} move_transfer;

/* Returns the file that contains the address. */
const move_file *move_transfer_file(const move_transfer *t, uint64_t address);

/* Starts writing the addresses [address, address + bytes) from the buffer, or reading them into the
 * buffer. They must lie in one file. */
void move_transfer_start(const move_transfer *t, unsigned slot, unsigned char *buffer,
                         uint64_t bytes, uint64_t address);

/* Ends a move; `status` is this rank's status so far. Collective, unless is_agreed_later. Joins the
 * sums over all ranks. Afterwards a save does not read the caller's memory any more (if is_last),
 * and all bytes of a load have arrived on the device. */
int move_transfer_finish(const move_transfer *t, int status, dcp_error *err);

/* Boxes that are read only for their checksums. */

struct move_progress;

/* Reads each piece's box once, in parts, wherever it lies, and adds it to the piece's checksums.
 * Not collective. Each box must be its piece's whole dataset, and no piece may be bulk. Bytes on a
 * device are summed there, unless the checksums cover them in short runs. In that case they are
 * copied to the host in the order of the pieces' file_offset, which must ascend; this requires
 * move_device_begin. `progress` may be NULL. */
int move_sums(const move_piece *pieces, size_t n, struct move_progress *progress, dcp_error *err);

/* Does the same for the parts of the pieces' boxes that other holders supply, but adds them only to
 * the boxes' own checksums (member `own`), and skips boxes that have none. The other boxes must lie
 * completely in their pieces. */
int move_sums_of_others(const move_piece *pieces, size_t n, struct move_progress *progress,
                        dcp_error *err);
