/* Steps are tried from the newest to the oldest, until every file of a step is seen by some
 * rank. */
#include "reader/visibility.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "comm/vote.h"
#include "core/bytes.h"
#include "core/fail.h"
#include "format/folder.h"
#include "io/entries.h"

#define STATE_FILE ((uint64_t)INT_MAX) /* used as the number of shards for layout global */

void reader_visibility_free(reader_visibility *v) {
    free(v->readers);
    free(v->visible);
}

/* Sets *shards to the largest number of shards below `below` for which this rank sees files:
 * STATE_FILE for layout global, 0 if there is none. */
static int shards_here(const char *folder, uint64_t below, uint64_t *shards, dcp_error *err) {
    int world = 0, status = DCP_ERR_CORRUPT;
    *shards = 0;
    if (!*folder) return DCP_OK;
    if (below > STATE_FILE) status = format_folder_check_file(folder, DCP_LAYOUT_GLOBAL, 0, 1, err);
    if (!status) *shards = STATE_FILE;
    if (status != DCP_ERR_CORRUPT) return status;
    status = format_folder_world(folder, below > STATE_FILE ? INT_MAX : (int)below, &world, err);
    *shards = (uint64_t)world;
    return status == DCP_ERR_NOT_FOUND ? DCP_OK : status;
}

/* Finds which of the v->shards files this rank sees. Shard f should be read by rank f modulo the
 * number of ranks, which usually has saved it, or by the next rank that sees it. Sets readers[f] to
 * the distance from the former rank to this rank, or to UINT64_MAX if this rank does not see the
 * file. */
static int look(reader_visibility *v, int rank, int size, dcp_error *err) {
    v->layout = v->shards == STATE_FILE ? DCP_LAYOUT_GLOBAL : DCP_LAYOUT_SHARDED;
    free(v->readers);
    free(v->visible);
    v->n = v->layout == DCP_LAYOUT_GLOBAL ? 1 : v->shards;
    v->readers = core_array(v->n, sizeof *v->readers);
    v->visible = calloc(v->n, 1);
    if (!v->readers || !v->visible) return core_fail_memory(err, v->n * sizeof *v->readers);
    for (size_t f = 0; f < v->n; f++) {
        int status = format_folder_check_file(v->folder, v->layout, f, v->n, err);
        if (status && status != DCP_ERR_CORRUPT) return status;
        v->visible[f] = status == DCP_OK;
        v->readers[f] =
            v->visible[f] ? (uint64_t)((rank + size - (int)(f % (size_t)size)) % size) : UINT64_MAX;
    }
    return DCP_OK;
}

/* Collective. Returns DCP_ERR_CORRUPT if any of the v->shards files is seen by no rank. */
static int look_together(dcp_comm *comm, reader_visibility *v, dcp_error *err) {
    int status = comm_agree(comm, look(v, comm->rank, comm->size, err), err);
    if (!status) status = comm_allreduce(comm, v->readers, v->n, DCP_REDUCE_MIN, err);
    if (status) return status;
    size_t lost = 0, first = 0;
    for (size_t f = v->n; f-- > 0;)
        if (v->readers[f] == UINT64_MAX) {
            lost++;
            first = f;
        }
    if (lost)
        status = core_fail_at(err, DCP_ERR_CORRUPT, v->folder,
                              "no rank sees %zu of its %zu files; the first of these is "
                              "shard-%05zu-of-%05zu.h5",
                              lost, v->n, first, v->n);
    return comm_agree(comm, status, err);
}

/* Collective. Folders of the same name can hold files of different saves, since a node that no
 * longer takes part retains its files. Chooses the largest number of shards for which each file is
 * seen by some rank. */
static int look_for_step(dcp_comm *comm, reader_visibility *v, dcp_error *err) {
    dcp_error why = {0}, first = {0};
    int status = DCP_ERR_CORRUPT;
    core_fail_at(&first, status, v->folder, "no rank sees a file of it");
    for (v->shards = UINT64_MAX; status == DCP_ERR_CORRUPT;) {
        comm_vote vote = {0};
        const uint64_t below = v->shards;
        int visible = shards_here(v->folder, below, &v->shards, &why);
        comm_vote_max(&vote, &v->shards, 1);
        if ((visible = comm_vote_run(comm, &vote, visible, &why))) {
            status = visible;
            break;
        }
        if (!v->shards) {
            status = comm_agree(comm, status, &first);
            if (err) *err = first;
            return status;
        }
        status = look_together(comm, v, &why);
        if (status == DCP_ERR_CORRUPT && below == UINT64_MAX) first = why;
    }
    if (status && err) *err = why;
    return status;
}

static int fail_none(dcp_comm *comm, const char *dir, dcp_error *err) {
    char aside[PATH_MAX + 256] = "";
    if (dir) format_list_describe_others(dir, aside, sizeof aside);
    return comm_agree(comm,
                      core_fail(err, DCP_ERR_NOT_FOUND,
                                "no complete step (step-...) in %s, nor in another rank's "
                                "directory%s",
                                dir ? dir : "no directory", aside),
                      err);
}

/* Collective. Tries the steps that at least one rank lists, newest first. */
static int try_steps(dcp_comm *comm, const char *dir, const dcp_step *steps, size_t n,
                     reader_visibility *v, dcp_error *err) {
    dcp_error newest = {0}, why;
    for (uint64_t limit = UINT64_MAX;;) {
        uint64_t next = format_list_newest_below(steps, n, limit);
        int status = comm_allreduce(comm, &next, 1, DCP_REDUCE_MAX, err);
        if (status) return status;
        if (!next && newest.status)
            return core_fail_again(err, DCP_ERR_NOT_FOUND, &newest,
                                   "no step is complete; the newest one: %s", newest.message);
        if (!next) return fail_none(comm, dir, err);
        limit = next - 1;
        status = dir ? format_name_path(dir, "", limit, v->folder, &why) : DCP_OK;
        status = comm_agree(comm, status, &why);
        if (!status) status = look_for_step(comm, v, &why);
        if (status != DCP_ERR_CORRUPT) {
            if (status && err) *err = why;
            return status;
        }
        if (!newest.status) newest = why;
    }
}

static int find_newest_visible(dcp_comm *comm, const char *dir, reader_visibility *v,
                               dcp_error *err) {
    dcp_step *steps = NULL;
    size_t n = 0;
    int status = comm_agree(comm, dir ? dcp_steps_list(dir, &steps, &n, err) : DCP_OK, err);
    if (!status) status = try_steps(comm, dir, steps, n, v, err);
    free(steps);
    return status;
}

static int find_given(dcp_comm *comm, const char *folder, reader_visibility *v, dcp_error *err) {
    int status = DCP_OK;
    if (folder && snprintf(v->folder, sizeof v->folder, "%s", folder) >= (int)sizeof v->folder)
        status = core_fail(err, DCP_ERR_ARG, "the path is too long: %.80s...", folder);
    status = comm_agree(comm, status, err);
    return status ? status : look_for_step(comm, v, err);
}

static int look_at_kind(const char *path, bool *is_step, bool *is_folder, dcp_error *err) {
    uint64_t step, shards = format_name_read(path, &step) ? 1 : 0;
    int status = shards ? DCP_OK : shards_here(path, UINT64_MAX, &shards, err);
    *is_step = shards != 0;
    if (status || shards) return status;
    status = io_stat(AT_FDCWD, path, NULL, err);
    *is_folder = status == DCP_OK;
    return status == DCP_ERR_NOT_FOUND ? DCP_OK : status;
}

/* Collective. *given is true if the paths are folders of one step, false if they are directories of
 * steps. */
static int agree_on_kind(dcp_comm *comm, const char *path, bool *given, dcp_error *err) {
    comm_vote v = {0};
    bool is_step = false, is_folder = false;
    int status = path ? look_at_kind(path, &is_step, &is_folder, err) : DCP_OK;
    comm_vote_any(&v, &is_step);
    comm_vote_any(&v, &is_folder);
    status = comm_vote_run(comm, &v, status, err);
    if (status) return status;
    *given = is_step;
    if (!is_step || !is_folder) return DCP_OK;
    return core_fail(err, DCP_ERR_MISMATCH,
                     "dcp_checkpoint_open_private: some ranks passed a step's folder, others a "
                     "directory of steps");
}

int reader_visibility_find(dcp_comm *comm, const char *own_path, reader_visibility *v,
                           dcp_error *err) {
    bool given;
    int status = agree_on_kind(comm, own_path, &given, err);
    *v = (reader_visibility){.n = 0};
    if (!status) status = (given ? find_given : find_newest_visible)(comm, own_path, v, err);
    for (size_t f = 0; f < v->n && !status; f++)
        v->readers[f] = (v->readers[f] + f) % (uint64_t)comm->size;
    return status;
}
