/* Work on the elements of many tensors by all cores and all ranks: cut into chunks, which threads
 * take one after the other. What a chunk gives is kept by its number, so results do not depend on
 * who did what. */
#pragma once

#include <stddef.h>

#include <dcp/inspect.h>

#include "common/launch.h"

#define CHUNKS_THREADS 8u        /* at most, of a rank */
#define CHUNKS_SLICE (16u << 20) /* bytes of a chunk that are in memory at once */
#define CHUNKS_BLOCK (4u << 20)  /* what has a checksum of its own */

typedef struct inspect_chunk {
    size_t tensor;         /* in the checkpoint */
    uint64_t first, elems; /* of the tensor's, in row-major order */
    uint64_t bytes;
} inspect_chunk;

typedef struct inspect_chunks {
    inspect_chunk *list; /* ascending by tensor and element */
    size_t n;
    uint64_t bytes;
} inspect_chunks;

/* Cuts the tensors of `ckpt` that take[] marks; those without elements have no chunk. 0 or an exit
 * status. */
int inspect_chunks_cut(const dcp_checkpoint *ckpt, const unsigned char *take, inspect_chunks *out);
void inspect_chunks_free(inspect_chunks *chunks);

/* Does chunk i on thread `thread` (0 to CHUNKS_THREADS - 1). */
typedef int (*inspect_chunks_fn)(void *ctx, unsigned thread, size_t i, dcp_error *err);

/* Collective. Does all chunks, with a progress bar for `what`. Returns the same exit status on all
 * ranks; failures have been told. */
int inspect_chunks_run(const launch *job, const inspect_chunks *chunks, const char *what,
                       inspect_chunks_fn fn, void *ctx);

/* What a thread reads a checkpoint with; zero before the first use. */
typedef struct inspect_chunks_reader {
    dcp_reader *reader;
    char *data; /* CHUNKS_SLICE */
} inspect_chunks_reader;

/* Makes it ready, where it is not yet. DCP_OK or an error. */
int inspect_chunks_prepare(inspect_chunks_reader *r, dcp_checkpoint *ckpt, dcp_error *err);
void inspect_chunks_release(inspect_chunks_reader *r);
/* Reads elements [first, first + n) of a tensor, in row-major order, into r->data. */
int inspect_chunks_read(inspect_chunks_reader *r, const dcp_tensor *tensor, uint64_t first,
                        uint64_t n, dcp_error *err);
