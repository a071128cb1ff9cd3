/* A piece: one box of this rank as bytes of one dataset of a file. Saving and loading are loops
 * over pieces.
 *
 * A piece moves in one of two ways. Where its runs are long, the whole pages inside each run are
 * bulk: this rank writes or reads them itself. The rest, edges and short runs, travels as fragments
 * between this rank and the aggregators, the ranks that own the file's domains (window.h). So no
 * page is touched by two ranks, and small pieces become large transfers. */
#pragma once

#include "core/box.h"
#include "core/state_dict.h"
#include "format/index.h"

/* A run of at least that can be bulk. Shorter ones cost a disk more than the way by way of an
 * aggregator costs processors. */
#define MOVE_BULK_BYTES (64u << 10)

/* Holders of one box who share its writing take turns at so many bytes of the file, aligned. */
#define MOVE_TURN_BYTES ((uint64_t)4 << 20)

/* Parts of a file, ascending, with something between them. */
typedef struct move_span {
    uint64_t from, to;
} move_span;

typedef struct move_span_list {
    move_span *list;
    size_t n;
} move_span_list;

/* Elements that become others as they are placed. One element at a time may come in parts. */
typedef struct move_cast {
    dcp_dtype to;              /* of the box's memory */
    uint32_t n_partial;        /* bytes of such an element that are there */
    unsigned char partial[16]; /* and where */
} move_cast;

/* For a dataset that is a box of a larger tensor: the tensor's checksums. */
typedef struct move_global {
    box_copy copy;  /* a: bytes of the tensor, b: bytes of the dataset */
    uint64_t bytes; /* of the tensor */
    uint64_t *sums; /* raw checksums of its blocks to add to */
} move_global;

typedef struct move_piece {
    const box_copy *copy; /* a: bytes of the dataset, b: bytes of `box`, dense */
    uint64_t
        file_offset; /* of the dataset; where there are several files: its address (transfer.h) */
    uint64_t bytes;  /* of the dataset */
    const format_row *row; /* the dataset's; NULL: bytes of no dataset */
    /* Memory or source. NULL: to a file `raw` has the bytes; from files they are summed, and kept
     * nowhere. */
    const state_box *box;
    union {
        const unsigned char *raw;
        struct move_cast *cast; /* from files into a box: its elements' type; NULL: as stored */
    };
    uint32_t bulk : 1;        /* runs are long and the dataset starts on a page */
    uint32_t page_bytes : 31; /* bulk parts begin and end on pages of that size */
    /* To a file: of MOVE_TURN_BYTES of the file with number k, the holder with turn ==
     * k % holders supplies them; holders = 0: this one supplies all. */
    uint16_t turn, holders;
    uint64_t *sums;            /* raw checksums of the dataset's blocks to add to; NULL: none */
    const move_global *global; /* to add to as well; NULL: none */
    uint64_t *own; /* the same of the blocks of the box, all of which is in the piece; NULL: none */
    const move_span_list *skip; /* whole pages that are in the file already; NULL: none */
    struct move_device *device; /* that the box is on (box_bytes.h); NULL: it is on none */
} move_piece;

/* Sets `copy` to one of its own, `page_bytes` to the kernel's, and `bulk`, from file_offset. Where
 * memory is short `copy` is NULL: see move_pieces_have_copies. */
void move_piece_set_copy(move_piece *p, const box_copy *copy);
/* 1 where every piece has got its copy. */
int move_pieces_have_copies(const move_piece *pieces, size_t n);
/* Frees them with their copies. */
void move_pieces_free(move_piece *pieces, size_t n);

/* Orders pieces by their places in the file, as the walks below want them. */
void move_pieces_sort(move_piece *pieces, size_t n);

/* The first of the sorted pieces whose dataset begins at `file_offset` or after it. */
size_t move_pieces_find(const move_piece *pieces, size_t n, uint64_t file_offset);

/* The bytes of the box, all of which is in the piece, that this rank supplies. */
uint64_t move_piece_supplied(const move_piece *p);

/* Called with bytes [offset, offset + bytes) of a box. Statuses but DCP_OK end the walk. */
typedef int (*move_box_fn)(void *ctx, const move_piece *p, uint64_t offset, uint64_t bytes);

/* Walks the parts of the box, all of which is in the piece, that other holders supply, ascending.
 */
int move_piece_others(const move_piece *p, move_box_fn fn, void *ctx);
/* The same of those that this rank supplies. */
int move_piece_turns(const move_piece *p, move_box_fn fn, void *ctx);

/* The same piece with checksums of the box alone, not of the dataset or the tensor: for bytes that
 * another holder supplies. */
move_piece move_piece_own_sums(const move_piece *p);

/* Of [*from, *to) of the dataset, moves *to back to where turns change; whether this rank supplies
 * what is left. */
int move_piece_turn(const move_piece *p, uint64_t from, uint64_t *to);

/* Memory of bytes [offset, offset + bytes) of the box; NULL where they have to be fetched: from a
 * source, from a device, or from several places of memory. */
const unsigned char *move_piece_memory(const move_piece *p, uint64_t offset, uint64_t bytes);

/* How many of the bytes from `offset` of the dataset on lie in one block of all of its checksums,
 * and adding those to them, by their raw checksum. */
uint64_t move_piece_in_block(const move_piece *p, uint64_t offset, uint64_t bytes);
void move_piece_add(const move_piece *p, uint64_t offset, uint64_t bytes, uint64_t raw);

/* Adds bytes [offset, offset + bytes) of the dataset to the checksums. */
void move_piece_sum(const move_piece *p, uint64_t offset, const unsigned char *data,
                    uint64_t bytes);

/* The same for bytes that lie in the box's memory, from box_offset of it on. */
void move_piece_sum_memory(const move_piece *p, uint64_t offset, uint64_t box_offset,
                           uint64_t bytes);

/* The same for bytes [offset, offset + bytes) of the box, where all of the box is in the piece. */
void move_piece_sum_box(const move_piece *p, uint64_t offset, const unsigned char *data,
                        uint64_t bytes);

/* The whole pages [*from, *to) of the file, of the piece's page size, inside run i of a bulk piece;
 * empty: *from = *to. */
void move_piece_interior(const move_piece *p, uint64_t run, uint64_t *from, uint64_t *to);

/* One contiguous part of a piece. */
typedef struct move_fragment {
    const move_piece *piece;
    uint64_t file_offset; /* absolute */
    uint64_t dataset_offset, box_offset, bytes;
} move_fragment;

/* Called for each fragment, ascending within a piece. Not 0 stops the walk. */
typedef int (*move_fragment_fn)(void *ctx, const move_fragment *f);

/* Walks the fragments of pieces (ascending by file_offset) that lie in [low, high) of the file, cut
 * to it. *first is where to start looking, and is moved past pieces that end before `low`: start at
 * 0, then pass ascending ranges. */
int move_fragments(const move_piece *pieces, size_t n, size_t *first, uint64_t low, uint64_t high,
                   move_fragment_fn fn, void *ctx);

/* Walks the bulk parts of pieces: whole pages of runs, cut at the ends of the dataset's blocks, so
 * that each part is checksummed in one; or page by page where pages are as large as a block.
 * Statuses of `fn` but DCP_OK end the walk. */
int move_bulk_parts(const move_piece *pieces, size_t n, move_fragment_fn fn, void *ctx);

/* The bytes of pieces' boxes, wherever the boxes are: in memory, behind a source function of the
 * caller, or on a device, which is reached through staging buffers. */

struct staging;

/* A device that boxes of the moved pieces are on. */
typedef struct move_device {
    struct staging *staging;  /* NULL: there is none */
    const move_piece *pieces; /* to a file: all pieces, sorted, which are read ahead */
    size_t n;
} move_device;

/* Bytes [offset, offset + bytes) of the box, dense, into out. What lies on a device is read in
 * batches of what the walk over the file needs next, so that many small boxes and short runs are
 * one copy and one wait. Before: move_device_begin. */
int move_box_fetch(const move_piece *p, uint64_t offset, uint64_t bytes, void *out, dcp_error *err);

/* The same, and adds them to the checksums of the dataset, whose bytes from dataset_offset on they
 * are. */
int move_box_take(const move_piece *p, uint64_t dataset_offset, uint64_t offset, uint64_t bytes,
                  void *out, dcp_error *err);

/* The other way: what belongs to bytes [offset, offset + bytes) of a box in memory or on a device,
 * as they are stored. With a cast, only one element may come in parts. It is copied
 * before the return, and has arrived on a device after move_device_flush. */
int move_box_put(const move_piece *p, uint64_t offset, const void *data, uint64_t bytes,
                 dcp_error *err);

/* The same, and adds them to the checksums of the dataset, whose bytes from dataset_offset on they
 * are: those in memory as they lie there then, unless they were cast. Without a box it only adds
 * them. */
int move_box_place(const move_piece *p, uint64_t dataset_offset, uint64_t offset, const void *data,
                   uint64_t bytes, dcp_error *err);

/* Divides the staging buffers to read ahead from the pieces, which stay. Without a device nothing
 * is done. */
void move_device_begin(move_device *d, const move_piece *pieces, size_t n);

/* Staging buffers for a load into the state's boxes; none where no box is on a device. The
 * program's work on the device so far comes before the load's copies. */
int move_device_open(move_device *d, const dcp_state *state, dcp_error *err);

/* Waits until all that was put is on the device, and proves it by the device's checksums. */
int move_device_flush(move_device *d, dcp_error *err);
