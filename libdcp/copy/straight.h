/* Whole pages of long runs on a device that go between its memory and a file without the host's: by
 * the device's own functions, some at a time. What they hold is summed on the device alone. */
#ifndef DCP_COPY_STRAIGHT_H
#define DCP_COPY_STRAIGHT_H

#include "copy/piece.h"
#include "device/staging.h"
#include "io/queue.h"

#define STRAIGHT_PARTS 16u /* at a time */

typedef struct straight straight;

/* Sets piece->straight: its box is on a device, and what it adds to in the checksums is few ranges.
 */
void straight_mark(piece *p);

/* Waits for what the program gave the device before device_staging_follow, which the device's
 * functions would not do. Until straight_close nothing else is done with `s`. `queue` is told how
 * long transfers were waited for. */
int straight_open(staging *s, io_queue *queue, straight **out, dcp_error *err);
/* NULL is ignored. The files that were used are still open. */
void straight_close(straight *t);

/* Writes or reads `n` parts of straight pieces, at most STRAIGHT_PARTS, in one file, which begins
 * at `base` of their offsets; adds them to their checksums. Done when it returns, whatever it
 * returns. DCP_ERR_DEVICE, or as the file system failed. */
int straight_move(straight *t, const io_file *file, uint64_t base, const fragment *parts, size_t n,
                  int writing, dcp_error *err);

#endif
