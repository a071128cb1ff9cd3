/* Steps whose files lie on several nodes: which step all of whose files are seen by some rank is
 * the newest, and who reads which file. Ranks may see the same folder or different ones. */
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/fail.h"
#include "load/checkpoint.h"
#include "store/store.h"

#define STATE_FILE ((uint64_t)INT_MAX) /* as a number of shards: layout global */

/* A step in the eyes of all ranks. */
typedef struct sight {
    char folder[PATH_MAX]; /* this rank's, whether it is there or not */
    uint64_t shards;
    size_t n;            /* files */
    uint64_t *turns;     /* a file: how far its reader is from the rank that would suit it best */
    unsigned char *seen; /* a file: by this rank */
} sight;

static void sight_free(sight *s) {
    free(s->turns);
    free(s->seen);
    *s = (sight){.n = 0};
}

/* Also a link, or what is no file: opening it tells what is wrong with it. */
static unsigned char is_there(const char *path) {
    struct stat st;
    return lstat(path, &st) == 0;
}

/* What this rank sees of the step below a number of shards: STATE_FILE, another number, or 0. */
static uint64_t shards_here(const char *folder, uint64_t below) {
    char path[PATH_MAX + 16];
    int world = 0;
    if (!*folder) return 0;
    snprintf(path, sizeof path, "%s/state.h5", folder);
    if (below > STATE_FILE && is_there(path)) return STATE_FILE;
    int limit = below > STATE_FILE ? INT_MAX : (int)below;
    return step_world(folder, limit, &world, NULL) ? 0 : (uint64_t)world;
}

/* Shard f is best read by the rank that saved it, else by the next one that sees it. */
static int look(sight *s, int rank, int size, dcp_error *err) {
    dcp_layout layout = s->shards == STATE_FILE ? DCP_LAYOUT_GLOBAL : DCP_LAYOUT_SHARDED;
    free(s->turns);
    free(s->seen);
    s->n = layout == DCP_LAYOUT_GLOBAL ? 1 : s->shards;
    s->turns = malloc(s->n * sizeof *s->turns);
    s->seen = calloc(s->n, 1);
    if (!s->turns || !s->seen) return core_fail_memory(err, s->n * sizeof *s->turns);
    for (size_t f = 0; f < s->n; f++) {
        char *path = step_file_path(s->folder, layout, f, s->n);
        if (!path) return core_fail_memory(err, PATH_MAX);
        s->seen[f] = is_there(path);
        s->turns[f] =
            s->seen[f] ? (uint64_t)((rank + size - (int)(f % (size_t)size)) % size) : UINT64_MAX;
        free(path);
    }
    return DCP_OK;
}

/* Collective. DCP_ERR_CORRUPT: nobody sees some of the s->shards files. */
static int look_together(dcp_comm *comm, sight *s, dcp_error *err) {
    int status = comm_agree(comm, look(s, comm->rank, comm->size, err), err);
    if (!status) status = comm_allreduce(comm, s->turns, s->n, DCP_REDUCE_MIN, err);
    if (status) return status;
    size_t lost = 0, first = 0;
    for (size_t f = s->n; f-- > 0;)
        if (s->turns[f] == UINT64_MAX) {
            lost++;
            first = f;
        }
    if (lost)
        status = core_fail(err, DCP_ERR_CORRUPT,
                           "%s: no rank sees %zu of its %zu files, the first is "
                           "shard-%05zu-of-%05zu.h5",
                           s->folder, lost, s->n, first, s->n);
    return comm_agree(comm, status, err);
}

/* Collective. Folders of one name may hold files of different saves: nodes that no longer take part
 * keep what they have. The largest number of shards that is whole is the step. */
static int look_for_step(dcp_comm *comm, sight *s, dcp_error *err) {
    dcp_error why = {0}, first = {0};
    int status = DCP_ERR_CORRUPT;
    core_fail(&first, status, "%s: no rank sees a file of it", s->folder);
    for (s->shards = UINT64_MAX; status == DCP_ERR_CORRUPT;) {
        uint64_t below = s->shards;
        s->shards = shards_here(s->folder, below);
        if (comm_allreduce(comm, &s->shards, 1, DCP_REDUCE_MAX, err)) return DCP_ERR_COMM;
        if (!s->shards) {
            status = comm_agree(comm, status, &first);
            if (err) *err = first;
            return status;
        }
        status = look_together(comm, s, &why);
        if (status == DCP_ERR_CORRUPT && below == UINT64_MAX) first = why;
    }
    if (status && err) *err = why;
    return status;
}

static int name_step(const char *dir, uint64_t step, char *folder, dcp_error *err) {
    char name[64];
    store_step_name(name, "", step);
    *folder = '\0';
    if (!dir) return DCP_OK;
    if (snprintf(folder, PATH_MAX, "%s/%s", dir, name) < PATH_MAX) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG, "the path is too long: %.80s...", dir);
}

/* Collective. Tries the steps that any rank lists, newest first. */
static int try_steps(dcp_comm *comm, const char *dir, const dcp_step *steps, size_t n, sight *s,
                     dcp_error *err) {
    dcp_error newest = {0}, why;
    for (uint64_t limit = UINT64_MAX;;) {
        uint64_t next = store_newest_below(steps, n, limit);
        int status = comm_allreduce(comm, &next, 1, DCP_REDUCE_MAX, err);
        if (status) return status;
        if (!next && newest.status)
            return core_fail(err, DCP_ERR_NOT_FOUND, "no step is complete; of the newest: %s",
                             newest.message);
        if (!next)
            return comm_agree(comm,
                              core_fail(err, DCP_ERR_NOT_FOUND,
                                        "no complete step (step-...) in %s, nor in another rank's "
                                        "directory",
                                        dir ? dir : "no directory"),
                              err);
        limit = next - 1;
        status = comm_agree(comm, name_step(dir, limit, s->folder, &why), &why);
        if (!status) status = look_for_step(comm, s, &why);
        if (status != DCP_ERR_CORRUPT) {
            if (status && err) *err = why;
            return status;
        }
        if (!newest.status) newest = why;
    }
}

static int find_newest(dcp_comm *comm, const char *dir, sight *s, dcp_error *err) {
    dcp_step *steps = NULL;
    size_t n = 0;
    int status = comm_agree(comm, dir ? dcp_steps_list(dir, &steps, &n, err) : DCP_OK, err);
    if (!status) status = try_steps(comm, dir, steps, n, s, err);
    free(steps);
    return status;
}

static int find_given(dcp_comm *comm, const char *folder, sight *s, dcp_error *err) {
    int status = DCP_OK;
    if (folder && snprintf(s->folder, sizeof s->folder, "%s", folder) >= (int)sizeof s->folder)
        status = core_fail(err, DCP_ERR_ARG, "the path is too long: %.80s...", folder);
    status = comm_agree(comm, status, err);
    return status ? status : look_for_step(comm, s, err);
}

/* Collective. *given: the paths are of one step's folder, else of directories of steps. */
static int agree_on_kind(dcp_comm *comm, const char *path, int *given, dcp_error *err) {
    uint64_t kinds[2] = {0, 0}, step;
    if (path) {
        int one = step_of_folder(path, &step) || shards_here(path, UINT64_MAX);
        kinds[0] = one ? 1 : 0;
        kinds[1] = !one && access(path, F_OK) == 0;
    }
    int status = comm_allreduce(comm, kinds, 2, DCP_REDUCE_MAX, err);
    if (status) return status;
    *given = kinds[0] != 0;
    if (!kinds[0] || !kinds[1]) return DCP_OK;
    return core_fail(err, DCP_ERR_MISMATCH,
                     "dcp_checkpoint_open_private: some ranks passed a step's folder, others a "
                     "directory of steps");
}

/* Collective. The path of a file as its reader sees it, to those who don't; NULL: no memory. */
static int share_path(dcp_comm *comm, ckpt_file *file, dcp_error *err) {
    char path[PATH_MAX] = "";
    if (comm->rank == file->reader) snprintf(path, sizeof path, "%s", file->path);
    int status = comm_broadcast(comm, path, sizeof path, file->reader, err);
    if (status || !file->hidden) return status;
    free(file->path);
    file->path = strdup(path);
    return DCP_OK;
}

static int fill_files(dcp_checkpoint *ckpt, const sight *s, dcp_error *err) {
    ckpt->layout = s->shards == STATE_FILE ? DCP_LAYOUT_GLOBAL : DCP_LAYOUT_SHARDED;
    ckpt->files = calloc(s->n, sizeof *ckpt->files);
    if (!ckpt->files) return core_fail_memory(err, s->n * sizeof *ckpt->files);
    ckpt->n_files = s->n;
    for (size_t f = 0; f < s->n; f++) {
        ckpt_file *file = &ckpt->files[f];
        file->file.fd = file->plain = -1;
        file->reader = (int)((s->turns[f] + f) % (size_t)ckpt->comm->size);
        file->hidden = !s->seen[f];
    }
    for (size_t f = 0; f < s->n; f++)
        if (!(ckpt->files[f].path = step_file_path(s->folder, ckpt->layout, f, s->n)))
            return core_fail_memory(err, PATH_MAX);
    return DCP_OK;
}

/* The step's folder: this rank's, or where it sees nothing the first file's. */
static int name_folder(dcp_checkpoint *ckpt, const sight *s, dcp_error *err) {
    int any = memchr(s->seen, 1, s->n) != NULL;
    const char *path = any ? s->folder : ckpt->files[0].path;
    ckpt->path = path ? strdup(path) : NULL;
    if (ckpt->path && !any) *strrchr(ckpt->path, '/') = '\0';
    for (size_t f = 0; f < s->n; f++)
        if (!ckpt->files[f].path) return core_fail_memory(err, PATH_MAX);
    return ckpt->path ? DCP_OK : core_fail_memory(err, PATH_MAX);
}

static int fill(dcp_checkpoint *ckpt, const sight *s, dcp_error *err) {
    uint64_t hidden = memchr(s->seen, 0, s->n) != NULL;
    int status = comm_agree(ckpt->comm, fill_files(ckpt, s, err), err);
    if (!status) status = comm_allreduce(ckpt->comm, &hidden, 1, DCP_REDUCE_MAX, err);
    ckpt->scattered = hidden != 0;
    for (size_t f = 0; f < s->n && !status && hidden; f++)
        status = share_path(ckpt->comm, &ckpt->files[f], err);
    return status ? status : comm_agree(ckpt->comm, name_folder(ckpt, s, err), err);
}

int sight_find(dcp_checkpoint *ckpt, const char *own_path, dcp_error *err) {
    sight s = {.n = 0};
    int given, status = agree_on_kind(ckpt->comm, own_path, &given, err);
    if (!status) status = (given ? find_given : find_newest)(ckpt->comm, own_path, &s, err);
    if (!status) status = fill(ckpt, &s, err);
    sight_free(&s);
    return status;
}
