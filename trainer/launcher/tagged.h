/* Taking apart what mpirun writes where it tags output: which text is which rank's. */
#pragma once

#include <stddef.h>

enum { LAUNCHER_TAG_BYTES = 40 };

typedef struct launcher_tagged {
    const char *tag_end;           /* set by the caller: what is between a tag and the text */
    int ranks;                     /* set by the caller; numbers from there on are no rank's */
    int rank;                      /* of the text that comes next; set to -1 by the caller */
    char held[LAUNCHER_TAG_BYTES]; /* the begin of what may be a tag */
    size_t n_held;
} launcher_tagged;

/* A part of a line, with the '\n' where it ends; rank -1: mpirun's own. Parts of a rank's line may
 * come between those of others. */
typedef void (*launcher_tagged_fn)(void *ctx, int rank, const char *text, size_t n);

/* Takes the next bytes, however the stream was cut. */
void launcher_tagged_take(launcher_tagged *tagged, const char *bytes, size_t n,
                          launcher_tagged_fn take, void *ctx);

/* The stream has ended: hands out what is held back. */
void launcher_tagged_end(launcher_tagged *tagged, launcher_tagged_fn take, void *ctx);
