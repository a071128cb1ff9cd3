/* A piece is one box of this rank, seen as bytes of one dataset of a file. Saving and loading are
 * loops over pieces.
 *
 * The bytes of a piece move in two ways. If its runs are long, the whole pages inside each run are
 * bulk: this rank writes or reads them itself. The rest (edges and short runs) travels as fragments
 * between this rank and the aggregators, the ranks that handle the file's domains (domain.h). So no
 * page is touched by two ranks, and small pieces become large transfers. */
#pragma once

#include <stdbool.h>

#include "core/box.h"
#include "core/state_dict.h"
#include "format/index.h"

/* The minimum length of a bulk run. For a shorter run, a request of its own would cost the disk
 * more time than sending the run to an aggregator costs the processors. */
#define MOVE_BULK_BYTES (64u << 10)

/* The size of the aligned parts of a file at which the holders of a box take turns if they share
 * its writing. */
#define MOVE_TURN_BYTES ((uint64_t)4 << 20)

/* Parts of a file, in ascending order, with gaps between them. */
typedef struct move_span {
    uint64_t from, to;
} move_span;

typedef struct move_span_list {
    move_span *list;
    size_t n;
} move_span_list;

/* A conversion of elements on their way into a box. Only one element at a time may arrive in
 * parts. */
typedef struct move_cast {
    dcp_dtype to;              /* type of the box's memory */
    uint32_t n_partial;        /* bytes of the partial element that have arrived */
    unsigned char partial[16]; /* these bytes */
} move_cast;

/* The checksums of a tensor of which the dataset holds only a box. */
typedef struct move_global {
    box_copy copy;  /* a: bytes of the tensor, b: bytes of the dataset */
    uint64_t bytes; /* the tensor's size */
    uint64_t *sums; /* raw checksums of the tensor's blocks, to which bytes are added */
} move_global;

typedef struct move_piece {
    const box_copy *copy;  /* a: bytes of the dataset, b: bytes of `box`, dense */
    uint64_t file_offset;  /* of the dataset; with several files, an address (transfer.h) */
    uint64_t bytes;        /* the dataset's size */
    const format_row *row; /* the dataset's row; NULL: the bytes belong to no dataset */
    /* The memory or source of the bytes. NULL: to a file, the bytes are in `raw`; from files, the
     * bytes are summed and not stored. */
    const state_box *box;
    union {
        const unsigned char *raw;
        struct move_cast *cast; /* from files into a box: the conversion; NULL: as stored */
    };
    uint32_t bulk : 1;        /* runs are long, and the dataset starts at a page boundary */
    uint32_t page_bytes : 31; /* bulk parts begin and end at boundaries of pages of this size */
    /* To a file: the file consists of parts of MOVE_TURN_BYTES. The holder with turn == k % holders
     * supplies part number k. If holders is 0, this rank supplies everything. */
    uint16_t turn, holders;
    uint64_t *sums;            /* raw checksums of the dataset's blocks; NULL: none */
    const move_global *global; /* the whole tensor's checksums; NULL: none */
    /* raw checksums of the box's own blocks; NULL: none. Requires that the piece contains the whole
     * box. */
    uint64_t *own;
    const move_span_list *skip; /* whole pages that the file already contains; NULL: none */
    struct move_device *device; /* the device of the box; NULL: no device */
} move_piece;

/* Sets p->copy to a copy of `copy` that the piece owns, p->page_bytes to the kernel's page size,
 * and p->bulk, which depends on p->file_offset. If memory is short, p->copy becomes NULL (see
 * move_pieces_have_copies). */
void move_piece_set_copy(move_piece *p, const box_copy *copy);
/* Returns true if every piece has its copy. */
bool move_pieces_have_copies(const move_piece *pieces, size_t n);
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
int move_piece_walk_others(const move_piece *p, move_box_fn fn, void *ctx);
/* Walks the parts that this rank supplies. */
int move_piece_walk_supplied(const move_piece *p, move_box_fn fn, void *ctx);

/* Returns the same piece with only the checksums of the box, not those of the dataset or the
 * tensor: for bytes that another holder supplies. */
move_piece move_piece_own_sums(const move_piece *p);

/* Moves *to back to the first change of turns in [from, *to) of the dataset. Returns true if this
 * rank supplies the resulting range. */
bool move_piece_turn(const move_piece *p, uint64_t from, uint64_t *to);

/* Returns the memory of bytes [offset, offset + bytes) of the box; NULL if they have to be fetched:
 * from a source, from a device, or from several places in memory. */
const unsigned char *move_piece_memory(const move_piece *p, uint64_t offset, uint64_t bytes);

/* A piece has up to three kinds of checksums, whose blocks end at different places.
 * move_piece_in_block returns how many of the `bytes` bytes at `offset` of the dataset lie in one
 * block of every kind. move_piece_add adds `raw`, the raw checksum of at most that many bytes, to
 * the checksums of all kinds. */
uint64_t move_piece_in_block(const move_piece *p, uint64_t offset, uint64_t bytes);
void move_piece_add(const move_piece *p, uint64_t offset, uint64_t bytes, uint64_t raw);

/* Adds bytes [offset, offset + bytes) of the dataset to the checksums. */
void move_piece_sum(const move_piece *p, uint64_t offset, const unsigned char *data,
                    uint64_t bytes);

/* Does the same for bytes in the box's memory, from offset `box_offset` of the box. */
void move_piece_sum_memory(const move_piece *p, uint64_t offset, uint64_t box_offset,
                           uint64_t bytes);

/* Does the same for bytes [offset, offset + bytes) of the box. All of the box must be in the
 * piece. */
void move_piece_sum_box(const move_piece *p, uint64_t offset, const unsigned char *data,
                        uint64_t bytes);

/* Finds the range [*from, *to) of the file that consists of the whole pages in one run of a bulk
 * piece. Pages have the piece's page size. If there are none, *from becomes equal to *to. */
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

/* Walks the bulk parts of pieces, which are whole pages of runs. They are cut at the ends of the
 * dataset's blocks, so each part lies in one block. If pages are at least as large as blocks, each
 * part is one page instead. A status of `fn` other than DCP_OK ends the walk. */
int move_bulk_parts(const move_piece *pieces, size_t n, move_fragment_fn fn, void *ctx);

/* Access to the bytes of pieces' boxes, wherever they are: in memory, behind a source function of
 * the caller, or on a device, which is reached through staging buffers. */

struct staging;

/* A device with boxes of the moved pieces. */
typedef struct move_device {
    struct staging *staging;  /* NULL: no device */
    const move_piece *pieces; /* to a file: all pieces, sorted, for reading ahead */
    size_t n;
} move_device;

/* Copies bytes [offset, offset + bytes) of the box, dense, into out. Boxes on a device are read
 * ahead in batches, each of which contains what the walk over the file needs next. This turns many
 * small boxes and short runs into one copy and one wait. Requires move_device_begin. */
int move_box_fetch(const move_piece *p, uint64_t offset, uint64_t bytes, void *out, dcp_error *err);

/* Does the same, and adds the bytes, which begin at dataset_offset of the dataset, to its
 * checksums. */
int move_box_fetch_summed(const move_piece *p, uint64_t dataset_offset, uint64_t offset,
                          uint64_t bytes, void *out, dcp_error *err);

/* Copies bytes in the stored type to [offset, offset + bytes) of a box in memory or on a device.
 * With a cast, only one element at a time may arrive in parts. `data` is copied before the return;
 * in a box on a device, the bytes are complete only after move_device_flush. */
int move_box_put(const move_piece *p, uint64_t offset, const void *data, uint64_t bytes,
                 dcp_error *err);

/* Does the same, and adds the bytes, which begin at dataset_offset of the dataset, to its
 * checksums. Bytes that were put into memory without a cast are summed as they lie there
 * afterwards. Without a box, only adds the bytes. */
int move_box_put_summed(const move_piece *p, uint64_t dataset_offset, uint64_t offset,
                        const void *data, uint64_t bytes, dcp_error *err);

/* Divides the staging buffers into batches that are read ahead from the pieces, which must remain
 * valid. Does nothing without a device. */
void move_device_begin(move_device *d, const move_piece *pieces, size_t n);

/* Opens staging buffers for a load into the state's boxes, and orders the load's copies after the
 * program's work on the device so far. Does nothing if no box is on a device. */
int move_device_open(move_device *d, const dcp_state *state, dcp_error *err);

/* Waits until everything that was put is on the device, and verifies it by the device's
 * checksums. */
int move_device_flush(move_device *d, dcp_error *err);
