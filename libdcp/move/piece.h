/* A piece: one box of this rank as bytes of one dataset of a file. Saving and loading are loops
 * over pieces.
 *
 * A piece moves in one of two ways. If its runs are long, the whole pages inside each run are bulk:
 * this rank writes or reads them itself. The rest, edges and short runs, travels as fragments
 * between this rank and the aggregators, the ranks that handle the file's domains (domain.h). So no
 * page is touched by two ranks, and small pieces become large transfers. */
#pragma once

#include "core/box.h"
#include "core/state_dict.h"
#include "format/index.h"

/* The minimum length of a bulk run. A shorter one costs the disk more time than sending it to an
 * aggregator costs the processors. */
#define MOVE_BULK_BYTES (64u << 10)

/* Holders of one box who share its writing take turns at aligned parts of the file of this size. */
#define MOVE_TURN_BYTES ((uint64_t)4 << 20)

/* Parts of a file, in ascending order, with gaps between them. */
typedef struct move_span {
    uint64_t from, to;
} move_span;

typedef struct move_span_list {
    move_span *list;
    size_t n;
} move_span_list;

/* A conversion of elements as they are placed. One element at a time may arrive in parts. */
typedef struct move_cast {
    dcp_dtype to;              /* type of the box's memory */
    uint32_t n_partial;        /* bytes of the partial element that have arrived */
    unsigned char partial[16]; /* these bytes */
} move_cast;

/* For a dataset that is a box of a larger tensor: the tensor's checksums. */
typedef struct move_global {
    box_copy copy;  /* a: bytes of the tensor, b: bytes of the dataset */
    uint64_t bytes; /* the tensor's size */
    uint64_t *sums; /* raw checksums of its blocks, to add to */
} move_global;

typedef struct move_piece {
    const box_copy *copy;  /* a: bytes of the dataset, b: bytes of `box`, dense */
    uint64_t file_offset;  /* the dataset's; with several files: its address (transfer.h) */
    uint64_t bytes;        /* the dataset's size */
    const format_row *row; /* the dataset's row; NULL: bytes of no dataset */
    /* Memory or source. NULL: to a file, `raw` has the bytes; from files, they are summed and not
     * stored. */
    const state_box *box;
    union {
        const unsigned char *raw;
        struct move_cast *cast; /* from files into a box: the conversion; NULL: as stored */
    };
    uint32_t bulk : 1;        /* runs are long, and the dataset starts at a page boundary */
    uint32_t page_bytes : 31; /* bulk parts begin and end on pages of this size */
    /* To a file: the holder with turn == k % holders supplies part number k of the file, of
     * MOVE_TURN_BYTES; holders = 0: this rank supplies everything. */
    uint16_t turn, holders;
    uint64_t *sums;            /* raw checksums of the dataset's blocks, to add to; NULL: none */
    const move_global *global; /* more checksums to add to; NULL: none */
    /* raw checksums of the blocks of the box, all of which is in the piece; NULL: none */
    uint64_t *own;
    const move_span_list *skip; /* whole pages that the file already contains; NULL: none */
    struct move_device *device; /* the device of the box; NULL: no device */
} move_piece;

/* Sets `copy` to a copy that the piece owns, `page_bytes` to the kernel's, and `bulk`, which
 * depends on file_offset. If memory is short, `copy` is NULL: see move_pieces_have_copies. */
void move_piece_set_copy(move_piece *p, const box_copy *copy);
/* Returns 1 if every piece has its copy. */
int move_pieces_have_copies(const move_piece *pieces, size_t n);
/* Frees the pieces and their copies. */
void move_pieces_free(move_piece *pieces, size_t n);

/* Sorts pieces by their places in the file, as the walks below require. */
void move_pieces_sort(move_piece *pieces, size_t n);

/* Returns the first of the sorted pieces whose dataset begins at or after `file_offset`. */
size_t move_pieces_find(const move_piece *pieces, size_t n, uint64_t file_offset);

/* Returns how many bytes of the box this rank supplies. All of the box must be in the piece. */
uint64_t move_piece_supplied(const move_piece *p);

/* Called with bytes [offset, offset + bytes) of a box. A status other than DCP_OK ends the walk. */
typedef int (*move_box_fn)(void *ctx, const move_piece *p, uint64_t offset, uint64_t bytes);

/* Walks the parts of the box that other holders supply, ascending. All of the box must be in the
 * piece. */
int move_piece_others(const move_piece *p, move_box_fn fn, void *ctx);
/* Walks those that this rank supplies. */
int move_piece_turns(const move_piece *p, move_box_fn fn, void *ctx);

/* Returns the same piece with only the checksums of the box, not those of the dataset or the
 * tensor: for bytes that another holder supplies. */
move_piece move_piece_own_sums(const move_piece *p);

/* Moves *to back to the first change of turns in [from, *to) of the dataset. Returns 1 if this rank
 * supplies the remaining range. */
int move_piece_turn(const move_piece *p, uint64_t from, uint64_t *to);

/* Returns the memory of bytes [offset, offset + bytes) of the box; NULL if they have to be fetched:
 * from a source, from a device, or from several places in memory. */
const unsigned char *move_piece_memory(const move_piece *p, uint64_t offset, uint64_t bytes);

/* The first returns how many of the bytes that begin at `offset` of the dataset lie in one block of
 * each of its checksums; the second adds such bytes to the checksums, by their raw checksum. */
uint64_t move_piece_in_block(const move_piece *p, uint64_t offset, uint64_t bytes);
void move_piece_add(const move_piece *p, uint64_t offset, uint64_t bytes, uint64_t raw);

/* Adds bytes [offset, offset + bytes) of the dataset to the checksums. */
void move_piece_sum(const move_piece *p, uint64_t offset, const unsigned char *data,
                    uint64_t bytes);

/* Does the same for bytes in the box's memory, beginning at its box_offset. */
void move_piece_sum_memory(const move_piece *p, uint64_t offset, uint64_t box_offset,
                           uint64_t bytes);

/* Does the same for bytes [offset, offset + bytes) of the box. All of the box must be in the
 * piece. */
void move_piece_sum_box(const move_piece *p, uint64_t offset, const unsigned char *data,
                        uint64_t bytes);

/* Finds the whole pages [*from, *to) of the file, of the piece's page size, in one run of a bulk
 * piece; *from = *to if there are none. */
void move_piece_interior(const move_piece *p, uint64_t run, uint64_t *from, uint64_t *to);

/* One contiguous part of a piece. */
typedef struct move_fragment {
    const move_piece *piece;
    uint64_t file_offset; /* in the file */
    uint64_t dataset_offset, box_offset, bytes;
} move_fragment;

/* Called for each fragment, ascending within a piece. A result other than 0 stops the walk. */
typedef int (*move_fragment_fn)(void *ctx, const move_fragment *f);

/* Walks the fragments in [low, high) of the file, cut to that range. The pieces must be sorted by
 * file_offset. *first is where the search starts, and moves past pieces that end before `low`:
 * initialize it with 0, and pass ascending ranges. */
int move_fragments(const move_piece *pieces, size_t n, size_t *first, uint64_t low, uint64_t high,
                   move_fragment_fn fn, void *ctx);

/* Walks the bulk parts of pieces: whole pages of runs, cut at the ends of the dataset's blocks, so
 * each part lies in one block; or page by page if pages are as large as a block. A status of `fn`
 * other than DCP_OK ends the walk. */
int move_bulk_parts(const move_piece *pieces, size_t n, move_fragment_fn fn, void *ctx);

/* Access to the bytes of pieces' boxes, wherever they are: in memory, behind a source function of
 * the caller, or on a device, which is reached through staging buffers. */

struct staging;

/* A device with boxes of the moved pieces. */
typedef struct move_device {
    struct staging *staging;  /* NULL: no device */
    const move_piece *pieces; /* to a file: all pieces, sorted, which are read ahead */
    size_t n;
} move_device;

/* Copies bytes [offset, offset + bytes) of the box, dense, into out. Boxes on a device are read in
 * batches of what the walk over the file needs next, so many small boxes and short runs become one
 * copy and one wait. Requires move_device_begin. */
int move_box_fetch(const move_piece *p, uint64_t offset, uint64_t bytes, void *out, dcp_error *err);

/* Does the same, and adds the bytes, which begin at dataset_offset of the dataset, to its
 * checksums. */
int move_box_take(const move_piece *p, uint64_t dataset_offset, uint64_t offset, uint64_t bytes,
                  void *out, dcp_error *err);

/* Copies bytes in the stored type to [offset, offset + bytes) of a box in memory or on a device.
 * With a cast, only one element at a time may arrive in parts. `data` is copied before the return;
 * the bytes are on a device after move_device_flush. */
int move_box_put(const move_piece *p, uint64_t offset, const void *data, uint64_t bytes,
                 dcp_error *err);

/* Does the same, and adds the bytes, which begin at dataset_offset of the dataset, to its
 * checksums: bytes in memory as they lie there then, unless they were cast. Without a box it only
 * adds them. */
int move_box_place(const move_piece *p, uint64_t dataset_offset, uint64_t offset, const void *data,
                   uint64_t bytes, dcp_error *err);

/* Divides the staging buffers for reading ahead from the pieces, which must remain valid. Does
 * nothing without a device. */
void move_device_begin(move_device *d, const move_piece *pieces, size_t n);

/* Opens staging buffers for a load into the state's boxes; none if no box is on a device. Orders
 * the load's copies after the program's work on the device so far. */
int move_device_open(move_device *d, const dcp_state *state, dcp_error *err);

/* Waits until everything that was put is on the device, and verifies it by the device's
 * checksums. */
int move_device_flush(move_device *d, dcp_error *err);
