/* Files of a model's folder. What is checked of a name holds for the file that is then opened:
 * whoever can exchange it in between can write into the folder anyway. */
#include "safetensors/files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/fail.h"
#include "dcp/safetensors.h"

int st_read_at(int fd, const char *path, uint64_t offset, void *out, uint64_t bytes,
               dcp_error *err) {
    for (uint64_t done = 0; done < bytes;) {
        ssize_t got = pread(fd, (char *)out + done, bytes - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return core_fail_errno(err, "cannot read", path);
        if (got == 0)
            return core_fail(err, DCP_ERR_CORRUPT, "%s: ends at byte %llu: truncated?", path,
                             (unsigned long long)(offset + done));
        done += (uint64_t)got;
    }
    return DCP_OK;
}

/* O_NONBLOCK: opening a named pipe must not wait for a writer. */
int st_open_regular(const char *path, int *fd_out, uint64_t *size_out, dcp_error *err) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return core_fail_errno(err, "cannot open", path);
    int status = DCP_OK;
    if (fstat(fd, &st))
        status = core_fail_errno(err, "cannot stat", path);
    else if (!S_ISREG(st.st_mode))
        status = core_fail(err, DCP_ERR_IO, "%s: not a regular file", path);
    if (status != DCP_OK) {
        close(fd);
        return status;
    }
    *fd_out = fd;
    *size_out = (uint64_t)st.st_size;
    return DCP_OK;
}

int st_join(char *out, const char *dir, const char *name, dcp_error *err) {
    if (snprintf(out, PATH_MAX, "%s/%s", dir, name) >= PATH_MAX)
        return core_fail(err, DCP_ERR_ARG, "%.200s/%.200s: the path is too long", dir, name);
    return DCP_OK;
}

static int lies_in(const char *file, const char *folder) {
    char *real = realpath(folder, NULL);
    size_t n = real ? strlen(real) : 0;
    int in = real && !strncmp(file, real, n) && file[n] == '/';
    free(real);
    return in;
}

int st_check_inside(const char *path, const char *dir, dcp_error *err) {
    char blobs[PATH_MAX], *real = realpath(path, NULL);
    if (!real) return core_fail_errno(err, "cannot open", path);
    int status = st_join(blobs, dir, "../../blobs", err);
    if (!status && !lies_in(real, dir) && !lies_in(real, blobs))
        status = core_fail(err, DCP_ERR_CORRUPT,
                           "%s: a link out of its folder: copy the file into the folder", path);
    free(real);
    return status;
}

int dcp_st_open_file(const char *folder, const char *name, int *fd, uint64_t *bytes,
                     dcp_error *err) {
    char path[PATH_MAX];
    if (!folder || !name || !fd || !bytes)
        return core_fail(err, DCP_ERR_ARG, "dcp_st_open_file: an argument is NULL");
    int status = st_join(path, folder, name, err);
    if (status == DCP_OK) status = st_check_inside(path, folder, err);
    return status == DCP_OK ? st_open_regular(path, fd, bytes, err) : status;
}
