/* Sharing extents, and reserving what is not shared. */
#include "io/clone.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

#include "core/file_limit.h"

int io_clone(int from, int to, uint64_t offset, uint64_t bytes) {
    struct file_clone_range range = {
        .src_fd = from, .src_offset = offset, .src_length = bytes, .dest_offset = offset};
    int failed;
    do failed = ioctl(to, FICLONERANGE, &range);
    while (failed && errno == EINTR);
    return failed ? -1 : 0;
}

int io_clone_is_refused(int error) {
    return error == EOPNOTSUPP || error == EXDEV || error == EINVAL || error == ENOTTY ||
           error == ENOSYS || error == EPERM;
}

int io_reserve_range(int fd, uint64_t offset, uint64_t bytes) {
    int failed;
    if (core_file_limit_check(offset + bytes)) return -1;
    do failed = fallocate(fd, 0, (off_t)offset, (off_t)bytes);
    while (failed && errno == EINTR);
    return failed && errno != EOPNOTSUPP && errno != ENOSYS ? -1 : 0;
}
