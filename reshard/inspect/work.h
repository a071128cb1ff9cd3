/* Work on the elements of many tensors by all cores and all ranks: cut into windows, which threads
 * take one after the other. What a window gives is kept by its number, so results do not depend on
 * who did what. */
#ifndef RESHARD_WORK_H
#define RESHARD_WORK_H

#include <stddef.h>

#include <dcp/inspect.h>

#include "common/launch.h"

#define WORK_THREADS 8u        /* at most, of a rank */
#define WORK_SLICE (16u << 20) /* bytes of a window that are in memory at once */
#define WORK_BLOCK (4u << 20)  /* what has a checksum of its own */

typedef struct work_window {
    size_t tensor;         /* in the checkpoint */
    uint64_t first, elems; /* of the tensor's, in row-major order */
    uint64_t bytes;
} work_window;

typedef struct work {
    work_window *windows; /* ascending by tensor and element */
    size_t n;
    uint64_t bytes;
} work;

/* Cuts the tensors of `ckpt` that take[] marks; those without elements have no window. 0 or an exit
 * status. */
int work_cut(const dcp_checkpoint *ckpt, const unsigned char *take, work *out);
void work_free(work *w);

/* Does window i on thread `thread` (0 to WORK_THREADS - 1). */
typedef int (*work_fn)(void *ctx, unsigned thread, size_t i, dcp_error *err);

/* Collective. Does all windows, with a bar for `what`. Returns the same exit status on all ranks;
 * failures have been told. */
int work_run(const launch *job, const work *w, const char *what, work_fn fn, void *ctx);

/* Reads elements [first, first + n) of a tensor, in row-major order. */
int work_read(dcp_reader *reader, const dcp_tensor *tensor, uint64_t first, uint64_t n, void *out,
              dcp_error *err);

#endif
