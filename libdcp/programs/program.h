/* Common functions of all command-line programs: exit statuses, one-line messages on stderr, and
 * the choice of the rank that prints. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "dcp/error.h"

enum {
    PROGRAM_DONE = 0,    /* also for "the same" and "intact" */
    PROGRAM_DIFFERS = 1, /* also for "corrupt" */
    PROGRAM_USAGE = 2,   /* wrong usage or configuration */
    PROGRAM_FAILED = 3,
    PROGRAM_REQUEUE = 75,  /* stopped after saving; a scheduler should run it again */
    PROGRAM_STOPPED = 143, /* by SIGTERM, after cleaning up */
};

/* The Python package starts the tools as "libdcp COMMAND", which is their argv[0]. */

/* Returns true if the Python package has started this program. */
bool program_is_packaged(void);
/* Copies `text` to out[size] and returns `out`. In the Python package, names of tools become its
 * commands: dcp-export becomes "libdcp export", "dcp-inspect ls" becomes "libdcp ls". */
const char *program_own_names(const char *text, char *out, size_t size);

/* Prints "<program>: <message>" on stderr and returns `exit_status`. <program> is the last part of
 * argv[0]; program_own_names is applied to `fmt`, but not to what it quotes. The message is printed
 * as one line, whatever text it quotes. */
int program_fail(int exit_status, const char *fmt, ...) DCP_PRINTF(2, 3);
/* program_refuse does the same with PROGRAM_USAGE; program_no_memory does so with PROGRAM_FAILED
 * and the message "out of memory". */
int program_refuse(const char *fmt, ...) DCP_PRINTF(1, 2);
int program_no_memory(void);
/* Returns true if a call has failed with this errno because of the path that it was given. After
 * other errors, such as those of a disk or a server, the same path may work later. */
bool program_path_is_wrong(int code);
/* Returns true if a file could not be opened or written because of its path. Unlike
 * program_path_is_wrong, also if the path is that of another kind of file, such as a FIFO that
 * nobody reads. */
bool program_output_is_wrong(int code);
/* Fails according to errno: "<what> <path>: <errno's text>". Returns PROGRAM_USAGE if the path is
 * unsuitable: for example, it does not exist, or it exists already. Otherwise returns
 * PROGRAM_FAILED. */
int program_fail_errno(const char *what, const char *path);
/* Prints the message of *err, the error of a libdcp function that failed, and returns the exit
 * status. For a collective function only rank 0 prints. */
int program_report(const dcp_error *err);
void program_note(const char *fmt, ...) DCP_PRINTF(1, 2);

/* Returns true if an MPI launcher (mpirun, srun) started this process, according to the launcher's
 * variables. */
bool program_is_launched(void);
/* Returns the rank according to these variables; 0 without a launcher. MPI need not be
 * initialised. */
int program_rank(void);

/* After this call, a program whose stdout cannot be written ends with a message, and with
 * PROGRAM_FAILED instead of 0 or 1, because its output is its result. It is not a failure if the
 * reader of a pipe has closed its end. Called by program_arguments_parse. */
void program_check_stdout(void);

/* After this call, a write beyond the limit on file sizes (`ulimit -f`) fails with EFBIG instead of
 * ending the program by SIGXFSZ; programs that this one starts receive the signal as usual. Called
 * by program_arguments_parse. */
void program_survive_file_limit(void);

/* Writes a text such as "1.5 GB" into text[32], and returns `text`. */
const char *program_bytes_text(uint64_t bytes, char *text);

/* Returns the number of cores that this process may use. */
int program_cores(void);

/* Returns the seconds of a clock that never goes backwards. */
double program_now_s(void);

/* The environment variables in which a launcher describes each process that it starts. */

typedef struct program_launcher {
    const char *rank, *size;             /* among all processes; size is NULL if not set */
    const char *local_rank, *local_size; /* among the processes of the host; NULL if not set */
} program_launcher;

/* In this order: Open MPI's mpirun; mpirun of MPICH and others with PMI; srun --mpi=pmix; any srun;
 * torchrun. If the variables of several launchers are set, the first of these launchers counts. */
enum {
    PROGRAM_BY_OPEN_MPI,
    PROGRAM_BY_PMI,
    PROGRAM_BY_PMIX,
    PROGRAM_BY_SLURM,
    PROGRAM_BY_TORCHRUN,
    PROGRAM_LAUNCHERS
};
extern const program_launcher program_launchers[PROGRAM_LAUNCHERS];
