#include "config/path_checks.h"

#include <errno.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "config/lists.h"
#include "config/schema.h"
#include "programs/arguments.h"
#include "programs/fail.h"
#include "programs/program.h"

/* A word that differs from a known one by at most this many edits counts as misspelled. */
enum { MISSPELLING_EDITS = 2 };

/* Moves *at past slashes and "." parts to the next part of a path. Returns that part's length, or 0
 * at the end of the path. */
static size_t next_part(const char **at) {
    size_t n = 1;
    do {
        *at += strspn(*at, "/");
        n = strcspn(*at, "/");
        if (n != 1 || **at != '.') return n;
        *at += n;
    } while (1);
}

/* Returns true if `path` is `folder` or lies in it, according to their texts alone. */
static bool lies_in(const char *path, const char *folder) {
    if ((*path == '/') != (*folder == '/')) return false;
    for (size_t n = next_part(&folder); n > 0; n = next_part(&folder)) {
        if (n != next_part(&path) || strncmp(path, folder, n) != 0) return false;
        path += n;
        folder += n;
    }
    return true;
}

/* Returns true if the paths name the same directory, which need not exist. */
static bool is_same_directory(const char *a, const char *b) {
    struct stat x, y;
    if (lies_in(a, b) && lies_in(b, a)) return true;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

static int check_directories_differ(const config *c, dcp_error *err) {
    for (size_t j = 1; j < c->n_stores; j++)
        for (size_t i = 0; i < j; i++) {
            if (!is_same_directory(c->stores[i].path, c->stores[j].path)) continue;
            char other[64] = "checkpoint.dir";
            if (j + 1 < c->n_stores)
                snprintf(other, sizeof other, "checkpoint.stores[%zu].path", j);
            return core_fail(err, DCP_ERR_ARG,
                             "checkpoint.stores[%zu].path: %.300s is also %s; each store needs its "
                             "own directory",
                             i, c->stores[i].path, other);
        }
    return DCP_OK;
}

static int check_resume(const config *c, dcp_error *err) {
    char word[CONFIG_PATH_MAX];
    if (access(c->resume, F_OK) == 0) return DCP_OK;
    for (const char *at = config_key_find("checkpoint.resume")->words; *at;) {
        const int length = (int)strcspn(at, "|");
        snprintf(word, sizeof word, "%.*s", length, at);
        at += length + (at[length] == '|');
        const size_t edits = program_word_distance(c->resume, word);
        if (edits > 0 && edits <= MISSPELLING_EDITS)
            return core_fail(err, DCP_ERR_ARG,
                             "checkpoint.resume: there is no %.300s; did you mean %s?", c->resume,
                             word);
    }
    return DCP_OK;
}

/* Checks the parts of `text` that are in braces, which each rank replaces by its own values. If
 * `on_rank` is true, also checks that this rank's environment has the variables. */
static int check_braces(const char *key, const char *text, bool on_rank, dcp_error *err) {
    char name[256];
    size_t n;
    for (const char *at = text; at && (at = strchr(at, '{')); at += n) {
        n = strcspn(at, "}") + 1;
        if (strncmp(at, "{rank}", n) == 0 || strncmp(at, "{host}", n) == 0) continue;
        if (strncmp(at, "{env:", 5) != 0 || n < 7 || n > sizeof name || !at[n - 1])
            return core_fail(
                err, DCP_ERR_ARG,
                "%s: %.300s: %.*s is unknown; only {rank}, {host} and {env:NAME}, which "
                "names an environment variable, are allowed in braces",
                key, text, at[n - 1] ? (int)n : (int)n - 1, at);
        snprintf(name, sizeof name, "%.*s", (int)n - 6, at + 5);
        const char *value = on_rank ? getenv(name) : text;
        if (!value || !*value)
            return core_fail(err, DCP_ERR_ARG,
                             "%s: %.300s: %s is not set in the environment; export it on all hosts",
                             key, text, name);
    }
    return DCP_OK;
}

static int check_all_braces(const config *c, bool on_rank, dcp_error *err) {
    char key[64];
    int status = check_braces("checkpoint.domain", c->domain, on_rank, err);
    for (size_t i = 0; i + 1 < c->n_stores && !status; i++) {
        snprintf(key, sizeof key, "checkpoint.stores[%zu].path", i);
        status = check_braces(key, c->stores[i].path, on_rank, err);
        snprintf(key, sizeof key, "checkpoint.stores[%zu].domain", i);
        if (!status) status = check_braces(key, c->stores[i].domain, on_rank, err);
    }
    return status;
}

int config_paths_check(const config *c, dcp_error *err) {
    int status = check_directories_differ(c, err);
    if (status == DCP_OK) status = check_all_braces(c, false, err);
    return status == DCP_OK ? check_resume(c, err) : status;
}

int config_paths_check_environment(const config *c, dcp_error *err) {
    return check_all_braces(c, true, err);
}

/* Returns true if the run creates the folder: a store's directory, or a parent of such a
 * directory. */
static bool is_created_by_run(const config *c, const char *folder) {
    for (size_t i = 0; i < c->n_stores; i++)
        if (lies_in(c->stores[i].path, folder)) return true;
    return false;
}

int config_paths_check_writable(const config *c, const char *what, const char *path,
                                dcp_error *err) {
    char folder[PATH_MAX];
    struct stat st;
    const char *slash = strrchr(path, '/');
    const int n = snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1,
                           slash ? path : ".");
    int code = n > 0 && (size_t)n < sizeof folder ? 0 : ENAMETOOLONG;
    const bool is_there = !code && stat(path, &st) == 0;
    if (!code && !is_there && lstat(path, &st) == 0)
        return core_fail(err, DCP_ERR_ARG,
                         "%s: %.300s is a symbolic link to a missing file: create that file, "
                         "remove the link, or name another file",
                         what, path);
    if (is_there && S_ISDIR(st.st_mode)) code = EISDIR;
    if (!code && access(is_there ? path : folder, W_OK) != 0) code = errno;
    if (!code || (code == ENOENT && is_created_by_run(c, folder))) return DCP_OK;
    return core_fail(err, program_path_is_wrong(code) ? DCP_ERR_ARG : DCP_ERR_IO,
                     "%s: cannot open %.300s: %s; name a file that can be written", what, path,
                     strerror(code));
}

/* Returns true if the call failed for a reason that no retry would change. */
static bool is_refused(int failed) {
    return failed && (errno == EACCES || errno == EPERM || errno == EROFS || errno == ENOTDIR ||
                      errno == ELOOP);
}

/* Returns true, and sets errno, if `path` is on a file system such as /proc, where only the kernel
 * can create files. */
static bool is_of_kernel(const char *path) {
    static const unsigned long kinds[] = {PROC_SUPER_MAGIC, SYSFS_MAGIC, CGROUP_SUPER_MAGIC,
                                          CGROUP2_SUPER_MAGIC, DEVPTS_SUPER_MAGIC};
    struct statfs fs;
    if (statfs(path, &fs) != 0) return false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if ((unsigned long)fs.f_type == kinds[i]) return errno = EPERM, true;
    return false;
}

/* Returns true, and sets errno, if nothing can be created in the folder, which exists. */
static bool is_closed_folder(const char *path) {
    return is_refused(access(path, W_OK | X_OK)) || is_of_kernel(path);
}

/* Returns true, and sets errno, if the store's directory cannot be used. */
static bool is_closed(const char *dir) {
    char path[PATH_MAX];
    const int n = snprintf(path, sizeof path, "%s/.lock", dir);
    if (n < 0 || (size_t)n >= sizeof path) return errno = ENAMETOOLONG, true;
    if (is_refused(access(path, W_OK))) return true;
    /* What remains to check is the directory, or its nearest parent that exists. */
    for (char *slash; (slash = strrchr(path, '/'));) {
        *slash = '\0';
        if (access(path, F_OK) == 0 || errno != ENOENT) return is_closed_folder(*path ? path : "/");
    }
    return is_closed_folder(".");
}

bool config_paths_are_closed(const config *c) {
    for (size_t i = 0; i < c->n_stores; i++)
        if (is_closed(c->stores[i].path)) return true;
    return false;
}

int config_paths_check_open(const config *c, dcp_error *err) {
    char key[64] = "checkpoint.dir";
    for (size_t i = 0; i < c->n_stores; i++) {
        if (!is_closed(c->stores[i].path)) continue;
        const int code = errno;
        if (i + 1 < c->n_stores) snprintf(key, sizeof key, "checkpoint.stores[%zu].path", i);
        return core_fail(err, DCP_ERR_ARG,
                         "%s: cannot write to %.300s: %s; choose a folder that you may write to",
                         key, c->stores[i].path, strerror(code));
    }
    return DCP_OK;
}

/* Returns the number of failure domains that `domain` gives to the ranks. NULL means that each host
 * is a domain. If the name depends on each rank's environment, returns the largest possible
 * number. */
static int count_domains(const char *domain, int hosts, int world) {
    if (!domain) return hosts;
    if (strstr(domain, "{rank}") || strstr(domain, "{env:")) return world;
    return strstr(domain, "{host}") ? hosts : 1;
}

int config_paths_check_hosts(const config *c, int hosts, int world, dcp_error *err) {
    for (size_t i = 0; i + 1 < c->n_stores; i++) {
        const char *redundancy = c->stores[i].redundancy, *domain = c->stores[i].domain;
        const int needed = config_stores_survivable(redundancy) + 1,
                  domains = count_domains(domain, hosts, world);
        if (domains < needed)
            return core_fail(err, DCP_ERR_ARG,
                             "checkpoint.stores[%zu].redundancy: %s needs ranks in at least %d "
                             "failure domains, but they are in %d (%s); use more domains, a "
                             "redundancy that survives the loss of fewer domains, or no redundancy",
                             i, redundancy, needed, domains,
                             domain ? "which the key domain names" : "one per host");
    }
    return DCP_OK;
}
