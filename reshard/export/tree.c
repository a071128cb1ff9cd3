/* Temporary folders and their publication.
 *
 * Whatever stands under the final name is complete: what was there changes its name with the new
 * folder and is removed only then. */
#include "export/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "programs/program.h"

#define OLD ".old"
enum { OPEN_FOLDERS = 16 };

/* The folder, locked for as long as this process lives; -1 where another process has it. */
static int lock_folder(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

/* What lies beside `path` under a temporary name with this end; globfree. */
static int find_beside(const char *path, const char *end, glob_t *found) {
    char pattern[2 * PATH_MAX + 16], *to = pattern;
    for (; *path; *to++ = *path++)
        if (strchr("*?[\\", *path)) *to++ = '\\';
    snprintf(to, (size_t)(pattern + sizeof pattern - to), ".tmp-??????%s", end);
    return glob(pattern, GLOB_NOSORT, NULL, found);
}

/* Left by processes that were killed: those that live hold a lock on theirs. */
static void remove_leftovers(const char *path) {
    glob_t found;
    if (find_beside(path, "", &found)) return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        int fd = lock_folder(found.gl_pathv[i]);
        if (fd < 0) continue;
        tree_remove(found.gl_pathv[i]);
        close(fd);
    }
    globfree(&found);
}

/* Whether a living process is about to publish what is to replace `old`. */
static int is_being_replaced(const char *old) {
    char tmp[PATH_MAX];
    snprintf(tmp, sizeof tmp, "%.*s", (int)(strlen(old) - strlen(OLD)), old);
    if (access(tmp, F_OK)) return 0;
    int fd = lock_folder(tmp);
    if (fd >= 0) close(fd);
    return fd < 0;
}

int tree_holds_model(const char *path) {
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json"};
    char file[PATH_MAX + 40];
    int found = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(file, sizeof file, "%s/%s", path, names[i]);
        found |= access(file, F_OK) == 0;
    }
    return found;
}

/* 0 where it is done: never onto something. A folder goes onto an empty one at most where the file
 * system knows no such flag. */
static int put_back(const char *old, const char *path) {
    if (renameat2(AT_FDCWD, old, AT_FDCWD, path, RENAME_NOREPLACE) == 0) return 0;
    if (errno != EINVAL && errno != ENOSYS) return -1;
    return access(path, F_OK) ? rename(old, path) : -1;
}

void tree_recover(const char *path) {
    glob_t found;
    if (find_beside(path, OLD, &found)) return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *old = found.gl_pathv[i];
        if (is_being_replaced(old)) continue;
        if (!tree_holds_model(old))
            rmdir(old); /* an empty folder was replaced; what holds other things is not ours */
        else if (put_back(old, path) == 0)
            program_note("%s: put back what a killed export was about to replace", path);
        else if (access(path, F_OK) == 0)
            tree_remove(old);
    }
    globfree(&found);
}

int tree_make_tmp(const char *path, char *tmp) {
    if (snprintf(tmp, PATH_MAX, "%s.tmp-XXXXXX", path) >= PATH_MAX - 16)
        return program_fail(PROGRAM_USAGE, "%.200s...: the path is too long", path);
    remove_leftovers(path);
    struct stat st;
    do { /* again where another process took it for a left-over, before it was locked */
        strcpy(tmp + strlen(path), ".tmp-XXXXXX");
        if (!mkdtemp(tmp)) return program_fail_errno("cannot make a folder for", path);
        lock_folder(tmp);
    } while (stat(tmp, &st));
    mode_t mask = umask(0);
    umask(mask);
    if (chmod(tmp, 0777 & ~mask)) return program_fail_errno("cannot open to others", tmp);
    return 0;
}

static int sync_one(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return program_fail_errno("cannot open", path);
    int status = fsync(fd) ? program_fail_errno("cannot sync", path) : 0;
    close(fd);
    return status;
}

static int sync_visit(const char *path, const struct stat *st, int type, struct FTW *where) {
    (void)st;
    (void)where;
    return type == FTW_F || type == FTW_DP ? sync_one(path) : 0;
}

int tree_sync(const char *path) {
    int status = nftw(path, sync_visit, OPEN_FOLDERS, FTW_PHYS | FTW_DEPTH);
    return status < 0 ? program_fail_errno("cannot walk", path) : status;
}

static int remove_visit(const char *path, const struct stat *st, int type, struct FTW *where) {
    (void)st;
    (void)type;
    (void)where;
    remove(path);
    return 0;
}

void tree_remove(const char *path) { nftw(path, remove_visit, OPEN_FOLDERS, FTW_PHYS | FTW_DEPTH); }

static int sync_parent(const char *path) {
    char parent[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (slash == path)
        strcpy(parent, "/");
    else
        snprintf(parent, sizeof parent, "%.*s", slash ? (int)(slash - path) : 1,
                 slash ? path : ".");
    return sync_one(parent);
}

/* rename would let a file take another's place without a word. */
static int rename_to_free(const char *tmp, const char *path) {
    if (renameat2(AT_FDCWD, tmp, AT_FDCWD, path, RENAME_NOREPLACE) == 0) return 0;
    if (errno != EINVAL && errno != ENOSYS) return -1;
    return link(tmp, path) || unlink(tmp) ? -1 : 0; /* a file system without the flag */
}

/* For file systems that can't exchange two names: between the two renames neither is there. */
static int replace_in_two(const char *tmp, const char *path) {
    char old[PATH_MAX + 8];
    snprintf(old, sizeof old, "%s" OLD, tmp);
    if (rename(path, old)) return program_fail_errno("cannot replace", path);
    if (rename(tmp, path)) {
        int status = program_fail_errno("cannot rename to", path);
        if (rename(old, path)) tree_remove(old); /* another program's is there */
        return status;
    }
    int status = sync_parent(path);
    tree_remove(old);
    return status;
}

/* A folder takes the place of what is there. */
static int replace_folder(const char *tmp, const char *path) {
    if (renameat2(AT_FDCWD, tmp, AT_FDCWD, path, RENAME_EXCHANGE) == 0) {
        int status = sync_parent(path);
        tree_remove(tmp);
        return status;
    }
    if (errno == EINVAL || errno == ENOSYS) return replace_in_two(tmp, path);
    return program_fail_errno("cannot replace", path);
}

int tree_publish(const char *tmp, const char *path, int replace) {
    struct stat st;
    const int folder = stat(tmp, &st) == 0 && S_ISDIR(st.st_mode);
    if (folder && replace && access(path, F_OK) == 0) return replace_folder(tmp, path);
    if (folder || replace ? rename(tmp, path) : rename_to_free(tmp, path))
        return program_fail_errno("cannot rename to", path);
    return sync_parent(path);
}
