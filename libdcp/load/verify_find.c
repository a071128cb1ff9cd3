/* Which files a step that is verified has, and which it should have. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/fail.h"
#include "load/verify.h"
#include "step/about.h"
#include "step/files.h"

static int make_files(dcp_checkpoint *ckpt, size_t n, dcp_error *err) {
    ckpt->files = calloc(n, sizeof *ckpt->files);
    if (!ckpt->files) return core_fail_memory(err, n * sizeof *ckpt->files);
    ckpt->n_files = n;
    for (size_t i = 0; i < n; i++) ckpt->files[i].file.fd = ckpt->files[i].plain = -1;
    return DCP_OK;
}

/* Files for the shards that the folder has; it should have those in kept[]. */
static int take_part(verifier *v, const char *path, int world, unsigned char *kept,
                     dcp_error *err) {
    dcp_checkpoint *ckpt = v->ckpt;
    int *here = NULL;
    size_t n = 0;
    int status = step_files_shards(path, world, &here, &n, err);
    if (status) return status;
    ckpt->layout = DCP_LAYOUT_SHARDED;
    status = make_files(ckpt, (size_t)world, err);
    for (size_t i = 0; i < n && !status; i++) {
        char *file = step_files_path(path, ckpt->layout, (size_t)here[i], ckpt->n_files);
        if (!file) status = core_fail_memory(err, PATH_MAX);
        ckpt->files[here[i]].path = file;
        kept[here[i]] = 0;
    }
    for (int f = 0; f < world && !status; f++) {
        char line[PATH_MAX + 64];
        snprintf(line, sizeof line, "%.4095s/shard-%05d-of-%05d.h5 is missing", path, f, world);
        if (kept[f]) verify_damage(v, line);
    }
    free(here);
    return status;
}

/* A folder of a private store, where about.json says that it keeps but a part of the shards. */
static int find_part(verifier *v, const char *path, dcp_error *err) {
    int world = 0, status = DCP_OK;
    if (step_files_world(path, INT_MAX, &world, NULL) || !world) return DCP_OK;
    unsigned char *kept = malloc((size_t)world);
    if (!kept) return core_fail_memory(err, (uint64_t)world);
    v->is_part = step_about_is_part(path, world, kept);
    if (v->is_part) status = take_part(v, path, world, kept, err);
    free(kept);
    return status;
}

/* All shards beside state.h5: one of the two is foreign, and a load takes the latter. */
static void check_one_layout(verifier *v, const char *path) {
    char line[PATH_MAX + 96];
    int world = 0, *here = NULL;
    size_t n = 0;
    if (v->ckpt->layout != DCP_LAYOUT_GLOBAL || step_files_world(path, INT_MAX, &world, NULL))
        return;
    if (!world || step_files_shards(path, world, &here, &n, NULL)) return;
    free(here);
    if (n < (size_t)world) return;
    snprintf(line, sizeof line, "%.4095s: holds both state.h5 and shards of %d ranks", path, world);
    verify_damage(v, line);
}

int verify_find(verifier *v, const char *path, dcp_error *err) {
    dcp_checkpoint *ckpt = v->ckpt;
    dcp_error e;
    size_t n;
    int status = step_files_find(path, &n, &ckpt->layout, &e);
    if (status == DCP_ERR_CORRUPT) {
        int found = find_part(v, path, err);
        if (found || v->is_part) return found;
    }
    if (status && status != DCP_ERR_CORRUPT && err) *err = e;
    if (status) return verify_absorb(v, status, &e);
    check_one_layout(v, path);
    return make_files(ckpt, n, err);
}
