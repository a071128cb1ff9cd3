/* Every byte of the redundancy files in one folder. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/fail.h"
#include "load/checkpoint.h"
#include "redundancy/parity.h"

typedef struct verification {
    const char *folder;
    void (*on_damage)(void *ctx, const char *line);
    void *ctx;
    uint64_t *damages;
} verification;

static void damage(const verification *v, const char *line) {
    (*v->damages)++;
    if (v->on_damage) v->on_damage(v->ctx, line);
}

/* A failure that is damage is reported, another one is returned. */
static int verify_header(const verification *v, const char *path, const char *name,
                         parity_header *h, int *fd, dcp_error *err) {
    dcp_error e;
    int status = parity_open(path, name, h, fd, &e);
    if (status == DCP_ERR_CORRUPT || status == DCP_ERR_VERSION) {
        damage(v, e.message);
        return DCP_OK;
    }
    if (status && err) *err = e;
    return status;
}

static int verify_file(const verification *v, const char *name, dcp_error *err) {
    parity_header h;
    char *path, line[4300];
    uint64_t step;
    int fd = -1;
    if (asprintf(&path, "%s/%s", v->folder, name) < 0) return core_fail_memory(err, 4096);
    int status = verify_header(v, path, name, &h, &fd, err);
    if (fd < 0) goto free_path;
    if (step_of_folder(v->folder, &step) && step != h.step) {
        snprintf(line, sizeof line, "%s: header: it is of step %llu", path,
                 (unsigned long long)h.step);
        damage(v, line);
    }
    status = parity_check_payload(&h, fd, path, v->on_damage, v->ctx, v->damages, err);
    close(fd);
free_path:
    free(path);
    return status;
}

int redundancy_verify(const char *folder, void (*on_damage)(void *ctx, const char *line), void *ctx,
                      uint64_t *damages, dcp_error *err) {
    verification v = {folder, on_damage, ctx, damages};
    DIR *dir = opendir(folder);
    if (!dir) return core_fail_errno(err, "cannot open", folder);
    int status = DCP_OK, world;
    uint64_t number;
    redundancy_kind kind;
    for (struct dirent *entry; !status && (entry = readdir(dir));)
        if (parity_name_read(entry->d_name, &kind, &number, &world) && kind != REDUNDANCY_NONE)
            status = verify_file(&v, entry->d_name, err);
    closedir(dir);
    return status;
}
