#include "store/directory.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/comm.h"
#include "core/fail.h"
#include "io/file.h"
#include "io/publish.h"
#include "io/striping.h"
#include "store/lock.h"

void store_writer_folder_entry(const dcp_store *store, const char *entry,
                               char path[STORE_WRITER_FOLDER_PATH]) {
    snprintf(path, STORE_WRITER_FOLDER_PATH, STORE_WRITER_FOLDER "%s/%s", store->writer, entry);
}

void store_writer_folder_make(const dcp_store *store) {
    char path[STORE_WRITER_FOLDER_PATH];
    store_writer_folder_entry(store, "", path);
    mkdirat(store->dir_fd, path, 0777);
}

int store_writer_folder_ready(const dcp_store *store, dcp_error *err) {
    char path[STORE_WRITER_FOLDER_PATH];
    store_writer_folder_entry(store, "", path);
    if (mkdirat(store->dir_fd, path, 0777) != 0 && errno != EEXIST)
        return store_fail_errno(store, "cannot make directory", path, err);
    return store_lock_check(store->lock, err);
}

void store_writer_folder_drop(const dcp_store *store) {
    char path[STORE_WRITER_FOLDER_PATH];
    store_writer_folder_entry(store, "spare", path);
    store_directory_remove(store->dir_fd, path);
    store_writer_folder_entry(store, "", path);
    unlinkat(store->dir_fd, path, AT_REMOVEDIR); /* remains if it contains a step */
}

/* A store's directory: creating it, and removing its entries.
 *
 * The contents of the directory are not trusted. Removal opens each folder relative to the one that
 * contains it, and unlinks symbolic links instead of following them, so it touches nothing outside
 * the directory. */

#define DEEPEST 16       /* a step's folder is flat; a deeper tree is not from a store */
#define LONGEST_BASE 200 /* leaves space in a name for a prefix and a number */
#define ROOM 256         /* for a step's folder and the longest name of a file in it */

bool store_directory_has(int dir_fd, const char *name) {
    struct stat st;
    return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

void store_directory_free_name(int dir_fd, const char *prefix, const char *base, char *name) {
    snprintf(name, NAME_MAX + 1, "%s%.*s", prefix, LONGEST_BASE, base);
    for (unsigned k = 1; store_directory_has(dir_fd, name); k++)
        snprintf(name, NAME_MAX + 1, "%s%.*s.%u", prefix, LONGEST_BASE, base, k);
}

static bool is_dot(const char *name) { return strcmp(name, ".") == 0 || strcmp(name, "..") == 0; }

static int remove_below(int parent_fd, const char *name, int depth);

static int remove_entries(DIR *folder, int depth) {
    struct dirent *entry;
    while ((errno = 0, entry = readdir(folder)))
        if (!is_dot(entry->d_name) && remove_below(dirfd(folder), entry->d_name, depth) != 0)
            return -1;
    return errno ? -1 : 0;
}

static int remove_below(int parent_fd, const char *name, int depth) {
    if (unlinkat(parent_fd, name, 0) == 0 || errno == ENOENT) return 0;
    if (errno != EISDIR && errno != EPERM) return -1;
    if (depth == DEEPEST) return errno = ENOTEMPTY, -1;
    int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT ? 0 : -1;
    DIR *folder = fdopendir(fd);
    if (!folder) return close(fd), errno = ENOMEM, -1;
    int result = remove_entries(folder, depth + 1), code = errno;
    closedir(folder);
    if (result != 0) return errno = code, -1;
    return unlinkat(parent_fd, name, AT_REMOVEDIR) && errno != ENOENT ? -1 : 0;
}

int store_directory_remove(int dir_fd, const char *name) { return remove_below(dir_fd, name, 0); }

/* Returns 0 if `path` is a directory; -1 with errno if it is missing, is a file, or could not be
 * looked up. */
static int check_directory(const char *path) {
    struct stat st;
    if (stat(path, &st) != 0) return -1;
    return S_ISDIR(st.st_mode) ? 0 : (errno = ENOTDIR, -1);
}

/* Creates the last component of `path`, and makes its entry in the parent durable. Returns 0, or -1
 * with errno. */
static int make_component(char *path) {
    if (check_directory(path) == 0) return 0;
    if (errno != ENOENT) return -1;
    if (mkdir(path, 0777) == 0) return io_publish_sync_parent(path);
    if (errno != EEXIST) return -1;
    /* another rank of the node may have made it */
    return check_directory(path) == 0 ? 0 : (errno = errno == ENOENT ? EEXIST : errno, -1);
}

static bool is_dangling(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0 && S_ISLNK(st.st_mode) && stat(path, &st) != 0 && errno == ENOENT;
}

static int fail_component(const char *path, dcp_error *err) {
    const int code = errno;
    if (is_dangling(path))
        return core_fail_path(
            core_fail(
                err, DCP_ERR_IO,
                "cannot make directory %s: it is a symbolic link whose target does not exist; "
                "make the target, or remove the link",
                path),
            path, err);
    errno = code;
    return core_fail_errno(err, "cannot make directory", path);
}

static int make_with_parents(const char *dir, dcp_error *err) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s", dir);
    for (size_t end = strlen(path); end > 1 && path[end - 1] == '/'; end--) path[end - 1] = '\0';
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (make_component(path) != 0) return fail_component(path, err);
        *slash = '/';
    }
    if (make_component(path) != 0) return fail_component(path, err);
    return DCP_OK;
}

int store_directory_open(const char *dir, int *dir_fd, char *absolute, dcp_error *err) {
    if (!*dir || strlen(dir) >= PATH_MAX - ROOM)
        return core_fail(err, DCP_ERR_ARG,
                         "the checkpoint directory's path has %zu bytes: from 1 to %d are possible",
                         strlen(dir), PATH_MAX - ROOM - 1);
    int status = make_with_parents(dir, err);
    if (status != DCP_OK) return status;
    char *resolved = realpath(dir, NULL);
    if (!resolved) return core_fail_errno(err, "cannot resolve", dir);
    if (strlen(resolved) >= PATH_MAX - ROOM) {
        status = core_fail(err, DCP_ERR_ARG, "the checkpoint directory's path is too long: %s",
                           resolved);
        goto free_resolved;
    }
    int fd = open(resolved, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        status = core_fail_errno(err, "cannot open directory", resolved);
        goto free_resolved;
    }
    memcpy(absolute, resolved, strlen(resolved) + 1);
    *dir_fd = fd;
free_resolved:
    free(resolved);
    return status;
}

int store_directory_open_existing(const char *dir, int *dir_fd, dcp_error *err) {
    *dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*dir_fd >= 0) return DCP_OK;
    if (errno != ENOENT) return core_fail_errno(err, "cannot open directory", dir);
    return is_dangling(dir) ? fail_component(dir, err) : DCP_OK;
}

#define SERVERS_A_HOST 4 /* enough object servers per host to keep its network busy */

static io_striping asked_of(const dcp_store *store) {
    return (io_striping){store->options.stripe_count, store->options.stripe_bytes};
}

int store_striped_check(const dcp_store *store, dcp_error *err) {
    const io_striping asked = asked_of(store);
    return io_striping_check(&asked, err);
}

void store_striped_log_ignored(const dcp_store *store) {
    const io_striping asked = asked_of(store);
    if (store->comm->rank == 0 && io_striping_is_requested(&asked) &&
        !io_striping_is_possible(store->dir))
        store_log(store, DCP_LOG_INFO,
                  "%s: stripe_count and stripe_bytes are ignored: not on a Lustre file system",
                  store->dir);
}

int store_striped_create(dcp_store *store, const char *path, uint64_t bytes, int hosts,
                         dcp_error *err) {
    const io_striping asked = asked_of(store);
    const uint64_t writers = hosts ? (uint64_t)hosts * SERVERS_A_HOST : 1;
    io_striping layout;
    int refused = 0;
    if (!io_striping_is_possible(store->dir) ||
        !io_striping_choose(&asked, store->dir, bytes, writers, &layout))
        return io_create(path, bytes, err);
    int status = io_striping_create(path, bytes, &layout, &refused, err);
    if (refused && !store->logged_striping)
        store_log(store, DCP_LOG_WARNING,
                  "%s: Lustre refuses %lld stripes of %llu bytes: %s; files have the directory's "
                  "layout",
                  path, (long long)layout.count, (unsigned long long)layout.bytes,
                  strerror(refused));
    store->logged_striping |= refused != 0;
    return status;
}
