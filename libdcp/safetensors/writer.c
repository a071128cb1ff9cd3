/* Writes one safetensors file.
 *
 * The data go to `<path>.tmp-<pid>`, which gets the file's name only when it is complete and
 * durable, so `path` never names an incomplete file. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/checks.h"
#include "core/fail.h"
#include "core/system.h"
#include "dcp/safetensors.h"
#include "io/entries.h"
#include "io/file.h"
#include "io/publish.h"
#include "safetensors/header.h"

struct dcp_st_writer {
    char path[PATH_MAX], tmp_path[PATH_MAX];
    int fd;
    uint64_t written, total; /* in bytes of the file */
};

static int append_bytes(dcp_st_writer *writer, const void *data, uint64_t bytes, dcp_error *err) {
    int status = io_write_plain(writer->fd, data, bytes, writer->written, writer->tmp_path, err);
    if (!status) writer->written += bytes;
    return status;
}

/* Reserving space detects a full disk before any data moves. If the file system cannot reserve
 * space, a write will report a full disk. */
static int reserve_space(const dcp_st_writer *writer, dcp_error *err) {
    if (core_file_limit_check(writer->total))
        return core_fail_errno(err, "cannot write", writer->tmp_path);
    if (fallocate(writer->fd, 0, 0, (off_t)writer->total) == 0) return DCP_OK;
    if (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINTR) return DCP_OK;
    return core_fail_errno(err, "cannot reserve space for", writer->tmp_path);
}

static int open_tmp(dcp_st_writer *writer, const char *path, dcp_error *err) {
    int length = snprintf(writer->tmp_path, PATH_MAX, "%s.tmp-%ld", path, (long)getpid());
    if (length >= PATH_MAX)
        return core_fail(err, DCP_ERR_ARG, "%.500s: the path is too long", path);
    memcpy(writer->path, path, strlen(path) + 1);
    struct stat st;
    if (!io_stat(AT_FDCWD, path, &st, NULL) && !S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode))
        return core_fail_at(err, DCP_ERR_ARG, path,
                            "it is not a file, and a file cannot replace it: choose another name");
    writer->fd =
        open(writer->tmp_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    return writer->fd < 0 ? core_fail_errno(err, "cannot create", writer->tmp_path) : DCP_OK;
}

int dcp_st_create(const char *path, const dcp_tensor *tensors, size_t n, dcp_st_writer **out,
                  dcp_error *err) {
    char *header;
    uint64_t header_bytes;
    if (!path || !out || (n && !tensors))
        return core_fail(err, DCP_ERR_ARG, "dcp_st_create: path, tensors or out is NULL");
    int status = core_path_check(NULL, path, err);
    if (status == DCP_OK) status = dcp_st_header(tensors, n, &header, &header_bytes, err);
    if (status != DCP_OK) return status;
    dcp_st_writer *writer = calloc(1, sizeof *writer);
    if (!writer) {
        status = core_fail_memory(err, sizeof *writer);
        goto free_header;
    }
    writer->fd = -1;
    writer->total = header_bytes;
    for (size_t i = 0; i < n; i++) writer->total += dcp_tensor_bytes(&tensors[i]);
    status = open_tmp(writer, path, err);
    if (status == DCP_OK) status = reserve_space(writer, err);
    if (status == DCP_OK) status = append_bytes(writer, header, header_bytes, err);
    if (status != DCP_OK)
        dcp_st_cancel(writer);
    else
        *out = writer;
free_header:
    free(header);
    return status;
}

int dcp_st_write(dcp_st_writer *writer, const void *data, uint64_t bytes, dcp_error *err) {
    if (!writer || (!data && bytes))
        return core_fail(err, DCP_ERR_ARG, "dcp_st_write: writer or data is NULL");
    if (bytes > writer->total - writer->written)
        return core_fail_at(err, DCP_ERR_STATE, writer->path, "more data than its tensors have");
    return append_bytes(writer, data, bytes, err);
}

int dcp_st_finish(dcp_st_writer *writer, dcp_error *err) {
    if (!writer) return core_fail(err, DCP_ERR_ARG, "dcp_st_finish: writer is NULL");
    int status = DCP_OK;
    bool is_named = false;
    if (writer->written != writer->total) {
        status = core_fail_at(err, DCP_ERR_STATE, writer->path, "finished %llu bytes too early",
                              (unsigned long long)(writer->total - writer->written));
    } else {
        const int failed = io_publish_file(writer->fd, writer->tmp_path, writer->path);
        is_named = failed >= 0;
        if (failed)
            status = core_fail_errno(err,
                                     is_named ? "it is complete, but may disappear after a "
                                                "loss of power: cannot sync the folder of"
                                              : "cannot finish",
                                     writer->path);
    }
    if (!is_named) {
        dcp_st_cancel(writer);
        return status;
    }
    close(writer->fd);
    free(writer);
    return status;
}

void dcp_st_cancel(dcp_st_writer *writer) {
    if (!writer) return;
    if (writer->fd >= 0) {
        close(writer->fd);
        unlink(writer->tmp_path);
    }
    free(writer);
}
