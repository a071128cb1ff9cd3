/* One move of bytes, its progress, and the checksums of boxes that are only read. */
#pragma once

#include <stdint.h>

#include "comm/comm.h"
#include "dcp/comm.h"
#include "dcp/save.h"
#include "move/piece.h"

/* What a save or load tells its caller while bytes move, and asks it: how far it is, how long its
 * phases took, when the caller's memory is free, and whether to give up. */

typedef struct move_progress {
    void (*on_progress)(void *ctx, uint64_t done, uint64_t total); /* may be NULL */
    void *progress_ctx;
    void (*on_phase)(void *ctx, dcp_phase phase, double begin, double end); /* may be NULL */
    void *phase_ctx;
    uint64_t done, total; /* bytes of this rank */
    uint64_t untold;      /* since it was told last */
    comm_stop stop;       /* asked as often */
    /* Of a save in flight, else NULL: the memory has been read; whether somebody waits for that. */
    void (*released)(void *ctx);
    int (*is_awaited)(void *ctx);
    void *ctx;
    uint64_t staging_bytes; /* to be copied at most, to release the memory sooner */
} move_progress;

/* `bytes` more were written or handed on. */
void move_progress_written(move_progress *progress, uint64_t bytes);
/* They were only read: a caller whose memory is mapped from a file may let go of them. */
void move_progress_read(move_progress *progress, uint64_t bytes);

/* DCP_ERR_CANCELLED once the caller, or another rank, gave up: what follows need not be done. NULL:
 * never. */
int move_progress_status(const move_progress *progress, dcp_error *err);
/* The same, but asks first: where the steps are long, and before what cannot be taken back. */
int move_progress_ask(move_progress *progress, dcp_error *err);

/* A phase has ended: tells how long it took. `progress` may be NULL. */
double move_progress_phase(const move_progress *progress, dcp_phase phase, double begin,
                           double end);

/* The caller's memory is not needed any more. */
void move_progress_release(const move_progress *progress);

/* Whether it is worth copying the `left` bytes that are still to be read. */
int move_progress_wants_copy(const move_progress *progress, uint64_t left);

/* One move of bytes between the boxes of ranks and files, in either direction: what engines are
 * given. */

struct io_file;
struct io_queue;
struct move_device;
struct move_kept;
struct move_piece;
struct move_progress;

typedef enum move_direction { MOVE_TO_FILE, MOVE_FROM_FILE } move_direction;

/* Files lie one after the other in one space of addresses, so that all of them look like one. */
typedef struct move_file {
    uint64_t base, end;   /* its addresses */
    struct io_file *file; /* of the files that this rank sees: open, or opened on use */
    const char *path;
    void *owner; /* the caller's, for move_transfer.check_metadata */
} move_file;

typedef struct move_transfer {
    move_direction direction;
    dcp_comm *comm;         /* of the ranks that move together */
    struct io_queue *queue; /* of engines by position */
    const move_file *files;
    size_t n_files; /* 1 where the direction is to the file */
    /* Where only some ranks see some files: rank r reads what others ask for of the addresses
     * [reader_ranges[r], reader_ranges[r + 1]), and no other rank does. NULL: each sees all. */
    const uint64_t *reader_ranges;
    struct move_piece *pieces; /* this rank's, sorted; file_offset is an address */
    size_t n_pieces;
    /* To a file: boxes of this rank that other ranks write, for move_sums before the caller's
     * memory is released. */
    const struct move_piece *replicas;
    size_t n_replicas;
    int others_are_summed; /* nor what other holders supply of the pieces */
    /* Windows of the moves of equal pieces (kept.h); NULL: none are kept. uses_kept: those that are
     * there serve, as all ranks have agreed. */
    struct move_kept *kept;
    int uses_kept;
    struct move_device *device;
    struct move_progress *progress;
    int is_last;       /* to a file: no other memory of the save is read after these pieces' */
    int bulk_is_apart; /* bulk parts are left to the caller */
    /* From files: whether a file's metadata is what was saved, before HDF5 sees it. */
    int (*check_metadata)(void *owner, dcp_error *err);
    /* This rank has failed already, and has no pieces; others learn of it at the end. NULL: no. */
    const dcp_error *failure;
    int is_agreed_later; /* on how the ranks have fared: the caller does that; no sums are joined */
    /* Raw checksums to be joined over all ranks at the end, with COMM_XOR_ROOM (comm/comm.h) behind
     * them. NULL: none. */
    uint64_t *sums;
    size_t n_sums;
    void (*on_summed)(void *ctx); /* called when all of this rank's are taken; NULL: not */
    void *ctx;
    dcp_report *report; /* gets the seconds */
} move_transfer;

/* The file that holds the address. */
const move_file *move_transfer_file(const move_transfer *t, uint64_t address);

/* Starts writing or reading [address, address + bytes), in one file, from or into the buffer. */
void move_transfer_start(const move_transfer *t, unsigned slot, unsigned char *buffer,
                         uint64_t bytes, uint64_t address);

/* Collective: how a move ends on all ranks, or where that is agreed on later on this one; `status`
 * is this rank's so far. The sums are joined. The caller's memory is free then, or all has arrived
 * on a device. */
int move_transfer_finish(const move_transfer *t, int status, dcp_error *err);

/* Boxes that are read for their checksums alone. */

struct move_progress;

/* Not collective. Reads the boxes of pieces once, in parts, from wherever they are, and adds them
 * to the pieces' checksums. Each box is all of its piece's dataset, and no piece is bulk. On a
 * device, bytes that lie together in the checksums are summed there; others are copied, in the
 * order of the pieces' file_offset, which ascend (before: move_device_begin). `progress` may be
 * NULL. */
int move_sums(const move_piece *pieces, size_t n, struct move_progress *progress, dcp_error *err);

/* The same for what other holders supply of the pieces' boxes, where the boxes have checksums of
 * their own: adds it to those. Each of these boxes is in its piece whole. */
int move_sums_of_others(const move_piece *pieces, size_t n, struct move_progress *progress,
                        dcp_error *err);
