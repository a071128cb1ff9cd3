/* Parts of new files that are moved together: what they need of the old files is read at once, each
 * page once, however many parts have something from it; then they are put together and written. */
#ifndef DCP_REWRITE_BATCH_H
#define DCP_REWRITE_BATCH_H

#include "io/queue.h"
#include "move/piece.h"
#include "rewrite/runs.h"

enum { REWRITE_EXTENTS = 512, REWRITE_PARTS = 256 };

/* Pages of an old file. */
typedef struct rewrite_extent {
    step_file *file;
    uint64_t from, to;
    unsigned char *memory;
} rewrite_extent;

/* Whole pages of a new file. */
typedef struct rewrite_part {
    move_fragment what; /* of a bulk move_piece */
    const io_file *file;
    int in_place;          /* its bytes lie in one extent, as they are: */
    rewrite_extent source; /* [from, to) there, not in pages */
    int by_runs;           /* too scattered for extents */
} rewrite_part;

typedef struct rewrite_batch {
    rewrite *owner;
    unsigned char *memory; /* page-aligned; borrowed */
    uint64_t capacity, used;
    rewrite_extent extents[REWRITE_EXTENTS],
        before[REWRITE_EXTENTS]; /* before the part that is being added */
    rewrite_part parts[REWRITE_PARTS];
    size_t n_extents, n_parts;
} rewrite_batch;

/* Adds the part: 1; or 0 where there is no room, or the batch is half full and the part has little
 * to do with what is in it. What doesn't fit into an empty batch has to be cut in two; up to
 * REWRITE_LEAST bytes always fit. */
#define REWRITE_LEAST (64u << 10)
int rewrite_batch_add(rewrite_batch *b, const move_fragment *what, const io_file *file);

/* Starts reading. */
void rewrite_batch_read(rewrite_batch *b, io_queue *queue, unsigned slot);
/* When it was read: puts the parts together, adds them to their checksums and starts writing. */
int rewrite_batch_write(rewrite_batch *b, io_queue *queue, unsigned slot, dcp_error *err);
/* Forgets the parts: nothing of it may be in flight. */
void rewrite_batch_clear(rewrite_batch *b);

#endif
