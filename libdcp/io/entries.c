#include "io/entries.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "core/fail.h"

/* Fails according to errno. */
static int fail_look(const char *what, const char *path, dcp_error *err) {
    const bool is_absent = errno == ENOENT || errno == ENOTDIR;
    const int status = core_fail_errno(err, what, path);
    if (!is_absent) return status;
    if (err) err->status = DCP_ERR_NOT_FOUND;
    return DCP_ERR_NOT_FOUND;
}

int io_stat(int folder, const char *path, struct stat *st, dcp_error *err) {
    struct stat own;
    if (!fstatat(folder, path, st ? st : &own, AT_SYMLINK_NOFOLLOW)) return DCP_OK;
    return fail_look("cannot look at", path, err);
}

int io_entry_is_folder(DIR *of, const char *path, const struct dirent *e, bool *is,
                       dcp_error *err) {
    struct stat st;
    *is = e->d_type == DT_DIR;
    if (e->d_type != DT_UNKNOWN) return DCP_OK;
    const int status = io_stat(dirfd(of), e->d_name, &st, err);
    *is = !status && S_ISDIR(st.st_mode);
    return status == DCP_ERR_NOT_FOUND ? DCP_OK : core_fail_path(status, path, err);
}

static bool is_dot(const char *name) { return strcmp(name, ".") == 0 || strcmp(name, "..") == 0; }

int io_visit_entries(int at, const char *name, const char *path, io_entry_fn fn, void *ctx,
                     dcp_error *err) {
    const int follows = at == AT_FDCWD ? 0 : O_NOFOLLOW;
    const int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | follows);
    if (fd < 0) return fail_look("cannot open", path, err);
    DIR *of = fdopendir(fd);
    int status = of ? DCP_OK : core_fail_errno(err, "cannot list", path);
    if (!of) close(fd);
    while (!status) {
        errno = 0;
        const struct dirent *e = readdir(of);
        if (!e && errno) status = core_fail_errno(err, "cannot list", path);
        if (!e) break;
        if (!is_dot(e->d_name)) status = fn(ctx, of, e, err);
    }
    if (of) closedir(of);
    return status;
}
