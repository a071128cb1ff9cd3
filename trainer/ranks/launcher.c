#include "ranks/launcher.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "programs/fail.h"
#include "programs/program.h"
#include "ranks/board.h"

static bool is_set(const char *name) {
    const char *value = getenv(name);
    return value && strcmp(value, "1") == 0;
}

double ranks_launcher_grace_s(void) {
    const char *value = getenv("DCP_RUN_GRACE");
    return value ? strtod(value, NULL) : 0;
}

bool ranks_launcher_continues(void) { return is_set("DCP_RUN_RESTART"); }

bool ranks_launcher_takes_over(void) { return is_set("DCP_RUN_TAKE_OVER"); }

bool ranks_launcher_failed_for(const char *why) {
    const char *value = getenv("DCP_RUN_FAILED");
    return value && strcmp(value, why) == 0;
}

int ranks_launcher_columns(void) {
    const char *value = getenv("DCP_RUN_TERMINAL");
    const long columns = value ? strtol(value, NULL, 10) : 0;
    return columns > 0 && columns < 10000 ? (int)columns : 0;
}

void ranks_launcher_name(char name[RANKS_NAME_BYTES]) {
    const char *value = getenv("DCP_RUN_NAME");
    const uint64_t number = value ? strtoull(value, NULL, 16) : 0;
    snprintf(name, RANKS_NAME_BYTES, number ? "%016" PRIx64 : "", number);
}

/* Appends `text` to dcp-run's file. Failures are ignored, because dcp-run also works without the
 * text. */
static void report(const char *variable, const char *text) {
    const int fd = ranks_board_open_file(variable, O_WRONLY | O_APPEND);
    if (fd < 0) return;
    (void)!write(fd, text, strlen(text));
    close(fd);
}

static bool is_started;

/* The information in the environment about the processes that were started together. */
static struct {
    const char *size; /* the variable with the number of these processes; NULL if there is none */
    int ranks, rank;
} launched;

/* To be called before MPI_Init, because Open MPI's MPI_Init sets some of these variables itself.
 * WORLD_SIZE is used only if RANK is set, too. */
static void find_launched(void) {
    for (int i = 0; i < PROGRAM_LAUNCHERS && !launched.size; i++) {
        const program_launcher *by = &program_launchers[i];
        const char *size = by->size ? getenv(by->size) : NULL, *rank = getenv(by->rank);
        if (!size || !rank || atoi(size) < 2) continue;
        launched.size = by->size;
        launched.ranks = atoi(size);
        launched.rank = atoi(rank);
    }
}

int ranks_launcher_check_world(int world, int *rank, dcp_error *err) {
    const char *text = getenv("DCP_RUN_RANKS");
    const int started = text ? atoi(text) : 0;
    *rank = launched.rank;
    if (world > 1) return DCP_OK;
    if (started > 1)
        return core_fail(err, DCP_ERR_ARG,
                         "dcp-run has started %d ranks, but MPI knows only this one, so each would "
                         "train by itself, all in one directory: the mpirun that dcp-run finds "
                         "belongs to another MPI than the one that dcp-train is built with; put "
                         "the mpirun of dcp-train's MPI first in PATH",
                         started);
    if (!launched.size) return DCP_OK;
    return core_fail(
        err, DCP_ERR_ARG,
        "%s says that this is one of %d processes, but MPI knows only this one, so each would "
        "train by itself: start them by dcp-run, by the mpirun of the MPI that dcp-train is built "
        "with, or by srun --mpi=pmix; to train in one process nevertheless, unset %s",
        launched.size, launched.ranks, launched.size);
}

void ranks_launcher_begin(void) {
    is_started = program_is_launched();
    find_launched();
    ranks_board_open(program_rank());
}

int ranks_launcher_exit_status(int status) {
    switch ((dcp_status)status) {
    case DCP_OK:
        return PROGRAM_DONE;
    case DCP_ERR_CORRUPT:
        return PROGRAM_DIFFERS;
    case DCP_ERR_IO:
    case DCP_ERR_NO_SPACE:
    case DCP_ERR_COMM:
    case DCP_ERR_NO_MEMORY:
    case DCP_ERR_DEVICE:
        return PROGRAM_FAILED;
    case DCP_ERR_BUSY:
        return ranks_launcher_takes_over() ? PROGRAM_FAILED : PROGRAM_USAGE;
    case DCP_ERR_ARG:
    case DCP_ERR_MISMATCH:
    case DCP_ERR_NOT_FOUND:
    case DCP_ERR_VERSION:
    case DCP_ERR_UNSUPPORTED:
    case DCP_ERR_STATE:
    case DCP_ERR_CANCELLED:
        break;
    }
    return PROGRAM_USAGE;
}

bool ranks_launcher_is_present(void) { return is_started; }

void ranks_launcher_end(int status) { ranks_board_end(status); }

void ranks_launcher_report(int rank, const char *why) {
    if (rank == 0) report("DCP_RUN_REASON", why);
}

void ranks_launcher_report_final(int rank, const char *why) {
    char line[1280];
    snprintf(line, sizeof line, "final: %s", why);
    ranks_launcher_report(rank, line);
}
