/* Whole pages go directly, from a buffer that lies in memory as they lie in the file. The parts of
 * pages at both ends of a stretch go through the page cache, where a neighbour's part of the same
 * page may be. */
#include "export/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "programs/program.h"

enum { PAGE = 4096, BUFFER = 16 << 20 };

int output_open(output *out, const char *path) {
    *out = (output){.fd = -1, .direct = -1};
    snprintf(out->path, sizeof out->path, "%s", path);
    out->fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW);
    if (out->fd < 0) return program_fail_errno("cannot open", path);
    out->direct = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_DIRECT);
    void *memory;
    if (posix_memalign(&memory, PAGE, BUFFER)) {
        output_close(out, PROGRAM_FAILED);
        return program_fail(PROGRAM_FAILED, "out of memory");
    }
    out->buffer = memory;
    return 0;
}

/* [from, to) of the buffer. A file system that took the flag may still refuse the write. */
static int write_range(output *out, int fd, uint64_t from, uint64_t to) {
    while (from < to) {
        ssize_t put = pwrite(fd, out->buffer + from, to - from, (off_t)(out->base + from));
        if (put < 0 && errno == EINTR) continue;
        if (put < 0 && errno == EINVAL && fd != out->fd) {
            fd = out->fd;
            continue;
        }
        if (put < 0) return program_fail_errno("cannot write", out->path);
        from += (uint64_t)put;
        if (from % PAGE) fd = out->fd; /* cut short: what is left is no whole page */
    }
    return 0;
}

/* Writes the whole pages, and where `all` is set the rest; else the last page's part stays, at the
 * buffer's start. */
static int flush(output *out, int all) {
    uint64_t first = (out->from + PAGE - 1) / PAGE * PAGE, last = out->to / PAGE * PAGE;
    if (first > last) first = last = out->to;
    int status = write_range(out, out->fd, out->from, first);
    if (status == 0)
        status = write_range(out, out->direct < 0 ? out->fd : out->direct, first, last);
    if (status == 0 && all) status = write_range(out, out->fd, last, out->to);
    if (status || all) {
        out->from = out->to = 0;
        return status;
    }
    memcpy(out->buffer, out->buffer + last, out->to - last);
    out->base += last;
    out->to -= last;
    out->from = 0;
    return 0;
}

int output_write(output *out, uint64_t offset, const void *data, uint64_t bytes) {
    int status = 0;
    if (out->from == out->to || out->base + out->to != offset) {
        status = flush(out, 1);
        out->base = offset / PAGE * PAGE;
        out->from = out->to = offset % PAGE;
    }
    for (uint64_t done = 0; status == 0 && done < bytes;) {
        uint64_t part = BUFFER - out->to < bytes - done ? BUFFER - out->to : bytes - done;
        memcpy(out->buffer + out->to, (const char *)data + done, part);
        out->to += part;
        done += part;
        if (out->to == BUFFER) status = flush(out, 0);
    }
    return status;
}

int output_close(output *out, int status) {
    if (out->fd < 0) return status;
    if (status == 0) status = flush(out, 1);
    if (status == 0 && fsync(out->fd)) status = program_fail_errno("cannot sync", out->path);
    if (out->direct >= 0) close(out->direct);
    close(out->fd);
    free(out->buffer);
    out->fd = -1;
    return status;
}
