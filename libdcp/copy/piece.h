/* A piece: one box of this rank as bytes of one dataset of a file. Saving and loading are loops
 * over pieces.
 *
 * A piece moves in one of two ways. Where its runs are long, the whole pages inside each run are
 * written or read by this rank itself. The rest, edges and short runs, travels as fragments between
 * this rank and the ranks that own the file's regions (window.h), so that no page is touched by two
 * ranks and small pieces become large transfers. */
#ifndef DCP_COPY_PIECE_H
#define DCP_COPY_PIECE_H

#include "core/box.h"
#include "core/state.h"
#include "step/index.h"

#define DIRECT_BYTES (512u << 10) /* a run of at least that goes by itself */

/* Parts of a file, ascending, with something between them. */
typedef struct span {
    uint64_t from, to;
} span;

typedef struct span_list {
    span *list;
    size_t n;
} span_list;

/* For a dataset that is a box of a larger tensor: the tensor's checksums. */
typedef struct piece_global {
    box_copy copy;  /* a: bytes of the tensor, b: bytes of the dataset */
    uint64_t bytes; /* of the tensor */
    uint64_t *sums; /* raw checksums of its blocks to add to */
} piece_global;

typedef struct piece {
    const box_copy *copy; /* a: bytes of the dataset, b: bytes of `box`, dense */
    uint64_t file_offset; /* of the dataset; in several files at once: see step/tables.h */
    uint64_t bytes;       /* of the dataset */
    const index_row *row; /* the dataset's; NULL: bytes of no dataset */
    const state_box *box; /* memory or source; NULL: `raw` */
    const unsigned char *raw;
    int direct;                 /* runs are long and the dataset starts on a page */
    uint64_t *sums;             /* raw checksums of the dataset's blocks to add to; NULL: none */
    const piece_global *global; /* to add to as well; NULL: none */
    const span_list *skip;      /* whole pages that are in the file already; NULL: none */
    struct staging *staging; /* the box is on a device, and reached through this; NULL: it is not */
} piece;

/* Sets `copy` to one of its own and `direct`, from file_offset. Where memory is short `copy` is
 * NULL: see pieces_stand. */
void piece_set_copy(piece *p, const box_copy *copy);
/* 1 where every piece has got its copy. */
int pieces_stand(const piece *pieces, size_t n);
/* Frees them with their copies. */
void pieces_free(piece *pieces, size_t n);

/* Orders pieces by their places in the file, as the walks below want them. */
void piece_sort(piece *pieces, size_t n);

/* The first of the sorted pieces whose dataset begins at `file_offset` or after it. */
size_t piece_find(const piece *pieces, size_t n, uint64_t file_offset);

/* Bytes [offset, offset + bytes) of the box, dense, into out. */
int piece_fetch(const piece *p, uint64_t offset, uint64_t bytes, void *out, dcp_error *err);

/* Memory of the box at that offset; NULL where it has to be fetched: a source, or on a device. */
const unsigned char *piece_memory(const piece *p, uint64_t offset);

/* Adds bytes [offset, offset + bytes) of the dataset to the checksums. */
void piece_sum(const piece *p, uint64_t offset, const unsigned char *data, uint64_t bytes);

/* The same for bytes [offset, offset + bytes) of the box, where all of the box is in the piece. */
void piece_sum_box(const piece *p, uint64_t offset, const unsigned char *data, uint64_t bytes);

/* The whole pages [*from, *to) of the file inside run i of a direct piece; empty: *from = *to. */
void piece_interior(const piece *p, uint64_t run, uint64_t *from, uint64_t *to);

/* One contiguous part of a piece. */
typedef struct fragment {
    const piece *piece;
    uint64_t file_offset; /* absolute */
    uint64_t dataset_offset, box_offset, bytes;
} fragment;

/* Called for each fragment, ascending within a piece. Not 0 stops the walk. */
typedef int (*fragment_fn)(void *ctx, const fragment *f);

/* Walks the fragments of pieces (ascending by file_offset) that lie in [low, high) of the file, cut
 * to it. *first is where to start looking, and is moved past pieces that end before `low`: start at
 * 0, then pass ascending ranges. */
int piece_fragments(const piece *pieces, size_t n, size_t *first, uint64_t low, uint64_t high,
                    fragment_fn fn, void *ctx);

/* Walks the parts of direct pieces that a rank moves by itself: whole pages of runs, cut at the
 * ends of the dataset's blocks, so that each part is checksummed in one. Statuses of `fn` but
 * DCP_OK end the walk. */
int piece_parts(const piece *pieces, size_t n, fragment_fn fn, void *ctx);

#endif
