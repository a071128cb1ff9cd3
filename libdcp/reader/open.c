/* Opening a checkpoint: finds its folder and files, and holds the folder. In layout global one rank
 * reads the tables, and all ranks decode the same bytes; homes.c reads the tables of shards. */
#include "reader/open.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "comm/messages.h"
#include "comm/vote.h"
#include "core/box.h"
#include "core/checks.h"
#include "core/fail.h"
#include "core/json.h"
#include "format/about.h"
#include "format/folder.h"
#include "format/hold.h"
#include "reader/checkpoint.h"
#include "reader/read.h"
#include "reader/union.h"
#include "reader/view.h"
#include "reader/visibility.h"

enum {
    LOOKS = 100,  /* attempts at a directory whose steps come and go */
    LISTINGS = 4, /* attempts at a directory that seems to have no step */
};

int reader_fail_unread(uint64_t step, const dcp_error *why, dcp_error *err) {
    return core_fail_again(err, why->status, why,
                           "step %" PRIu64
                           " could not be read, which proves no damage, so no older step is loaded "
                           "instead: %s; try again, or name an older step to continue from it "
                           "(dcp_tiers_open_step and dcp_tiers_continue_from, load(step=...), "
                           "checkpoint.resume=.../step-...): later steps are then set aside",
                           step, why->message);
}

/* A directory listing that is made while a writer publishes one step and removes another may
 * contain neither. */
static int find_newest(const char *dir, char *folder, dcp_error *err) {
    uint64_t step;
    int status = format_list_newest(dir, folder, &step, err);
    for (int look = 1; look < LISTINGS && core_fail_is_damage(status); look++)
        status = format_list_newest(dir, folder, &step, err);
    return status;
}

/* Finds the folder of the step that `path` refers to. */
static int resolve(const char *path, char *folder, dcp_error *err) {
    struct stat st;
    size_t n;
    dcp_layout layout;
    uint64_t step;
    dcp_error why;
    if (!path) return core_fail(err, DCP_ERR_ARG, "dcp_checkpoint_open: a path is needed");
    if (stat(path, &st)) return core_fail_errno(err, "cannot find", path);
    if (!S_ISDIR(st.st_mode))
        return core_fail(err, DCP_ERR_ARG,
                         "%s: not a folder: give a step's folder or the "
                         "directory of steps",
                         path);
    const bool is_step = format_name_read(path, &step);
    const int files = is_step ? DCP_OK : format_folder_files(path, &n, &layout, &why);
    if (core_fail_is_damage(files)) return find_newest(path, folder, err);
    if (files) return core_fail_again(err, files, &why, "%s", why.message);
    if (strlen(path) >= PATH_MAX) return core_fail(err, DCP_ERR_ARG, "%.80s: too long", path);
    strcpy(folder, path);
    return DCP_OK;
}

/* Sends one file's packed tables from its reader to all ranks. The reader checks the rows. */
static int share_tables(dcp_comm *comm, format_file *file, dcp_error *err) {
    comm_buffer packed = {0};
    int status = DCP_OK;
    bool checked = comm->rank != file->reader;
    if (!checked) status = format_tables_pack(file, &packed.data, &packed.bytes, err);
    status = comm_buffer_agree_broadcast(comm, status, &packed, file->reader, NULL, err);
    if (!status) {
        status = format_tables_unpack(file, packed.data, packed.bytes, checked, err);
        status = comm_agree(comm, status, err);
    }
    free(packed.data);
    return status;
}

/* Opens the step's folder on this rank. It is not a failure if the folder cannot be opened: then
 * the files are opened by their paths. Returns DCP_ERR_NOT_FOUND if the step is being removed. */
static int hold_folder(dcp_checkpoint *ckpt, const char *folder, bool locks, dcp_error *err) {
    ckpt->hold = format_hold_open(folder, locks, &ckpt->gone);
    if (!ckpt->hold || !ckpt->hold->is_claimed) return DCP_OK;
    return core_fail_at(err, DCP_ERR_NOT_FOUND, folder,
                        "its store's writer is removing it, and has locked about.json");
}

/* Allocates the checkpoint's list of its n files, and sets their paths. */
static int name_files(dcp_checkpoint *ckpt, const char *folder, size_t n, dcp_error *err) {
    int status = reader_checkpoint_make_files(ckpt, n, err);
    for (size_t i = 0; i < n && !status; i++) {
        ckpt->files[i].path = format_folder_path(folder, ckpt->layout, i, n);
        if (!ckpt->files[i].path) status = core_fail_memory(err, PATH_MAX);
    }
    return status;
}

static bool is_sharded(const dcp_checkpoint *ckpt) { return ckpt->layout == DCP_LAYOUT_SHARDED; }

/* Called if about.json says that the folder is one node's part of a step; `kept` marks the shards
 * of this part. Fails with DCP_ERR_ARG if all of them are present and others are missing. */
static int fail_part(const char *folder, int world, const unsigned char *kept, dcp_error *err) {
    int n = 0;
    bool is_whole = true;
    for (int f = 0; f < world; f++) {
        n += kept[f];
        is_whole &= !kept[f] || !format_folder_check_file(folder, DCP_LAYOUT_SHARDED, (size_t)f,
                                                          (size_t)world, NULL);
    }
    if (n == world || !is_whole) return DCP_OK;
    return core_fail_at(err, DCP_ERR_ARG, folder,
                        "it is one node's part of a private store's step, %d of its %d shards, and "
                        "the others are on other nodes: start ranks on all of these nodes and name "
                        "the store in their list of stores (dcp_tiers_open, libdcp.Store([...]), "
                        "checkpoint.stores), or use a directory that contains a whole step",
                        n, world);
}

/* Fails for a step that lacks files; `missing` says which. */
static int refuse_incomplete(const char *folder, const dcp_error *missing, dcp_error *err) {
    int world = 0;
    bool is_part = false;
    int status = format_folder_world(folder, INT_MAX, &world, err);
    unsigned char *kept = status || !world ? NULL : malloc((size_t)world);
    if (!status && world && !kept) status = core_fail_memory(err, (uint64_t)world);
    if (kept) status = format_about_is_part(folder, world, kept, &is_part, err);
    if (!status && is_part) status = fail_part(folder, world, kept, err);
    free(kept);
    return status ? status : core_fail_again(err, missing->status, missing, "%s", missing->message);
}

static int find_files_shared(dcp_checkpoint *ckpt, const char *folder, size_t *n, dcp_error *err) {
    dcp_error why;
    const int status = format_folder_files(folder, n, &ckpt->layout, &why);
    if (status == DCP_ERR_CORRUPT) return refuse_incomplete(folder, &why, err);
    return status ? core_fail_again(err, status, &why, "%s", why.message) : DCP_OK;
}

/* The numbers that rank 0 broadcasts about a step in a shared directory. The message that follows
 * contains the folder and, for layout global, the tables. */
typedef struct found_step {
    uint64_t files, layout, folder_bytes;
} found_step;

/* Called on rank 0 only: finds the step, and prepares everything that rank 0 broadcasts. */
static int look_shared(dcp_checkpoint *ckpt, const char *path, comm_buffer *message,
                       found_step *found, dcp_error *err) {
    char folder[PATH_MAX] = "";
    unsigned char *tables = NULL;
    uint64_t bytes = 0;
    size_t n = 0;
    int status = resolve(path, folder, err);
    if (!status) status = hold_folder(ckpt, folder, true, err);
    if (!status) status = find_files_shared(ckpt, folder, &n, err);
    if (!status) status = name_files(ckpt, folder, n, err);
    if (!status && !is_sharded(ckpt))
        status = format_tables_pack(&ckpt->files[0], &tables, &bytes, err);
    const size_t length = strlen(folder) + 1;
    unsigned char *at = status ? NULL : comm_buffer_append(message, length + bytes);
    if (!status && !at) status = core_fail_memory(err, length + bytes);
    if (at) memcpy(at, folder, length);
    if (at && bytes) memcpy(at + length, tables, bytes);
    free(tables);
    *found = (found_step){n, ckpt->layout, length};
    return status;
}

/* Collective; begins with comm_agree of `status`. Broadcasts rank 0's message. `ckpt` is NULL on a
 * rank that has failed. */
static int share_found(dcp_comm *comm, int status, dcp_checkpoint *ckpt, const char *path,
                       comm_buffer *message, found_step *found, dcp_error *err) {
    const bool is_first = comm->rank == 0;
    comm_vote v = {0};
    comm_vote_from(&v, is_first, &found->files, 1);
    comm_vote_from(&v, is_first, &found->layout, 1);
    comm_vote_from(&v, is_first, &found->folder_bytes, 1);
    if (is_first && !status) status = look_shared(ckpt, path, message, found, err);
    return comm_buffer_agree_broadcast(comm, status, message, 0, &v, err);
}

/* Fills in the checkpoint from the message: its path and layout, the files with their paths and,
 * for layout global, the tables. Not collective. */
static int take_found(dcp_checkpoint *ckpt, const comm_buffer *message, const found_step *found,
                      dcp_error *err) {
    const char *folder = (const char *)message->data;
    const bool is_first = ckpt->comm->rank == 0;
    int status = DCP_OK;
    ckpt->layout = (dcp_layout)found->layout;
    ckpt->path = strdup(folder);
    if (!is_first) {
        hold_folder(ckpt, folder, false, NULL);
        status = name_files(ckpt, folder, found->files, err);
    }
    if (!ckpt->path) return core_fail_memory(err, PATH_MAX);
    if (status || is_sharded(ckpt)) return status;
    status = format_tables_unpack(&ckpt->files[0], message->data + found->folder_bytes,
                                  message->bytes - found->folder_bytes, !is_first, err);
    return status ? status : reader_join_files(ckpt, err);
}

/* Collective; called at the end of opening, with its status. Returns this status unless the call
 * itself fails. Sets *moved to true if the step is gone on some rank, so the ranks have to search
 * again. `ckpt` is NULL on a rank that lacked memory. */
static int agree_whether_moved(dcp_comm *comm, const dcp_checkpoint *ckpt, int status, bool *moved,
                               dcp_error *err) {
    uint64_t any = ckpt && reader_checkpoint_is_gone(ckpt);
    dcp_error why = {0};
    if (status == DCP_ERR_COMM) return status;
    int asked = comm_allreduce(comm, &any, 1, DCP_REDUCE_MAX, &why);
    *moved = any != 0;
    if (asked && err) *err = why;
    return asked ? asked : status;
}

/* Opens the step that `path` refers to. Begins with comm_agree of `status`. Sets *moved to true if,
 * at the end, the step is gone on some rank (reader_checkpoint_is_gone). `ckpt` is NULL on a rank
 * that lacked memory for it; `status` says so. */
typedef int (*open_fn)(dcp_comm *comm, int status, dcp_checkpoint *ckpt, const char *path,
                       bool *moved, dcp_error *err);

/* Opens a step in a directory that all ranks share. */
static int open_shared(dcp_comm *comm, int status, dcp_checkpoint *ckpt, const char *path,
                       bool *moved, dcp_error *err) {
    comm_buffer message = {0};
    found_step found = {0};
    status = share_found(comm, status, ckpt, path, &message, &found, err);
    if (!status) {
        const int own = take_found(ckpt, &message, &found, err);
        uint64_t stays = !reader_checkpoint_is_gone(ckpt);
        if (found.layout == DCP_LAYOUT_SHARDED)
            status = reader_homes_open(ckpt, own, moved, err);
        else if (!(status = comm_agree_min(comm, own, &stays, 1, err)))
            *moved = !stays;
    }
    free(message.data);
    return status ? agree_whether_moved(comm, ckpt, status, moved, err) : DCP_OK;
}

/* Sets the paths of files that this rank does not see to their paths on the ranks that read them.
 * `folders` contains the folder of each rank, `bytes` bytes per rank. */
static int name_hidden(dcp_checkpoint *ckpt, const char *folders, uint64_t bytes, dcp_error *err) {
    for (size_t f = 0; f < ckpt->n_files; f++) {
        format_file *file = &ckpt->files[f];
        if (!file->hidden) continue;
        free(file->path);
        file->path = format_folder_path(folders + (uint64_t)file->reader * bytes, ckpt->layout, f,
                                        ckpt->n_files);
        if (!file->path) return core_fail_memory(err, PATH_MAX);
    }
    return DCP_OK;
}

/* Collective. Sends the folders of all ranks to all ranks. */
static int share_folders(dcp_checkpoint *ckpt, const char *folder, dcp_error *err) {
    dcp_comm *comm = ckpt->comm;
    uint64_t bytes = strlen(folder) + 1, ranks = (uint64_t)comm->size;
    int status = comm_allreduce(comm, &bytes, 1, DCP_REDUCE_MAX, err);
    if (status) return status;
    char *folders = calloc(ranks + 1, bytes), *own = folders ? folders + ranks * bytes : NULL;
    if (own) strcpy(own, folder);
    status = comm_agree(comm, own ? DCP_OK : core_fail_memory(err, ranks * bytes), err);
    if (!status) status = comm_gather(comm, own, bytes, folders, 0, err);
    if (!status) status = comm_broadcast(comm, folders, ranks * bytes, 0, err);
    for (uint64_t r = 0; r < ranks && !status; r++) folders[(r + 1) * bytes - 1] = 0;
    if (!status) status = comm_agree(comm, name_hidden(ckpt, folders, bytes, err), err);
    free(folders);
    return status;
}

/* Sets the step's folder: the folder that this rank sees or, if it sees no file, the first file's
 * folder. */
static int name_folder(dcp_checkpoint *ckpt, const reader_visibility *v, dcp_error *err) {
    bool any = memchr(v->visible, 1, v->n) != NULL;
    const char *path = any ? v->folder : ckpt->files[0].path;
    ckpt->path = path ? strdup(path) : NULL;
    if (ckpt->path && !any) *strrchr(ckpt->path, '/') = '\0';
    for (size_t f = 0; f < v->n; f++)
        if (!ckpt->files[f].path) return core_fail_memory(err, PATH_MAX);
    return ckpt->path ? DCP_OK : core_fail_memory(err, PATH_MAX);
}

static int take_visible(dcp_checkpoint *ckpt, const reader_visibility *v, dcp_error *err) {
    uint64_t any[2] = {memchr(v->visible, 0, v->n) != NULL, ckpt->copies_rows != 0};
    ckpt->layout = v->layout;
    int status = memchr(v->visible, 1, v->n) ? hold_folder(ckpt, v->folder, true, err) : DCP_OK;
    if (!status) status = name_files(ckpt, v->folder, v->n, err);
    status = comm_agree(ckpt->comm, status, err);
    if (!status) status = comm_allreduce(ckpt->comm, any, 2, DCP_REDUCE_MAX, err);
    ckpt->scattered = any[0] != 0;
    ckpt->copies_rows = any[1] != 0;
    for (size_t f = 0; f < v->n && !status; f++) {
        ckpt->files[f].reader = (int)v->readers[f];
        ckpt->files[f].hidden = !v->visible[f];
    }
    if (!status && ckpt->scattered) status = share_folders(ckpt, v->folder, err);
    return status ? status : comm_agree(ckpt->comm, name_folder(ckpt, v, err), err);
}

/* Finds a step in directories that may differ between ranks. */
static int find_private(dcp_checkpoint *ckpt, const char *own_path, dcp_error *err) {
    reader_visibility v;
    int status = reader_visibility_find(ckpt->comm, own_path, &v, err);
    for (int look = 1; look < LISTINGS && core_fail_is_damage(status); look++) {
        reader_visibility_free(&v);
        status = reader_visibility_find(ckpt->comm, own_path, &v, err);
    }
    if (!status) status = take_visible(ckpt, &v, err);
    reader_visibility_free(&v);
    return status;
}

/* Collective. Layout global: sends the tables of the only file to all ranks. */
static int open_state_file(dcp_checkpoint *ckpt, dcp_error *err) {
    int status = share_tables(ckpt->comm, &ckpt->files[0], err);
    return status ? status : comm_agree(ckpt->comm, reader_join_files(ckpt, err), err);
}

static int open_private(dcp_comm *comm, int status, dcp_checkpoint *ckpt, const char *path,
                        bool *moved, dcp_error *err) {
    status = comm_agree(comm, status, err);
    if (status) return status;
    status = find_private(ckpt, path, err);
    if (!status && is_sharded(ckpt)) {
        status = reader_homes_open(ckpt, DCP_OK, moved, err);
        if (!status) return DCP_OK;
    } else if (!status) {
        status = open_state_file(ckpt, err);
    }
    return agree_whether_moved(comm, ckpt, status, moved, err);
}

static int open_found(dcp_comm *comm, const char *path, open_fn open_step, bool copies_rows,
                      dcp_checkpoint **out, dcp_error *err) {
    if (!comm) return core_fail(err, DCP_ERR_ARG, "dcp_checkpoint_open: a communicator is needed");
    int status = DCP_OK;
    bool moved = true;
    for (int look = 0; look < LOOKS && moved; look++) {
        dcp_checkpoint *ckpt = calloc(1, sizeof *ckpt);
        moved = false;
        status = ckpt ? DCP_OK : core_fail_memory(err, sizeof *ckpt);
        if (!out) status = core_fail(err, DCP_ERR_ARG, "dcp_checkpoint_open: out is NULL");
        if (ckpt) {
            ckpt->comm = comm;
            ckpt->copies_rows = copies_rows;
        }
        if (!status) status = core_path_check(NULL, path, err);
        status = open_step(comm, status, ckpt, path, &moved, err);
        if (!status && (!moved || look + 1 == LOOKS))
            *out = ckpt;
        else
            dcp_checkpoint_close(ckpt);
    }
    return status;
}

int dcp_checkpoint_open(dcp_comm *comm, const char *path, dcp_checkpoint **out, dcp_error *err) {
    return open_found(comm, path, open_shared, false, out, err);
}

int dcp_checkpoint_open_private(dcp_comm *comm, const char *own_path, dcp_checkpoint **out,
                                dcp_error *err) {
    return open_found(comm, own_path, open_private, true, out, err);
}

int reader_open_private(dcp_comm *comm, const char *own_path, dcp_checkpoint **out,
                        dcp_error *err) {
    return open_found(comm, own_path, open_private, false, out, err);
}

void dcp_checkpoint_close(dcp_checkpoint *ckpt) {
    if (!ckpt) return;
    reader_checkpoint_wait(ckpt);
    for (size_t i = 0; ckpt->files && i < ckpt->n_files; i++) format_tables_free(&ckpt->files[i]);
    free(ckpt->files);
    free(ckpt->by_address);
    free(ckpt->reader_ranges);
    free(ckpt->tensors);
    free(ckpt->tensor_paths);
    free(ckpt->datasets);
    reader_view_free_found(ckpt);
    free(ckpt->in_order);
    free(ckpt->packed);
    format_hold_close(ckpt->hold);
    free(ckpt->path);
    free(ckpt->json);
    reader_read_free_caches(ckpt);
    free(ckpt);
}
