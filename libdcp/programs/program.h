/* What every command-line program does alike: exit statuses, one-line messages on stderr, and
 * whether this process is the one of several ranks that speaks. */
#pragma once

#include <stdint.h>

#include "dcp/error.h"

enum {
    PROGRAM_DONE = 0,    /* or: same, intact */
    PROGRAM_DIFFERS = 1, /* or corrupt */
    PROGRAM_USAGE = 2,   /* wrong usage or configuration */
    PROGRAM_FAILED = 3,
    PROGRAM_REQUEUE = 75,  /* stopped, having saved: to be run again, by a scheduler */
    PROGRAM_STOPPED = 143, /* by SIGTERM, having cleaned up */
};

/* Print "<program>: <message>" on stderr and return `exit_status`. The name is argv[0]'s last part,
 * and the message is one line, whatever it quotes. */
int program_fail(int exit_status, const char *fmt, ...) DCP_PRINTF(2, 3);
/* The same for PROGRAM_USAGE, and for memory that is short. */
int program_refuse(const char *fmt, ...) DCP_PRINTF(1, 2);
int program_no_memory(void);
/* From errno: "<what> <path>: <errno's text>"; PROGRAM_USAGE for a path that is not there,
 * leads through a file, or is taken. */
int program_fail_errno(const char *what, const char *path);
/* The message of a libdcp function that failed, and its exit status; *err is its error. Of a
 * collective one rank 0 alone prints. */
int program_report(const dcp_error *err);
void program_note(const char *fmt, ...) DCP_PRINTF(1, 2);

/* Whether a launcher of MPI (mpirun, srun) started this process, by the launcher's variables. */
int program_is_launched(void);
/* The rank that these variables name; 0 without a launcher. MPI need not be initialised. */
int program_rank(void);

/* What is written to stdout is a result: from now on the program ends with PROGRAM_FAILED instead
 * of 0 or 1, after a message, where stdout cannot be written. A reader that left has seen what it
 * wanted. program_arguments_parse calls it. */
void program_check_stdout(void);

/* From now on a write beyond the limit on the size of files (`ulimit -f`) fails (EFBIG), where
 * SIGXFSZ would end the program; programs that this one starts get the signal as ever.
 * program_arguments_parse calls it. */
void program_survive_file_limit(void);

/* "1.5 GB" into text[32]. */
const char *program_bytes_text(uint64_t bytes, char *text);

/* Seconds on a clock that only goes forward. */
double program_now_s(void);

/* What a launcher tells each process that it starts, by variables of its environment. */

typedef struct program_launcher {
    const char *rank, *size;             /* of all processes; size NULL: not told */
    const char *local_rank, *local_size; /* of those on the same host; NULL: not told */
} program_launcher;

/* By mpirun of Open MPI; by mpirun of MPICH and others that speak PMI; by srun --mpi=pmix; by any
 * srun; by torchrun. Where several are set, the first one counts. */
enum {
    PROGRAM_BY_OPEN_MPI,
    PROGRAM_BY_PMI,
    PROGRAM_BY_PMIX,
    PROGRAM_BY_SLURM,
    PROGRAM_BY_TORCHRUN,
    PROGRAM_LAUNCHERS
};
extern const program_launcher program_launchers[PROGRAM_LAUNCHERS];
