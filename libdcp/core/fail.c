/* Errors: the texts of the statuses, and filling a dcp_error.
 *
 * A message is formatted into a separate buffer and then copied, so an error's old message can be
 * an argument of its new one. Line breaks in names are replaced: a message is one line. The reason
 * is at the end, so if a message is too long, its middle is left out. */
#include "core/fail.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

const char *dcp_version(void) { return DCP_VERSION; }

const char *dcp_status_text(int status) {
#define STATUS_TEXT(name, value, text)                                                             \
    case name:                                                                                     \
        return text;
    switch (status) {
        DCP_STATUS_LIST(STATUS_TEXT)
    default:
        return "unknown status";
    }
#undef STATUS_TEXT
}

static void keep_on_one_line(char *text) {
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f) *text = '?';
}

/* Removes the middle of `text`, in whole UTF-8 characters, until it fits into `size` bytes. */
static void shorten(char *text, size_t size) {
    static const char gap[] = "...";
    size_t length = strlen(text), head = size / 3;
    if (length < size) return;
    size_t tail = length - (size - sizeof gap - head);
    while (head && ((unsigned char)text[head] & 0xc0) == 0x80) head--;
    while (((unsigned char)text[tail] & 0xc0) == 0x80) tail++;
    memcpy(text + head, gap, sizeof gap - 1);
    memmove(text + head + sizeof gap - 1, text + tail, length - tail + 1);
}

void core_format(char *out, size_t size, const char *fmt, va_list args) {
    char text[3 * 4096]; /* room for two file paths and a tensor path */
    vsnprintf(text, sizeof text, fmt, args);
    keep_on_one_line(text);
    shorten(text, size);
    memcpy(out, text, strlen(text) + 1);
}

static int fail(dcp_error *err, int status, const char *fmt, va_list args) {
    core_format(err->message, sizeof err->message, fmt, args);
    err->status = status;
    err->rank = -1;
    return status;
}

static void clear_members(dcp_error *err) {
    const size_t from = offsetof(dcp_error, system_error);
    memset((char *)err + from, 0, sizeof *err - from);
    err->offset = UINT64_MAX;
}

int core_fail(dcp_error *err, int status, const char *fmt, ...) {
    if (!err) return status;
    va_list args;
    va_start(args, fmt);
    fail(err, status, fmt, args);
    va_end(args);
    clear_members(err); /* only after formatting, since the members may be its arguments */
    return status;
}

int core_fail_again(dcp_error *err, int status, const dcp_error *of, const char *fmt, ...) {
    const size_t from = offsetof(dcp_error, system_error);
    if (!err) return status;
    va_list args;
    va_start(args, fmt);
    fail(err, status, fmt, args);
    va_end(args);
    memmove((char *)err + from, (const char *)of + from, sizeof *err - from);
    return status;
}

int core_fail_add(int status, dcp_error *err, const char *fmt, ...) {
    char more[sizeof err->message];
    va_list args;
    if (!err) return status;
    const int rank = err->rank;
    va_start(args, fmt);
    core_format(more, sizeof more, fmt, args);
    va_end(args);
    core_fail_again(err, status, err, "%s%s", err->message, more);
    err->rank = rank;
    return status;
}

int core_fail_at(dcp_error *err, int status, const char *path, const char *fmt, ...) {
    char text[sizeof err->message];
    if (!err) return status;
    va_list args;
    va_start(args, fmt);
    core_format(text, sizeof text, fmt, args);
    va_end(args);
    return core_fail_path(core_fail(err, status, "%s: %s", path, text), path, err);
}

static void copy_text(char *to, size_t size, const char *from) { snprintf(to, size, "%s", from); }

int core_fail_path(int status, const char *path, dcp_error *err) {
    if (status && err) copy_text(err->path, sizeof err->path, path);
    return status;
}

int core_fail_offset(int status, uint64_t offset, dcp_error *err) {
    if (status && err) err->offset = offset;
    return status;
}

int core_fail_tensor(int status, const char *tensor, dcp_error *err) {
    if (status && err) copy_text(err->tensor, sizeof err->tensor, tensor);
    return status;
}

int core_fail_rank(int status, int rank, dcp_error *err) {
    if (!status || !err) return status;
    if (err->n_ranks < DCP_ERROR_RANKS) err->ranks[err->n_ranks] = rank;
    err->n_ranks++;
    return status;
}

static int status_of_errno(int code) {
    switch (code) {
    case ENOSPC:
    case EDQUOT:
        return DCP_ERR_NO_SPACE;
    case ENOENT:
        return DCP_ERR_NOT_FOUND;
    case ENOTDIR:
    case ENAMETOOLONG:
        return DCP_ERR_ARG; /* not a valid path */
    case ENOMEM:
        return DCP_ERR_NO_MEMORY;
    default:
        return DCP_ERR_IO;
    }
}

/* Returns the remedy as a continuation of the message, or "" if the errno's own text implies the
 * remedy. */
static const char *remedy_of_errno(int code) {
    switch (code) {
    case ENOSPC:
        return "; free space there or choose another folder";
    case EDQUOT:
        return "; free some of the quota or choose another folder";
    case EFBIG:
        return "; raise the limit of file sizes (ulimit -f) or choose another file system";
    case EROFS:
    case EACCES:
    case EPERM:
        return "; allow this user to use it or choose another folder";
    case ENOTDIR:
        return "; a part of this path is a file: choose another folder";
    case ENOLCK:
    case EOPNOTSUPP:
        return "; this file system cannot do it: choose another folder";
    case EMFILE:
    case ENFILE:
        return "; raise the limit of open files (ulimit -n)";
    case EIO:
        return "; look at the disk and the kernel's log";
    default:
        return "";
    }
}

int core_fail_errno(dcp_error *err, const char *what, const char *path) {
    int code = errno;
    int status = core_fail(err, status_of_errno(code), "%s %s: %s%s", what, path,
                           code == ENOENT ? "no such file or folder" : strerror(code),
                           remedy_of_errno(code));
    if (err) err->system_error = code;
    return core_fail_path(status, path, err);
}

int core_fail_memory(dcp_error *err, uint64_t bytes) {
    return core_fail(err, DCP_ERR_NO_MEMORY,
                     "out of memory: %" PRIu64 " bytes are not available; use fewer ranks per host "
                     "or a host with more memory",
                     bytes);
}
