#include "launcher/agent/folders.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* A file that only dcp-run makes. It is made after the lock is taken, and is removed last, so a
 * folder that contains it is locked, or the folder's owner is dead. */
#define MARK ".dcp-run"
#define PREFIX "dcp-run."

enum { MOST_OPEN = 64 }; /* the largest number of descriptors that a walk uses */

typedef struct folder_place {
    const char *variables[5]; /* the first that is set names the place */
    const char *usual;        /* the place if none is set */
    const char *tell[2]; /* the variables that give Open MPI 4 and Open MPI 5 the folder; both are
                            also in `variables` */
    const char *also[2]; /* variables that are set to the folder as well, unless the user has set
                            them */
    bool optional;
} folder_place;

static const folder_place places[LAUNCHER_FOLDERS] = {
    {.variables = {"OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_tmpdir_base", "TMPDIR", "TEMP",
                   "TMP"},
     .usual = "/tmp",
     .tell = {"OMPI_MCA_orte_tmpdir_base", "PRTE_MCA_prte_tmpdir_base"}},
    {.variables = {"OMPI_MCA_btl_vader_backing_directory", "OMPI_MCA_btl_sm_backing_directory"},
     .usual = "/dev/shm",
     .optional = true,
     .tell = {"OMPI_MCA_btl_vader_backing_directory", "OMPI_MCA_btl_sm_backing_directory"},
     .also = {"OMPI_MCA_osc_sm_backing_directory", "OMPI_MCA_osc_rdma_backing_directory"}},
};

static const char *base_of(const folder_place *place) {
    for (size_t i = 0; i < sizeof place->variables / sizeof *place->variables; i++) {
        const char *set = place->variables[i] ? getenv(place->variables[i]) : NULL;
        if (set && *set) return set;
    }
    return place->usual;
}

static int claim(const char *path, int *lock) {
    *lock = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (*lock < 0) return -1;
    /* On a file system without locks the folder gets no mark, so what a killed run leaves there is
     * never removed. */
    if (flock(*lock, LOCK_EX | LOCK_NB) != 0) return 0;
    const int mark = openat(*lock, MARK, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (mark < 0) return -1;
    return close(mark);
}

static int make_folder(const folder_place *place, char **path, int *lock) {
    char *base = realpath(base_of(place), NULL), *made = NULL;
    if (base && asprintf(&made, "%s/" PREFIX "XXXXXX", base) < 0) made = NULL;
    free(base);
    if (!made || !mkdtemp(made)) {
        free(made);
        return -1;
    }
    *path = made;
    return claim(made, lock);
}

int launcher_folders_make(launcher_folders *folders) {
    *folders = (launcher_folders){.lock = {-1, -1}};
    for (size_t i = 0; i < LAUNCHER_FOLDERS; i++) {
        /* Open MPI works without this folder */
        if (places[i].optional && access(base_of(&places[i]), W_OK | X_OK) != 0) continue;
        if (make_folder(&places[i], &folders->path[i], &folders->lock[i]) == 0) continue;
        fprintf(stderr,
                "dcp-run: cannot make a folder for mpirun in %s: %s; set %s to another folder\n",
                base_of(&places[i]), strerror(errno), places[i].tell[0]);
        launcher_folders_remove(folders);
        launcher_folders_free(folders);
        return -1;
    }
    return 0;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at) {
    (void)st;
    (void)type;
    if (at->level > 0 && !(at->level == 1 && strcmp(path + at->base, MARK) == 0)) remove(path);
    return 0; /* continue if something cannot be removed */
}

static void remove_folder(const char *path, int fd) {
    nftw(path, remove_entry, MOST_OPEN, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
    unlinkat(fd, MARK, 0);
    rmdir(path);
}

/* Returns true if the open folder is left over from a dead dcp-run of this user, and locks it. */
static bool is_left(int fd, const char *path) {
    struct stat folder, mark, now;
    if (fstat(fd, &folder) != 0 || folder.st_uid != geteuid() || (folder.st_mode & 077) != 0)
        return false;
    if (fstatat(fd, MARK, &mark, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(mark.st_mode) ||
        mark.st_uid != geteuid() || mark.st_size != 0)
        return false;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) return false;
    /* before we had the lock, the owner may have removed the folder, and another process may have
     * made a new one */
    return lstat(path, &now) == 0 && now.st_dev == folder.st_dev && now.st_ino == folder.st_ino;
}

static void remove_stale_in(const char *base) {
    DIR *dir = opendir(base);
    if (!dir) return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        char path[PATH_MAX];
        if (strncmp(entry->d_name, PREFIX, sizeof PREFIX - 1) != 0 ||
            strlen(entry->d_name) != sizeof PREFIX - 1 + 6)
            continue;
        const int n = snprintf(path, sizeof path, "%s/%s", base, entry->d_name);
        if (n < 0 || (size_t)n >= sizeof path) continue;
        const int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0) continue;
        if (is_left(fd, path)) remove_folder(path, fd);
        close(fd);
    }
    closedir(dir);
}

static void remove_stale_beside(const char *path) {
    char *base = strdup(path);
    char *end = base ? strrchr(base, '/') : NULL;
    if (end) {
        *end = '\0';
        remove_stale_in(base);
    }
    free(base);
}

int launcher_folders_join(launcher_folders *folders, const char *const paths[LAUNCHER_FOLDERS]) {
    *folders = (launcher_folders){.lock = {-1, -1}};
    for (size_t i = 0; i < LAUNCHER_FOLDERS; i++) {
        struct stat st;
        if (strcmp(paths[i], "-") == 0) continue;
        remove_stale_beside(paths[i]);
        folders->path[i] = strdup(paths[i]);
        if (mkdir(paths[i], 0700) == 0) {
            if (claim(paths[i], &folders->lock[i]) == 0) continue;
        } else if (errno == EEXIST && lstat(paths[i], &st) == 0 && S_ISDIR(st.st_mode) &&
                   st.st_uid == geteuid()) {
            folders->shared[i] = true;
            continue;
        }
        fprintf(stderr, "dcp-run agent: cannot make the folder %s: %s; set %s to another folder\n",
                paths[i], strerror(errno), places[i].tell[0]);
        launcher_folders_remove(folders);
        return -1;
    }
    return 0;
}

void launcher_folders_set(const launcher_folders *folders) {
    for (size_t i = 0; i < LAUNCHER_FOLDERS; i++) {
        const folder_place *place = &places[i];
        if (!folders->path[i]) continue;
        for (size_t k = 0; k < sizeof place->tell / sizeof *place->tell; k++)
            setenv(place->tell[k], folders->path[i], 1);
        for (size_t k = 0; k < sizeof place->also / sizeof *place->also; k++)
            if (place->also[k]) setenv(place->also[k], folders->path[i], 0);
    }
}

void launcher_folders_remove(const launcher_folders *folders) {
    for (size_t i = 0; i < LAUNCHER_FOLDERS; i++)
        if (folders->path[i] && !folders->shared[i])
            remove_folder(folders->path[i], folders->lock[i]);
}

void launcher_folders_free(launcher_folders *folders) {
    for (size_t i = 0; i < LAUNCHER_FOLDERS; i++) {
        if (folders->lock[i] >= 0) close(folders->lock[i]);
        free(folders->path[i]);
    }
    *folders = (launcher_folders){.lock = {-1, -1}};
}

void launcher_folders_remove_stale(void) {
    for (size_t i = 0; i < LAUNCHER_FOLDERS; i++) remove_stale_in(base_of(&places[i]));
}
