/* What the ranks of a start print (--logs). */
#pragma once

#include <stddef.h>

/* Taking apart what mpirun writes where it tags output: which text is which rank's. */

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

/* What a start's ranks print (--logs): a file for each rank, and all of them merged on the console.
 *
 *     DIR/start-2/rank-3.log      2026-11-23 12:03:04.123 step 7 loss 2.5
 *     console                     12:03:04.123 rank 3: step 7 loss 2.5
 *
 * The time is when mpirun handed a line on. What ranks write to stdout goes to stdout, and stderr
 * to stderr; a rank's file has both. What mpirun says itself is in mpirun.log. Files that are there
 * are written on. */

typedef struct launcher_output launcher_output;

/* Makes DIR and DIR/start-K, and two pipes for mpirun, which is to tag its output.
 * `start` is K, from 1. `tag_end` is as in launcher_tagged. 0, or an exit status after a message.
 */
int launcher_output_open(launcher_output **out, const char *dir, int start, int ranks,
                         const char *tag_end);

/* The pipe's end that becomes mpirun's stdout (1) or stderr (2); closed by exec. */
int launcher_output_writer(const launcher_output *output, int stream);

/* mpirun has been started: closes these ends in this process. */
void launcher_output_started(launcher_output *output);

/* Readable when there is something to do; not while a console that is slow holds it up. */
int launcher_output_fd(const launcher_output *output);

/* Reads what is there, and writes it to the files and the console. Never waits for either end: a
 * console that takes nothing is waited for by reading nothing more, and where that lasts for some
 * seconds lines are left out there (and counted), but not in the files. To be called when the
 * descriptor is readable and once a second or so. 0: both pipes have ended, and all is written. */
int launcher_output_take(launcher_output *output);

/* Of processes that hang: to stderr and to DIR/start-K/stacks.log. `output` may be NULL: stderr
 * alone. */
void launcher_output_stacks(launcher_output *output, const char *text);

/* mpirun has ended: takes the rest, and frees. The console gets at most a second for what is left,
 * and none where it takes nothing. NULL is none. */
void launcher_output_close(launcher_output *output);
