/* Parts of new files that are moved together: what they need of the old files is read at once, each
 * page once, however many parts have something from it; then they are put together and written. */
#ifndef DCP_REWRITE_BATCH_H
#define DCP_REWRITE_BATCH_H

#include "rewrite/rewrite.h"

enum { BATCH_EXTENTS = 512, BATCH_PARTS = 256 };

/* Pages of an old file. */
typedef struct extent {
    step_file *file;
    uint64_t from, to;
    unsigned char *memory;
} extent;

/* Whole pages of a new file. */
typedef struct batch_part {
    move_fragment what; /* of a bulk move_piece */
    const io_file *file;
    int in_place;  /* its bytes lie in one extent, as they are: */
    extent source; /* [from, to) there, not in pages */
    int by_runs;   /* too scattered for extents */
} batch_part;

typedef struct batch {
    rewrite *owner;
    unsigned char *memory; /* page-aligned; borrowed */
    uint64_t capacity, used;
    extent extents[BATCH_EXTENTS], before[BATCH_EXTENTS]; /* before the part that is being added */
    batch_part parts[BATCH_PARTS];
    size_t n_extents, n_parts;
} batch;

/* Adds the part: 1; or 0 where there is no room, or the batch is half full and the part has little
 * to do with what is in it. What doesn't fit into an empty batch has to be cut in two; up to
 * BATCH_LEAST bytes always fit. */
#define BATCH_LEAST (64u << 10)
int batch_add(batch *b, const move_fragment *what, const io_file *file);

/* Starts reading. */
void batch_read(batch *b, io_queue *queue, unsigned slot);
/* When it was read: puts the parts together, adds them to their checksums and starts writing. */
int batch_write(batch *b, io_queue *queue, unsigned slot, dcp_error *err);
/* Forgets the parts: nothing of it may be in flight. */
void batch_clear(batch *b);

#endif
