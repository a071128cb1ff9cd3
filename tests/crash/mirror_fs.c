/* A FUSE file system that shows a folder at another place, with its own answers where file systems
 * differ:
 *
 *   mirror_fs FOLDER MOUNTPOINT CONTROL WORDS
 *     no_locks   every lock call is answered with ENOLCK
 *     granted    every lock is granted, even if another process has it
 *     no_flags   renames with flags (RENAME_EXCHANGE, RENAME_NOREPLACE) are answered with EINVAL
 *     no_direct  files cannot be opened with O_DIRECT
 *
 * CONTROL is a folder elsewhere. `ready` exists once the file system is mounted; `locks` and
 * `renames` get a byte for each call that was answered in this way. Ends when it is unmounted.
 * Nothing is cached, so two of them that show one folder behave like two hosts. */
#define FUSE_USE_VERSION 31

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static struct {
    int folder, control;
    int no_locks, granted, no_flags, no_direct;
} mirror;

static int answer(int result) { return result < 0 ? -errno : result; }

/* A path below the folder, for the calls that end in `at`. */
static const char *below(const char *path) { return path[1] ? path + 1 : "."; }

static void note(const char *name) {
    int fd = openat(mirror.control, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (fd < 0 || write(fd, "x", 1) != 1) abort();
    close(fd);
}

static void *mirror_init(struct fuse_conn_info *conn, struct fuse_config *config) {
    (void)conn;
    config->use_ino = 1;
    config->hard_remove = config->nullpath_ok = 1; /* an open file that was removed has no name */
    config->entry_timeout = config->attr_timeout = config->negative_timeout = 0;
    note("ready");
    return NULL;
}

static int mirror_getattr(const char *path, struct stat *st, struct fuse_file_info *file) {
    return answer(file ? fstat((int)file->fh, st)
                       : fstatat(mirror.folder, below(path), st, AT_SYMLINK_NOFOLLOW));
}

static int mirror_readlink(const char *path, char *out, size_t size) {
    ssize_t n = readlinkat(mirror.folder, below(path), out, size - 1);
    if (n < 0) return -errno;
    out[n] = '\0';
    return 0;
}

static int mirror_mkdir(const char *path, mode_t mode) {
    return answer(mkdirat(mirror.folder, below(path), mode));
}

static int mirror_unlink(const char *path) {
    return answer(unlinkat(mirror.folder, below(path), 0));
}

static int mirror_rmdir(const char *path) {
    return answer(unlinkat(mirror.folder, below(path), AT_REMOVEDIR));
}

static int mirror_symlink(const char *to, const char *path) {
    return answer(symlinkat(to, mirror.folder, below(path)));
}

static int mirror_rename(const char *from, const char *to, unsigned flags) {
    if (flags && mirror.no_flags) {
        note("renames");
        return -EINVAL;
    }
    return answer(renameat2(mirror.folder, below(from), mirror.folder, below(to), flags));
}

static int mirror_link(const char *from, const char *to) {
    return answer(linkat(mirror.folder, below(from), mirror.folder, below(to), 0));
}

static int mirror_chmod(const char *path, mode_t mode, struct fuse_file_info *file) {
    return answer(file ? fchmod((int)file->fh, mode)
                       : fchmodat(mirror.folder, below(path), mode, 0));
}

static int mirror_chown(const char *path, uid_t uid, gid_t gid, struct fuse_file_info *file) {
    return answer(file ? fchown((int)file->fh, uid, gid)
                       : fchownat(mirror.folder, below(path), uid, gid, AT_SYMLINK_NOFOLLOW));
}

static int mirror_utimens(const char *path, const struct timespec times[2],
                          struct fuse_file_info *file) {
    return answer(file ? futimens((int)file->fh, times)
                       : utimensat(mirror.folder, below(path), times, AT_SYMLINK_NOFOLLOW));
}

static int open_file(const char *path, int flags, mode_t mode, struct fuse_file_info *file) {
    if (flags & O_DIRECT && mirror.no_direct) return -EINVAL;
    /* the kernel's buffers need not be aligned */
    int fd = openat(mirror.folder, below(path), (flags & ~O_DIRECT) | O_CLOEXEC, mode);
    if (fd < 0) return -errno;
    file->fh = (uint64_t)fd;
    return 0;
}

static int mirror_create(const char *path, mode_t mode, struct fuse_file_info *file) {
    return open_file(path, file->flags | O_CREAT, mode, file);
}

static int mirror_open(const char *path, struct fuse_file_info *file) {
    return open_file(path, file->flags, 0, file);
}

static int mirror_truncate(const char *path, off_t bytes, struct fuse_file_info *file) {
    if (file) return answer(ftruncate((int)file->fh, bytes));
    int fd = openat(mirror.folder, below(path), O_WRONLY | O_CLOEXEC);
    if (fd < 0) return -errno;
    int result = answer(ftruncate(fd, bytes));
    close(fd);
    return result;
}

static int mirror_read(const char *path, char *data, size_t bytes, off_t at,
                       struct fuse_file_info *file) {
    (void)path;
    return answer((int)pread((int)file->fh, data, bytes, at));
}

static int mirror_write(const char *path, const char *data, size_t bytes, off_t at,
                        struct fuse_file_info *file) {
    (void)path;
    return answer((int)pwrite((int)file->fh, data, bytes, at));
}

static int mirror_statfs(const char *path, struct statvfs *st) {
    (void)path;
    return answer(fstatvfs(mirror.folder, st));
}

static int mirror_release(const char *path, struct fuse_file_info *file) {
    (void)path;
    return answer(close((int)file->fh));
}

static int mirror_fsync(const char *path, int data_only, struct fuse_file_info *file) {
    (void)path;
    return answer(data_only ? fdatasync((int)file->fh) : fsync((int)file->fh));
}

static int mirror_fallocate(const char *path, int mode, off_t at, off_t bytes,
                            struct fuse_file_info *file) {
    (void)path;
    return answer(fallocate((int)file->fh, mode, at, bytes));
}

static int mirror_lock(const char *path, struct fuse_file_info *file, int command,
                       struct flock *lock) {
    (void)path, (void)file;
    note("locks");
    if (mirror.no_locks) return -ENOLCK;
    if (command == F_GETLK) lock->l_type = F_UNLCK;
    return 0;
}

static int mirror_flock(const char *path, struct fuse_file_info *file, int operation) {
    (void)path, (void)file, (void)operation;
    note("locks");
    return mirror.no_locks ? -ENOLCK : 0;
}

static int mirror_readdir(const char *path, void *buffer, fuse_fill_dir_t fill, off_t at,
                          struct fuse_file_info *file, enum fuse_readdir_flags flags) {
    (void)path, (void)at, (void)flags;
    int fd = openat((int)file->fh, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *stream = fd < 0 ? NULL : fdopendir(fd);
    if (!stream) return -errno;
    for (struct dirent *entry; (entry = readdir(stream));) {
        struct stat st = {.st_ino = entry->d_ino, .st_mode = (mode_t)DTTOIF(entry->d_type)};
        fill(buffer, entry->d_name, &st, 0, 0);
    }
    closedir(stream);
    return 0;
}

static const struct fuse_operations operations = {
    .init = mirror_init,
    .getattr = mirror_getattr,
    .readlink = mirror_readlink,
    .mkdir = mirror_mkdir,
    .unlink = mirror_unlink,
    .rmdir = mirror_rmdir,
    .symlink = mirror_symlink,
    .rename = mirror_rename,
    .link = mirror_link,
    .chmod = mirror_chmod,
    .chown = mirror_chown,
    .utimens = mirror_utimens,
    .create = mirror_create,
    .open = mirror_open,
    .opendir = mirror_open,
    .truncate = mirror_truncate,
    .read = mirror_read,
    .write = mirror_write,
    .statfs = mirror_statfs,
    .release = mirror_release,
    .releasedir = mirror_release,
    .fsync = mirror_fsync,
    .fsyncdir = mirror_fsync,
    .fallocate = mirror_fallocate,
    .lock = mirror_lock,
    .flock = mirror_flock,
    .readdir = mirror_readdir,
};

static int take_word(const char *word) {
    if (!strcmp(word, "no_locks")) return mirror.no_locks = 1;
    if (!strcmp(word, "granted")) return mirror.granted = 1;
    if (!strcmp(word, "no_flags")) return mirror.no_flags = 1;
    if (!strcmp(word, "no_direct")) return mirror.no_direct = 1;
    fprintf(stderr, "mirror_fs: unknown word %s\n", word);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    for (int i = 4; i < argc; i++)
        if (!take_word(argv[i])) return 2;
    if (mirror.no_locks == mirror.granted) {
        fprintf(stderr, "mirror_fs: one of no_locks and granted\n");
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* a killed test leaves no mount behind */
    mirror.folder = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    mirror.control = open(argv[3], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (mirror.folder < 0 || mirror.control < 0) {
        perror("mirror_fs");
        return 2;
    }
    umask(0);
    char *fuse[] = {argv[0],      (char *)"-f",
                    (char *)"-o", (char *)"fsname=mirror_fs,default_permissions",
                    argv[2],      NULL};
    return fuse_main(5, fuse, &operations, NULL);
}
