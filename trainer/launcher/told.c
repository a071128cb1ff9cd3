#include "launcher/told.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Makes a file in memory and sets `variable` to its path; its descriptor, or -1. */
static int open_told(const char *variable) {
    char path[64];
    const int fd = memfd_create("dcp-run", MFD_CLOEXEC);
    unsetenv(variable);
    if (fd < 0) return -1;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)getpid(), fd);
    setenv(variable, path, 1);
    return fd;
}

void launcher_told_open(launcher_told *told) {
    *told = (launcher_told){0};
    told->reason_fd = open_told("DCP_RUN_REASON");
    told->status_fd = open_told("DCP_RUN_STATUS");
}

void launcher_told_close(launcher_told *told) {
    if (told->reason_fd >= 0) close(told->reason_fd);
    if (told->status_fd >= 0) close(told->status_fd);
}

static void empty(int *fd) {
    if (ftruncate(*fd, 0) == 0) return;
    close(*fd); /* it would be read again */
    *fd = -1;
}

static void take_reason(launcher_told *told) {
    static const char final[] = "final: ";
    char before[LAUNCHER_REASON];
    memcpy(before, told->reason, sizeof before);
    const ssize_t n =
        told->reason_fd < 0 ? 0 : pread(told->reason_fd, told->reason, sizeof told->reason - 1, 0);
    told->reason[n > 0 ? n : 0] = '\0';
    told->reason[strcspn(told->reason, "\n")] = '\0';
    if (n > 0) empty(&told->reason_fd);
    told->repeats = *before && strcmp(before, told->reason) == 0;
    told->is_final = strncmp(told->reason, final, sizeof final - 1) == 0;
    if (told->is_final)
        memmove(told->reason, told->reason + sizeof final - 1,
                strlen(told->reason) - (sizeof final - 1) + 1);
}

static void take_statuses(launcher_told *told) {
    const int copy = told->status_fd < 0 ? -1 : dup(told->status_fd);
    FILE *file = copy < 0 ? NULL : fdopen(copy, "r");
    char line[32];
    told->tells = 0;
    memset(told->statuses, 0, sizeof told->statuses);
    if (!file) return;
    rewind(file);
    while (fgets(line, sizeof line, file)) {
        char *end;
        const long status = strtol(line, &end, 10);
        told->tells = 1;
        if (end != line && status >= 0 && status < (long)sizeof told->statuses)
            told->statuses[status] = 1;
    }
    fclose(file);
    empty(&told->status_fd);
}

void launcher_told_take(launcher_told *told) {
    take_reason(told);
    take_statuses(told);
}

int launcher_told_has(const launcher_told *told, int status) {
    return !told->tells ||
           (status >= 0 && status < (int)sizeof told->statuses && told->statuses[status]);
}
