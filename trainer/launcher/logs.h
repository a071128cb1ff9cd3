/* The output of the ranks of a start (--logs). */
#pragma once

#include <stddef.h>

/* The tagged output of mpirun: which text belongs to which rank. */

enum { LAUNCHER_TAG_BYTES = 40 };

typedef struct launcher_tagged {
    const char *tag_end;           /* set by the caller: what is between a tag and the text */
    int ranks;                     /* set by the caller; greater numbers are no rank's */
    int rank;                      /* the rank of the text that follows; set to -1 by the caller */
    char held[LAUNCHER_TAG_BYTES]; /* the beginning of what may be a tag */
    size_t n_held;
} launcher_tagged;

/* Gets a part of a line, with the '\n' if the line ends there; rank -1: mpirun's own text. Parts of
 * lines of several ranks may alternate. */
typedef void (*launcher_tagged_fn)(void *ctx, int rank, const char *text, size_t n);

/* Splits the next bytes of the stream, wherever it was cut. */
void launcher_tagged_take(launcher_tagged *tagged, const char *bytes, size_t n,
                          launcher_tagged_fn take, void *ctx);

/* Hands out what is held back, as the stream has ended. */
void launcher_tagged_end(launcher_tagged *tagged, launcher_tagged_fn take, void *ctx);

/* A file for each rank, and all lines merged on the console:
 *
 *     DIR/start-2/rank-3.log      2026-11-23 12:03:04.123 step 7 loss 2.5
 *     console                     12:03:04.123 rank 3: step 7 loss 2.5
 *
 * The time is when mpirun passed a line on. What ranks write to stdout goes to stdout, and stderr
 * to stderr; a rank's file has both. mpirun's own messages go to mpirun.log. Existing files are
 * appended to. */

typedef struct launcher_output launcher_output;

/* Makes DIR and DIR/start-K, and two pipes for mpirun, which must tag its output. `start` is K,
 * from 1. `tag_end` is as in launcher_tagged. Returns 0, or an exit status after a message. */
int launcher_output_open(launcher_output **out, const char *dir, int start, int ranks,
                         const char *tag_end);

/* Returns the end of the pipe that becomes mpirun's stdout (1) or stderr (2); exec closes it. */
int launcher_output_writer(const launcher_output *output, int stream);

/* Closes these ends in this process, after mpirun has been started. */
void launcher_output_started(launcher_output *output);

/* The descriptor is readable when there is work, except while a slow console delays it. */
int launcher_output_fd(const launcher_output *output);

/* Reads what has arrived, and writes it to the files and the console. Never waits for either: while
 * a console accepts nothing, nothing more is read; if that lasts for some seconds, lines are left
 * out on the console (and counted), but not in the files. To be called when the descriptor is
 * readable, and about once per second. Returns 0 if both pipes have ended and everything is
 * written. */
int launcher_output_take(launcher_output *output);

/* Writes stacks to stderr and to DIR/start-K/stacks.log. `output` may be NULL: only stderr. */
void launcher_output_stacks(launcher_output *output, const char *text);

/* Reads the rest after mpirun has ended, and frees. The console gets at most a second for what is
 * left, and none if it accepts nothing. NULL is allowed. */
void launcher_output_close(launcher_output *output);
