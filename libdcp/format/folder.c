/* Writes, recognises and lists the names of steps. A name counts only if it is exactly what this
 * library writes, so a step has one name, and nothing else in the directory is mistaken for a
 * step. */
#include "format/folder.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "core/bytes.h"
#include "core/checks.h"
#include "core/fail.h"
#include "io/entries.h"

#define NAME_BYTES sizeof(((dcp_step *)0)->name)

void format_name_write(char *name, const char *prefix, uint64_t step) {
    snprintf(name, NAME_BYTES, "%sstep-%08" PRIu64, prefix, step);
}

int format_name_path(const char *dir, const char *prefix, uint64_t step, char *path,
                     dcp_error *err) {
    char name[NAME_BYTES];
    format_name_write(name, prefix, step);
    if (snprintf(path, PATH_MAX, "%s/%s", dir, name) < PATH_MAX) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG, "the path is too long: %s", dir);
}

bool format_name_read(const char *path, uint64_t *step) {
    static const char *const kinds[] = {"step-", ".tmp-step-", ".abandoned-step-"};
    size_t start = strlen(path);
    while (start > 1 && path[start - 1] == '/') start--;
    while (start && path[start - 1] != '/') start--;
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        const char *digits = path + start + strlen(kinds[k]);
        if (strncmp(path + start, kinds[k], strlen(kinds[k])) || strspn(digits, "0123456789") < 8)
            continue;
        *step = strtoull(digits, NULL, 10);
        return true;
    }
    return false;
}

/* Recognises ".1", ".2" and so on. The name of an abandoned step has this ending if the plain name
 * was in use. */
static bool is_suffix(const char *text) {
    if (text[0] != '.' || text[1] < '1' || text[1] > '9') return false;
    return text[1 + strspn(text + 1, "0123456789")] == '\0';
}

/* Recognises "." and the 16 hex digits of a writer's identity. The name of a partial step has this
 * ending if another writer may still have been running. */
static bool is_identity(const char *text) {
    return text[0] == '.' && strspn(text + 1, "0123456789abcdef") == 16 && text[17] == '\0';
}

static bool is_ending(const char *text, dcp_step_kind kind) {
    if (!*text) return true;
    return kind == DCP_STEP_COMPLETE  ? false
           : kind == DCP_STEP_PARTIAL ? is_identity(text)
                                      : is_suffix(text);
}

static bool parse_name(const char *name, dcp_step *out) {
    static const struct {
        const char *prefix;
        dcp_step_kind kind;
    } kinds[] = {
        {"", DCP_STEP_COMPLETE}, {".tmp-", DCP_STEP_PARTIAL}, {".abandoned-", DCP_STEP_ABANDONED}};
    size_t k = name[0] != '.' ? 0 : name[1] == 't' ? 1 : 2;
    const char *digits = strstr(name, "step-");
    if (strlen(name) >= NAME_BYTES || !digits || !isdigit((unsigned char)digits[5])) return false;

    uint64_t step = strtoull(digits + 5, NULL, 10);
    char made[NAME_BYTES];
    format_name_write(made, kinds[k].prefix, step);
    size_t length = strlen(made);
    if (strncmp(name, made, length) != 0) return false;
    if (!is_ending(name + length, kinds[k].kind)) return false;
    out->step = step;
    out->kind = kinds[k].kind;
    memcpy(out->name, name, strlen(name) + 1);
    return true;
}

static int by_step(const void *a, const void *b) {
    const dcp_step *x = a, *y = b;
    if (x->step != y->step) return x->step < y->step ? -1 : 1;
    if (x->kind != y->kind) return x->kind < y->kind ? -1 : 1;
    return strcmp(x->name, y->name);
}

typedef struct folder_listing {
    const char *dir;
    bool wants_foreign; /* lists what format_list_foreign lists, instead of the steps */
    dcp_step *steps;
    size_t n;
} folder_listing;

/* Appends one step to the list, whose capacity doubles when it is full. */
static int append_step(folder_listing *l, const dcp_step *step, dcp_error *err) {
    if ((l->n & (l->n - 1)) == 0) { /* 0 or a power of two: the list is full */
        const size_t room = l->n ? 2 * l->n : 1;
        dcp_step *grown = core_array_grow(l->steps, room, sizeof *grown);
        if (!grown) return core_fail_memory(err, room * sizeof *grown);
        l->steps = grown;
    }
    l->steps[l->n++] = *step;
    return DCP_OK;
}

/* A folder that cannot be looked into counts as a step. */
static int take_entry(void *ctx, DIR *of, const struct dirent *e, dcp_error *err) {
    folder_listing *l = ctx;
    dcp_step step;
    bool is_folder, is_foreign = false;
    if (!parse_name(e->d_name, &step)) return DCP_OK;
    const int status = io_entry_is_folder(of, l->dir, e, &is_folder, err);
    if (status || !is_folder) return status;
    if (step.kind == DCP_STEP_COMPLETE &&
        format_folder_is_foreign(dirfd(of), step.name, l->dir, &is_foreign, NULL))
        is_foreign = false;
    return is_foreign == l->wants_foreign ? append_step(l, &step, err) : DCP_OK;
}

/* Lists the directory that is the entry `name` of the open directory `at`. `dir` is its path, for
 * messages. */
static int list_directory(int at, const char *name, const char *dir, bool foreign, dcp_step **out,
                          size_t *n_out, dcp_error *err) {
    folder_listing l = {.dir = dir, .wants_foreign = foreign};
    dcp_error why;
    const int status = io_visit_entries(at, name, dir, take_entry, &l, &why);
    if (status && (status != DCP_ERR_NOT_FOUND || why.system_error != ENOENT)) {
        free(l.steps);
        const bool is_file = status == DCP_ERR_NOT_FOUND;
        return core_fail_again(err, is_file ? DCP_ERR_ARG : status, &why, "%s", why.message);
    }
    if (l.n > 1) qsort(l.steps, l.n, sizeof *l.steps, by_step);
    *out = l.steps;
    *n_out = l.n;
    return DCP_OK;
}

int dcp_steps_list(const char *dir, dcp_step **out, size_t *n_out, dcp_error *err) {
    if (!dir || !out || !n_out)
        return core_fail(err, DCP_ERR_ARG, "dcp_steps_list: dir, out or n_out is NULL");
    const int refused = core_path_check(NULL, dir, err);
    return refused ? refused : list_directory(AT_FDCWD, dir, dir, false, out, n_out, err);
}

int format_list_at(int dir_fd, const char *dir, dcp_step **out, size_t *n_out, dcp_error *err) {
    return list_directory(dir_fd, ".", dir, false, out, n_out, err);
}

int format_list_foreign(const char *dir, dcp_step **out, size_t *n_out, dcp_error *err) {
    return list_directory(AT_FDCWD, dir, dir, true, out, n_out, err);
}

/* Returns the newest complete step up to `most`, or NULL if there is none. */
static const dcp_step *find_newest_row(const dcp_step *steps, size_t n, uint64_t most) {
    while (n > 0 && (steps[n - 1].kind != DCP_STEP_COMPLETE || steps[n - 1].step > most)) n--;
    return n > 0 ? &steps[n - 1] : NULL;
}

uint64_t format_list_newest_below(const dcp_step *steps, size_t n, uint64_t limit) {
    const dcp_step *newest = limit ? find_newest_row(steps, n, limit - 1) : NULL;
    return newest ? newest->step + 1 : 0;
}

int format_list_newest_of_ranks(dcp_comm *comm, const dcp_step *steps, size_t n, uint64_t limit,
                                uint64_t *next, dcp_error *err) {
    *next = format_list_newest_below(steps, n, limit);
    return comm_allreduce(comm, next, 1, DCP_REDUCE_MAX, err);
}

static void describe_foreign(const char *dir, char *text, size_t size) {
    dcp_step *steps = NULL;
    size_t n = 0;
    format_list_foreign(dir, &steps, &n, NULL);
    if (n > 0)
        snprintf(text, size, "; %s/%s has none of the files of a step, so it is not a step", dir,
                 steps[n - 1].name);
    free(steps);
}

void format_list_describe_others(const char *dir, char *text, size_t size) {
    dcp_step *steps = NULL;
    size_t n = 0;
    char name[NAME_BYTES];
    *text = '\0';
    dcp_steps_list(dir, &steps, &n, NULL);
    while (n > 0 && steps[n - 1].kind != DCP_STEP_ABANDONED) n--;
    if (n > 0) {
        format_name_write(name, "", steps[n - 1].step);
        snprintf(text, size,
                 "; a run that went back and has saved nothing since has set aside %s/%s: rename "
                 "it to %s to continue from this step",
                 dir, steps[n - 1].name, name);
    } else {
        describe_foreign(dir, text, size);
    }
    free(steps);
}

int format_list_newest(const char *dir, char *path, uint64_t *step, dcp_error *err) {
    dcp_step *steps;
    size_t n;
    int status = dcp_steps_list(dir, &steps, &n, err);
    if (status != DCP_OK) return status;
    const dcp_step *newest = find_newest_row(steps, n, UINT64_MAX);
    if (!newest) {
        char aside[PATH_MAX + 256];
        format_list_describe_others(dir, aside, sizeof aside);
        status = core_fail_path(
            core_fail(err, DCP_ERR_NOT_FOUND, "no complete step (step-...) in %s%s", dir, aside),
            dir, err);
    } else {
        *step = newest->step;
        status = format_name_path(dir, "", *step, path, err);
    }
    free(steps);
    return status;
}

/* Files are recognised by their names; their contents are not examined. */

/* Returns the world size in a shard's name, or 0 if it is not a shard's name. */
static int world_of(const char *name) {
    char made[64];
    int rank, world;
    if (sscanf(name, "shard-%5d-of-%5d", &rank, &world) != 2 || rank < 0 || world <= rank) return 0;
    snprintf(made, sizeof made, "shard-%05d-of-%05d.h5", rank, world);
    return strcmp(name, made) ? 0 : world;
}

typedef struct world_search {
    int below, found;
} world_search;

static int take_world(void *ctx, DIR *of, const struct dirent *e, dcp_error *err) {
    world_search *search = ctx;
    const int here = world_of(e->d_name);
    (void)of, (void)err;
    if (here > search->found && here < search->below) search->found = here;
    return DCP_OK;
}

int format_folder_world(const char *folder, int below, int *world, dcp_error *err) {
    world_search search = {below, 0};
    const int status = io_visit_entries(AT_FDCWD, folder, folder, take_world, &search, err);
    if (!status) *world = search.found;
    return status;
}

char *format_folder_path(const char *folder, dcp_layout layout, size_t i, size_t n) {
    size_t bytes = strlen(folder) + 64;
    char *path = malloc(bytes);
    if (path && layout == DCP_LAYOUT_SHARDED)
        snprintf(path, bytes, "%s/shard-%05zu-of-%05zu.h5", folder, i, n);
    else if (path)
        snprintf(path, bytes, "%s/state.h5", folder);
    return path;
}

int format_folder_check_file(const char *folder, dcp_layout layout, size_t i, size_t n,
                             dcp_error *err) {
    char *path = format_folder_path(folder, layout, i, n);
    if (!path) return core_fail_memory(err, PATH_MAX);
    int status = io_stat(AT_FDCWD, path, NULL, err);
    if (status == DCP_ERR_NOT_FOUND)
        status = core_fail_path(core_fail(err, DCP_ERR_CORRUPT, "%s is missing", path), path, err);
    free(path);
    return status;
}

int format_folder_files(const char *folder, size_t *n, dcp_layout *layout, dcp_error *err) {
    int world = 0, status = format_folder_check_file(folder, DCP_LAYOUT_GLOBAL, 0, 1, err);
    if (!status) {
        *n = 1;
        *layout = DCP_LAYOUT_GLOBAL;
    }
    if (status != DCP_ERR_CORRUPT) return status;
    status = format_folder_world(folder, INT_MAX, &world, err);
    if (status) return status;
    if (!world) return core_fail_at(err, DCP_ERR_CORRUPT, folder, "state.h5 is missing");
    for (size_t i = 0; i < (size_t)world && !status; i++)
        status = format_folder_check_file(folder, DCP_LAYOUT_SHARDED, i, (size_t)world, err);
    if (status) return status;
    *n = (size_t)world;
    *layout = DCP_LAYOUT_SHARDED;
    return DCP_OK;
}

static bool belongs(const char *name, dcp_layout layout, size_t files) {
    if (strcmp(name, "about.json") == 0 || strncmp(name, "parity-", 7) == 0 ||
        strncmp(name, "partner-", 8) == 0 ||
        strncmp(name, ".nfs", 4) == 0) /* NFS's name for an open file that was removed */
        return true;
    return layout == DCP_LAYOUT_GLOBAL ? strcmp(name, "state.h5") == 0
                                       : (size_t)world_of(name) == files;
}

/* Returns true for the names of files that the library writes into the folders of steps. */
static bool is_of_any_step(const char *name) {
    return belongs(name, DCP_LAYOUT_GLOBAL, 1) || world_of(name) > 0 ||
           strncmp(name, ".tmp-", 5) == 0; /* a file that was being rebuilt */
}

typedef struct owner_search {
    bool has_own, has_other;
} owner_search;

static int take_owner(void *ctx, DIR *of, const struct dirent *e, dcp_error *err) {
    owner_search *search = ctx;
    (void)of, (void)err;
    if (is_of_any_step(e->d_name))
        search->has_own = true;
    else
        search->has_other = true;
    return DCP_OK;
}

int format_folder_is_foreign(int dir_fd, const char *name, const char *dir, bool *is,
                             dcp_error *err) {
    char about[NAME_BYTES + sizeof "/about.json"], path[PATH_MAX];
    owner_search search = {false, false};
    snprintf(about, sizeof about, "%s/about.json", name);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    *is = false;
    if (!io_stat(dir_fd, about, NULL, NULL)) return DCP_OK; /* every save writes this file */
    const int status = io_visit_entries(dir_fd, name, path, take_owner, &search, err);
    *is = !status && search.has_other && !search.has_own;
    return status == DCP_ERR_NOT_FOUND ? DCP_OK : status;
}

typedef struct surplus_search {
    dcp_layout layout;
    size_t files;
    void (*fn)(void *ctx, const char *name);
    void *ctx;
} surplus_search;

static int take_surplus(void *ctx, DIR *of, const struct dirent *e, dcp_error *err) {
    const surplus_search *search = ctx;
    (void)of, (void)err;
    if (!belongs(e->d_name, search->layout, search->files)) search->fn(search->ctx, e->d_name);
    return DCP_OK;
}

int format_folder_surplus(const char *folder, dcp_layout layout, size_t files,
                          void (*fn)(void *ctx, const char *name), void *ctx, dcp_error *err) {
    surplus_search search = {layout, files, fn, ctx};
    return io_visit_entries(AT_FDCWD, folder, folder, take_surplus, &search, err);
}

int format_folder_shards(const char *folder, int world, unsigned char *here, int *n,
                         dcp_error *err) {
    *n = 0;
    for (int i = 0; i < world; i++) {
        const int status =
            format_folder_check_file(folder, DCP_LAYOUT_SHARDED, (size_t)i, (size_t)world, err);
        if (status && status != DCP_ERR_CORRUPT) return status;
        here[i] = status == DCP_OK;
        *n += here[i];
    }
    return DCP_OK;
}
