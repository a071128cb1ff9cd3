/* The output of the ranks of a start (--logs). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* The tagged output of mpirun, whose tags show which text belongs to which rank. */

enum { LAUNCHER_TAG_BYTES = 40 };

typedef struct launcher_tagged {
    const char *tag_end; /* set by the caller: the text between a tag and the line */
    int ranks;           /* set by the caller; a tag with a rank that does not exist counts as
                            text */
    int rank;            /* the rank of the text that follows; set to -1 by the caller */
    char held[LAUNCHER_TAG_BYTES]; /* the beginning of what may be a tag */
    size_t n_held;
} launcher_tagged;

/* Receives a part of a line, including the '\n' if the line ends there. rank: the rank that wrote
 * it; -1: mpirun. Parts of lines of several ranks may alternate. */
typedef void (*launcher_tagged_fn)(void *ctx, int rank, const char *text, size_t n);

/* Splits the next bytes of the stream, which may begin and end anywhere, even inside a tag. */
void launcher_tagged_split(launcher_tagged *tagged, const char *bytes, size_t n,
                           launcher_tagged_fn take, void *ctx);

/* Passes bytes that are still held back to `take`; to be called when the stream has ended. */
void launcher_tagged_end(launcher_tagged *tagged, launcher_tagged_fn take, void *ctx);

/* A file for each rank, and all lines merged on the console:
 *
 *     DIR/start-2/rank-3.log      2026-11-23 12:03:04.123 step 7 loss 2.5
 *     console                     12:03:04.123 rank 3: step 7 loss 2.5
 *
 * The time is when dcp-run received the end of the line from mpirun. What ranks write to stdout
 * goes to stdout, and what they write to stderr goes to stderr; a rank's file has both. mpirun's
 * own messages go to mpirun.log. Existing files are appended to. */

typedef struct launcher_output launcher_output;

/* Makes DIR and DIR/start-K, and two pipes for mpirun, which must tag its output. `start` is K,
 * counted from 1. `tag_end` is as in launcher_tagged. Returns 0, or an exit status after a
 * message. */
int launcher_output_open(launcher_output **out, const char *dir, int start, int ranks,
                         const char *tag_end);

/* Returns the end of the pipe that becomes mpirun's stdout (1) or stderr (2); exec closes it. */
int launcher_output_writer(const launcher_output *output, int stream);

/* Closes the ends of the pipes that launcher_output_writer returns, in this process, after mpirun
 * has been started. */
void launcher_output_started(launcher_output *output);

/* Returns a descriptor that is readable when there is something to read or write, except while a
 * slow console delays reading. */
int launcher_output_fd(const launcher_output *output);

/* Reads what has arrived, and writes it to the files and the console. Never waits for the files or
 * the console. If a console accepts nothing, reading stops once too many lines wait for it. If that
 * lasts for some seconds, reading continues, and lines are left out on the console (and counted),
 * but not in the files. To be called when the descriptor is readable, and about once per second.
 * Returns false if both pipes have ended and everything is written. */
bool launcher_output_forward(launcher_output *output);

/* Writes stacks to stderr and to DIR/start-K/stacks.log. `output` may be NULL: only stderr. */
void launcher_output_stacks(launcher_output *output, const char *text);

/* Reads and writes the rest after mpirun has ended, and frees `output`. Waits for the console for
 * at most a second, and not at all if it had already stopped accepting lines. NULL is allowed. */
void launcher_output_close(launcher_output *output);
