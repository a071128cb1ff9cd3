/* The order matters: first the bytes are made durable, then the name changes, then the change is
 * made durable. */
#include "io/publish.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Returns true for errors of file systems on which a folder requires no sync. */
static bool is_needless(int code) { return code == EINVAL || code == EOPNOTSUPP || code == ENOSYS; }

int io_publish_sync(int folder_fd) { return fsync(folder_fd) && !is_needless(errno) ? -1 : 0; }

int io_publish_sync_parent(const char *path) {
    char parent[PATH_MAX] = ".";
    const char *slash = strrchr(path, '/');
    if (slash) snprintf(parent, sizeof parent, "%.*s", (int)(slash - path) + 1, path);
    int fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return -1;
    int result = io_publish_sync(fd), code = errno;
    close(fd);
    return errno = code, result;
}

/* Checks that the name belongs to the open file: another writer may have made a file of that
 * name. */
static bool is_name_of(int fd, const char *path) {
    struct stat open_one, named;
    if (fstat(fd, &open_one) || lstat(path, &named)) return false;
    return open_one.st_dev == named.st_dev && open_one.st_ino == named.st_ino;
}

int io_publish_file(int fd, const char *tmp, const char *path) {
    if (fsync(fd)) return -1;
    if (!is_name_of(fd, tmp)) return errno = EBUSY, -1;
    if (rename(tmp, path)) return -1;
    return io_publish_sync_parent(path) ? 1 : 0;
}

int io_publish_replace(int dir_fd, const char *tmp, const char *name, const char *aside) {
    if (renameat2(dir_fd, tmp, dir_fd, name, RENAME_EXCHANGE) == 0) return 1;
    if (errno != EINVAL && errno != ENOSYS) return -1;
    if (renameat(dir_fd, name, dir_fd, aside)) return -1;
    if (renameat(dir_fd, tmp, dir_fd, name) == 0) return 0;
    int code = errno;
    renameat(dir_fd, aside, dir_fd, name);
    return errno = code, -1;
}
