#include "comm/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/place.h"
#include "core/crc64.h"

/* What /proc/PID/stat says of a process. */
typedef struct stat_fields {
    char state; /* Z: it has ended, and its parent has not asked how */
    uint64_t threads, start;
} stat_fields;

/* The name, in brackets, may hold anything; behind the last bracket come fields 3 and on. */
static int read_stat(const char *path, stat_fields *out) {
    char text[1024], *at;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0) close(fd);
    if (n <= 0) return -1;
    text[n] = 0;
    at = strrchr(text, ')');
    if (!at || strlen(at) < 3) return -1;
    out->state = at[2];
    at += 3;
    for (int field = 4; field <= 22; field++) {
        uint64_t value = strtoull(at, &at, 10);
        if (field == 20) out->threads = value;
        if (field == 22) out->start = value;
    }
    return 0;
}

/* /proc may be that of another namespace; then it knows processes by other numbers. */
static int proc_is_ours(void) {
    char text[32] = {0};
    return readlink("/proc/self", text, sizeof text - 1) > 0 && strtol(text, NULL, 10) == getpid();
}

void comm_process_find(comm_process *out) {
    stat_fields found;
    struct stat st;
    comm_boot_id boot;
    *out = (comm_process){.pid = getpid()};
    comm_place_boot(&boot);
    out->kernel = core_crc64(&boot, sizeof boot);
    if (!proc_is_ours() || read_stat("/proc/self/stat", &found) != 0) return;
    out->start = found.start;
    if (stat("/proc/self/ns/pid", &st) == 0) out->name_space = st.st_ino;
    if (stat("/proc/self/ns/time", &st) == 0) out->name_space ^= (uint64_t)st.st_ino << 32;
}

int comm_process_can_tell(const comm_process *own, const comm_process *other) {
    return own->name_space && own->name_space == other->name_space &&
           own->kernel == other->kernel && other->pid > 0;
}

int comm_process_has_ended(const comm_process *own, const comm_process *other) {
    char path[64];
    stat_fields now;
    if (!comm_process_can_tell(own, other)) return 0;
    if (kill((pid_t)other->pid, 0) != 0 && errno == ESRCH) return 1;
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)other->pid);
    if (read_stat(path, &now) != 0) return 0; /* hidden, or gone since: the next look will tell */
    if (now.start != other->start) return 1;
    return (now.state == 'Z' || now.state == 'X') && now.threads <= 1;
}
