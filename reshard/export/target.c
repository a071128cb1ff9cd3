/* At every moment, any entry that has the final name is complete: the new folder exchanges names
 * with an earlier export, which is removed only after the exchange. */
#include "export/target.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/launch.h"
#include "export/contents.h"
#include "io/publish.h"
#include "programs/model_files.h"
#include "programs/program.h"

#define OLD ".old"
enum { OPEN_FOLDERS = 16 };

/* Opens the folder and locks it until this process ends. Returns -1 if another process has locked
 * it. */
static int lock_folder(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
    if (fd >= 0) close(fd);
    return -1;
}

/* Finds the temporary names beside `path` that end in `end`. Returns 0 on success; release *found
 * with globfree. */
static int find_beside(const char *path, const char *end, glob_t *found) {
    char pattern[2 * PATH_MAX + 16], *to = pattern;
    for (; *path; *to++ = *path++)
        if (strchr("*?[\\", *path)) *to++ = '\\';
    snprintf(to, (size_t)(pattern + sizeof pattern - to), ".tmp-??????%s", end);
    return glob(pattern, GLOB_NOSORT, NULL, found);
}

/* Removes the temporary folders of killed processes. They are not locked, whereas a running process
 * locks its own. */
static void remove_leftovers(const char *path) {
    glob_t found;
    if (find_beside(path, "", &found)) return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        int fd = lock_folder(found.gl_pathv[i]);
        if (fd < 0) continue;
        export_target_remove(found.gl_pathv[i]);
        close(fd);
    }
    globfree(&found);
}

/* Returns true if a running process is about to publish the replacement of `old`. */
static bool is_being_replaced(const char *old) {
    char tmp[PATH_MAX];
    snprintf(tmp, sizeof tmp, "%.*s", (int)(strlen(old) - strlen(OLD)), old);
    if (access(tmp, F_OK)) return false;
    int fd = lock_folder(tmp);
    if (fd >= 0) close(fd);
    return fd < 0;
}

static bool holds_model(const char *path) {
    static const char *const names[] = {"model.safetensors", "model.safetensors.index.json"};
    char file[PATH_MAX + 40];
    bool found = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(file, sizeof file, "%s/%s", path, names[i]);
        found |= access(file, F_OK) == 0;
    }
    return found;
}

/* Renames, but not onto an existing entry. On a file system without RENAME_NOREPLACE, a folder may
 * replace an empty folder. Returns 0, or -1 with errno. */
static int rename_to_free(const char *from, const char *to, bool is_folder) {
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) return 0;
    if (errno != EINVAL && errno != ENOSYS) return -1;
    if (is_folder) return access(to, F_OK) ? rename(from, to) : -1;
    return link(from, to) || unlink(from) ? -1 : 0;
}

void export_target_recover(const char *path) {
    glob_t found;
    if (find_beside(path, OLD, &found)) return;
    for (size_t i = 0; i < found.gl_pathc; i++) {
        const char *old = found.gl_pathv[i];
        if (is_being_replaced(old)) continue;
        if (!holds_model(old))
            rmdir(old); /* removes an empty folder; any contents of it are not ours */
        else if (rename_to_free(old, path, true) == 0)
            program_note("%s: put back what a killed export was about to replace", path);
        else if (access(path, F_OK) == 0)
            export_target_remove(old);
    }
    globfree(&found);
}

int export_target_make_tmp(const char *path, char *tmp) {
    if (snprintf(tmp, PATH_MAX, "%s.tmp-XXXXXX", path) >= PATH_MAX - 16)
        return program_refuse("%.200s...: the path is too long", path);
    remove_leftovers(path);
    struct stat st;
    do { /* repeats if another process removed it as a leftover before it was locked */
        strcpy(tmp + strlen(path), ".tmp-XXXXXX");
        if (!mkdtemp(tmp)) return program_fail_errno("cannot make a folder for", path);
        lock_folder(tmp);
    } while (stat(tmp, &st));
    mode_t mask = umask(0);
    umask(mask);
    if (chmod(tmp, 0777 & ~mask)) return program_fail_errno("cannot set the permissions of", tmp);
    return 0;
}

static int sync_one(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return program_fail_errno("cannot open", path);
    int status = io_publish_sync(fd) ? program_fail_errno("cannot sync", path) : 0;
    close(fd);
    return status;
}

static int sync_visit(const char *path, const struct stat *st, int type, struct FTW *where) {
    (void)st;
    (void)where;
    return type == FTW_F || type == FTW_DP ? sync_one(path) : 0;
}

/* Makes every file and folder below `path` durable, and `path` itself. */
static int sync_below(const char *path) {
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

void export_target_remove(const char *path) {
    nftw(path, remove_visit, OPEN_FOLDERS, FTW_PHYS | FTW_DEPTH);
}

static int sync_parent(const char *path) {
    if (!io_publish_sync_parent(path)) return 0;
    return program_fail_errno("the export is complete, but may disappear after a loss of power: "
                              "cannot sync the folder of",
                              path);
}

/* Puts `tmp` in place of the folder at `path`, and removes the old folder once the new one is
 * durable. */
static int replace_folder(const char *tmp, const char *path) {
    char aside[PATH_MAX + 8];
    snprintf(aside, sizeof aside, "%s" OLD, tmp);
    int exchanged = io_publish_replace(AT_FDCWD, tmp, path, aside);
    if (exchanged < 0) {
        int status = program_fail_errno("cannot replace", path);
        if (access(path, F_OK) == 0) export_target_remove(aside); /* created meanwhile */
        return status;
    }
    int status = sync_parent(path);
    if (!status) export_target_remove(exchanged ? tmp : aside);
    return status;
}

int export_target_publish(const char *tmp, const char *file, const char *path, bool replace) {
    char from[PATH_MAX + 80];
    const bool folder = file == NULL;
    snprintf(from, sizeof from, "%s%s%s", tmp, folder ? "" : "/", folder ? "" : file);
    int status = sync_below(tmp); /* may take a long time */
    if (!status) status = launch_check_stopped();
    if (status) return status;
    if (folder && replace && access(path, F_OK) == 0) return replace_folder(tmp, path);
    if (folder || replace ? rename(from, path) : rename_to_free(from, path, false))
        return program_fail_errno("cannot rename to", path);
    return sync_parent(path);
}

static bool is_empty_folder(const char *path) {
    int entries = 0;
    DIR *dir = opendir(path);
    if (!dir) return false;
    errno = 0;
    while (entries <= 2 && readdir(dir)) entries++;
    const bool is_empty = entries <= 2 && !errno;
    closedir(dir);
    return is_empty;
}

/* Returns true if a failed call's errno means that there is no such entry, or no such folder. */
static bool is_absent(int error) {
    return error == ENOENT || error == ENOTDIR || error == ENAMETOOLONG;
}

/* --force removes the old entry OUT, so that entry must be an export of this program. */
int export_target_check(const char *out, bool hdf5, bool replace) {
    struct stat st;
    if (lstat(out, &st)) return is_absent(errno) ? 0 : program_fail_errno("cannot look at", out);
    if (S_ISLNK(st.st_mode))
        return program_refuse("%s: is a symbolic link; give the path that it leads to", out);
    if (!hdf5 && is_empty_folder(out)) return 0;
    if (hdf5 == S_ISDIR(st.st_mode))
        return program_refuse("%s: exists and is not a %s", out, hdf5 ? "file" : "folder");
    if (!replace) return program_refuse("%s: already exists; --force replaces it", out);
    if (hdf5 && !export_hdf5_file_is_ours(out))
        return program_refuse(
            "%s: is not an earlier export to HDF5; remove it yourself or choose another name", out);
    if (!hdf5 && !holds_model(out))
        return program_refuse("%s: holds no model.safetensors, so it is not an earlier export; "
                              "remove it yourself or choose another folder",
                              out);
    return 0;
}

/* Returns true if an export, of this checkpoint or of another one, may have made the entry
 * `name`. */
static bool may_be_exported(const dcp_checkpoint *ckpt, const char *name) {
    size_t length = strlen(name);
    for (size_t i = 0; i < dcp_checkpoint_tensors(ckpt); i++) {
        const char *path = dcp_checkpoint_tensor(ckpt, i)->path;
        if (strncmp(path, "/files/", 7) || strncmp(path + 7, name, length)) continue;
        if (!path[7 + length] || path[7 + length] == '/') return true;
    }
    return model_files_is_exported(name);
}

/* Checks that a folder to be replaced contains only files that an export may have made. */
static int check_entries(const dcp_checkpoint *ckpt, const char *out) {
    int status = 0;
    struct dirent *e;
    DIR *dir = opendir(out);
    if (!dir) return is_absent(errno) ? 0 : program_fail_errno("cannot look into", out);
    while (!status && (errno = 0, e = readdir(dir)))
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && !may_be_exported(ckpt, e->d_name))
            status =
                program_refuse("%s: holds %s, which is not part of an export; move it away, or "
                               "choose another folder",
                               out, e->d_name);
    if (!status && errno) status = program_fail_errno("cannot look into", out);
    closedir(dir);
    return status;
}

/* Checks that OUT neither lies in a step nor looks like a step. */
static int check_place(const dcp_checkpoint *ckpt, const char *out) {
    char step[PATH_MAX], parent[PATH_MAX], copy[PATH_MAX], name[PATH_MAX];
    snprintf(copy, sizeof copy, "%s", out);
    snprintf(name, sizeof name, "%s", out);
    if (!realpath(dcp_checkpoint_path(ckpt), step) || !realpath(dirname(copy), parent)) return 0;
    size_t length = strlen(step);
    bool in_step = strncmp(parent, step, length) == 0 && (!parent[length] || parent[length] == '/');
    bool like_step = strcmp(dirname(step), parent) == 0 && !strncmp(basename(name), "step-", 5);
    if (!in_step && !like_step) return 0;
    return program_refuse("%s: is in the checkpoint itself; choose a path outside of it", out);
}

int export_target_check_with(const dcp_checkpoint *ckpt, const char *out) {
    int status = check_place(ckpt, out);
    return status ? status : check_entries(ckpt, out);
}
