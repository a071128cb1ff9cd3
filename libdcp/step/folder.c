/* A file counts by its name; what is in it is not looked at. */
#include "step/folder.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/fail.h"
#include "io/look.h"

/* The world size in a shard's name; 0: it is no shard's name. */
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

int step_folder_world(const char *folder, int below, int *world, dcp_error *err) {
    world_search search = {below, 0};
    const int status = io_look_through(AT_FDCWD, folder, folder, take_world, &search, err);
    if (!status) *world = search.found;
    return status;
}

char *step_folder_path(const char *folder, dcp_layout layout, size_t i, size_t n) {
    size_t bytes = strlen(folder) + 64;
    char *path = malloc(bytes);
    if (path && layout == DCP_LAYOUT_SHARDED)
        snprintf(path, bytes, "%s/shard-%05zu-of-%05zu.h5", folder, i, n);
    else if (path)
        snprintf(path, bytes, "%s/state.h5", folder);
    return path;
}

int step_folder_check_file(const char *folder, dcp_layout layout, size_t i, size_t n,
                           dcp_error *err) {
    char *path = step_folder_path(folder, layout, i, n);
    if (!path) return core_fail_memory(err, PATH_MAX);
    int status = io_look(AT_FDCWD, path, NULL, err);
    if (status == DCP_ERR_NOT_FOUND)
        status = core_fail_path(core_fail(err, DCP_ERR_CORRUPT, "%s is missing", path), path, err);
    free(path);
    return status;
}

int step_folder_files(const char *folder, size_t *n, dcp_layout *layout, dcp_error *err) {
    int world = 0, status = step_folder_check_file(folder, DCP_LAYOUT_GLOBAL, 0, 1, err);
    if (!status) {
        *n = 1;
        *layout = DCP_LAYOUT_GLOBAL;
    }
    if (status != DCP_ERR_CORRUPT) return status;
    status = step_folder_world(folder, INT_MAX, &world, err);
    if (status) return status;
    if (!world) return core_fail_at(err, DCP_ERR_CORRUPT, folder, "state.h5 is missing");
    for (size_t i = 0; i < (size_t)world && !status; i++)
        status = step_folder_check_file(folder, DCP_LAYOUT_SHARDED, i, (size_t)world, err);
    if (status) return status;
    *n = (size_t)world;
    *layout = DCP_LAYOUT_SHARDED;
    return DCP_OK;
}

static int belongs(const char *name, dcp_layout layout, size_t files) {
    if (strcmp(name, "about.json") == 0 || strncmp(name, "parity-", 7) == 0 ||
        strncmp(name, "partner-", 8) == 0 ||
        strncmp(name, ".nfs", 4) == 0) /* what NFS keeps of an open file that was removed */
        return 1;
    return layout == DCP_LAYOUT_GLOBAL ? strcmp(name, "state.h5") == 0
                                       : (size_t)world_of(name) == files;
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

int step_folder_surplus(const char *folder, dcp_layout layout, size_t files,
                        void (*fn)(void *ctx, const char *name), void *ctx, dcp_error *err) {
    surplus_search search = {layout, files, fn, ctx};
    return io_look_through(AT_FDCWD, folder, folder, take_surplus, &search, err);
}

int step_folder_shards(const char *folder, int world, unsigned char *here, int *n, dcp_error *err) {
    *n = 0;
    for (int i = 0; i < world; i++) {
        const int status =
            step_folder_check_file(folder, DCP_LAYOUT_SHARDED, (size_t)i, (size_t)world, err);
        if (status && status != DCP_ERR_CORRUPT) return status;
        here[i] = status == DCP_OK;
        *n += here[i];
    }
    return DCP_OK;
}
