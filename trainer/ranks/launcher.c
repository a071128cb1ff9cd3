#include "ranks/launcher.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "programs/program.h"
#include "ranks/board.h"

static int is_set(const char *name) {
    const char *value = getenv(name);
    return value && strcmp(value, "1") == 0;
}

double ranks_launcher_grace_s(void) {
    const char *value = getenv("DCP_RUN_GRACE");
    return value ? strtod(value, NULL) : 0;
}

int ranks_launcher_goes_on(void) { return is_set("DCP_RUN_RESTART"); }

int ranks_launcher_takes_over(void) { return is_set("DCP_RUN_TAKE_OVER"); }

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

/* Adds `text` to dcp-run's file. It is a service to dcp-run, which does without it. */
static void tell(const char *variable, const char *text) {
    const int fd = ranks_board_open_file(variable, O_WRONLY | O_APPEND);
    if (fd < 0) return;
    (void)!write(fd, text, strlen(text));
    close(fd);
}

static int is_started;

void ranks_launcher_begin(void) {
    is_started = program_is_launched();
    ranks_board_open(program_rank());
}

int ranks_launcher_is_there(void) { return is_started; }

void ranks_launcher_end(int status) { ranks_board_end(status); }

void ranks_launcher_tell(int rank, const char *why) {
    if (rank == 0) tell("DCP_RUN_REASON", why);
}

void ranks_launcher_tell_final(int rank, const char *why) {
    char line[1280];
    snprintf(line, sizeof line, "final: %s", why);
    ranks_launcher_tell(rank, line);
}
