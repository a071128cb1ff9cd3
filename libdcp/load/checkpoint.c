/* Opening a checkpoint: each file's tables are read by one rank, all ranks decode the same bytes.
 */
#include "load/checkpoint.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/fail.h"
#include "store/store.h"

/* The step's folder that `path` means. */
static int resolve(const char *path, char *folder, dcp_error *err) {
    struct stat st;
    size_t n;
    dcp_layout layout;
    uint64_t step;
    if (!path) return core_fail(err, DCP_ERR_ARG, "dcp_checkpoint_open: a path is needed");
    if (stat(path, &st)) return core_fail_errno(err, "cannot find", path);
    if (!S_ISDIR(st.st_mode))
        return core_fail(err, DCP_ERR_ARG,
                         "%s: not a folder: give a step's folder or the "
                         "directory of steps",
                         path);
    if (step_files(path, &n, &layout, NULL) && !step_of_folder(path, &step))
        return store_newest(path, folder, &step, err);
    if (strlen(path) >= PATH_MAX) return core_fail(err, DCP_ERR_ARG, "%.80s: too long", path);
    strcpy(folder, path);
    return DCP_OK;
}

/* One file's packed tables from its reader, which checks their rows, to all. */
static int share_tables(dcp_comm *comm, ckpt_file *file, dcp_error *err) {
    unsigned char *packed = NULL;
    uint64_t bytes = 0;
    int status = DCP_OK;
    if (comm->rank == file->reader) status = tables_pack(file->path, &packed, &bytes, err);
    status = comm_agree(comm, status, err);
    if (status) return status;
    status = comm_broadcast(comm, &bytes, sizeof bytes, file->reader, err);
    if (status) goto free_packed;
    if (comm->rank != file->reader) packed = malloc(bytes);
    status = comm_agree(comm, packed ? DCP_OK : core_fail_memory(err, bytes), err);
    if (!status) status = comm_broadcast(comm, packed, bytes, file->reader, err);
    int checked = comm->rank != file->reader;
    if (!status) status = comm_agree(comm, tables_unpack(file, packed, bytes, checked, err), err);
free_packed:
    free(packed);
    return status;
}

/* Folder and number of files: what rank 0 sees counts. */
static int share_names(dcp_checkpoint *ckpt, const char *path, dcp_error *err) {
    char folder[PATH_MAX] = "";
    uint64_t head[2] = {0, 0};
    int status = DCP_OK;
    if (ckpt->comm->rank == 0) {
        size_t n = 0;
        status = resolve(path, folder, err);
        if (!status) status = step_files(folder, &n, &ckpt->layout, err);
        head[0] = n;
        head[1] = ckpt->layout;
    }
    status = comm_agree(ckpt->comm, status, err);
    if (!status) status = comm_broadcast(ckpt->comm, head, sizeof head, 0, err);
    if (!status) status = comm_broadcast(ckpt->comm, folder, sizeof folder, 0, err);
    if (status) return status;
    ckpt->layout = (dcp_layout)head[1];
    ckpt->n_files = head[0];
    ckpt->path = strdup(folder);
    ckpt->files = calloc(head[0], sizeof *ckpt->files);
    for (size_t i = 0; ckpt->files && i < ckpt->n_files; i++)
        ckpt->files[i].file.fd = ckpt->files[i].plain = -1;
    return comm_agree(ckpt->comm,
                      ckpt->path && ckpt->files ? DCP_OK : core_fail_memory(err, PATH_MAX), err);
}

static int name_files(dcp_checkpoint *ckpt, dcp_error *err) {
    for (size_t i = 0; i < ckpt->n_files; i++) {
        ckpt->files[i].path = step_file_path(ckpt->path, ckpt->layout, i, ckpt->n_files);
        if (!ckpt->files[i].path) return core_fail_memory(err, PATH_MAX);
    }
    return DCP_OK;
}

/* Finds the step's folder and fills path, layout and files, with their paths. */
typedef int (*find_fn)(dcp_checkpoint *ckpt, const char *path, dcp_error *err);

static int find_shared(dcp_checkpoint *ckpt, const char *path, dcp_error *err) {
    int status = share_names(ckpt, path, err);
    return status ? status : comm_agree(ckpt->comm, name_files(ckpt, err), err);
}

static int open_found(dcp_comm *comm, const char *path, find_fn find, dcp_checkpoint **out,
                      dcp_error *err) {
    if (!comm) return core_fail(err, DCP_ERR_ARG, "dcp_checkpoint_open: a communicator is needed");
    dcp_checkpoint *ckpt = calloc(1, sizeof *ckpt);
    int status = ckpt ? DCP_OK : core_fail_memory(err, sizeof *ckpt);
    if (!out) status = core_fail(err, DCP_ERR_ARG, "dcp_checkpoint_open: out is NULL");
    status = comm_agree(comm, status, err);
    if (status) goto close_ckpt;
    ckpt->comm = comm;
    status = find(ckpt, path, err);
    for (size_t i = 0; i < ckpt->n_files && !status; i++)
        status = share_tables(comm, &ckpt->files[i], err);
    if (!status) status = comm_agree(comm, checkpoint_join(ckpt, err), err);
    if (status) goto close_ckpt;
    *out = ckpt;
    return DCP_OK;
close_ckpt:
    dcp_checkpoint_close(ckpt);
    return status;
}

int dcp_checkpoint_open(dcp_comm *comm, const char *path, dcp_checkpoint **out, dcp_error *err) {
    return open_found(comm, path, find_shared, out, err);
}

int dcp_checkpoint_open_private(dcp_comm *comm, const char *own_path, dcp_checkpoint **out,
                                dcp_error *err) {
    return open_found(comm, own_path, sight_find, out, err);
}

void dcp_checkpoint_close(dcp_checkpoint *ckpt) {
    if (!ckpt) return;
    for (size_t i = 0; ckpt->files && i < ckpt->n_files; i++) tables_free(&ckpt->files[i]);
    free(ckpt->files);
    free(ckpt->by_address);
    free(ckpt->lanes);
    free(ckpt->tensors);
    free(ckpt->tensor_paths);
    free(ckpt->pieces);
    free(ckpt->path);
    free(ckpt->json);
    free(ckpt->cache.data);
    free(ckpt);
}

static int check_visible(const ckpt_file *file, dcp_error *err) {
    if (!file->hidden) return DCP_OK;
    return core_fail(err, DCP_ERR_UNSUPPORTED,
                     "%s can be read on rank %d and not here: dcp_load brings its tensors",
                     file->path, file->reader);
}

int checkpoint_file(ckpt_file *file, dcp_error *err) {
    if (file->file.fd >= 0) return DCP_OK;
    int status = check_visible(file, err);
    return status ? status : io_open(file->path, 0, &file->file, err);
}

int checkpoint_plain(ckpt_file *file, dcp_error *err) {
    uint64_t bytes;
    int fd, none = -1;
    if (__atomic_load_n(&file->plain, __ATOMIC_ACQUIRE) >= 0) return DCP_OK;
    int status = check_visible(file, err);
    if (!status) status = io_open_regular(file->path, O_RDONLY, &fd, &bytes, err);
    if (status) return status;
    if (!__atomic_compare_exchange_n(&file->plain, &none, fd, 0, __ATOMIC_ACQ_REL,
                                     __ATOMIC_ACQUIRE))
        close(fd); /* another thread was faster */
    return DCP_OK;
}

const char *dcp_checkpoint_path(const dcp_checkpoint *ckpt) { return ckpt->path; }
uint64_t dcp_checkpoint_step(const dcp_checkpoint *ckpt) { return ckpt->step; }
dcp_layout dcp_checkpoint_layout(const dcp_checkpoint *ckpt) { return ckpt->layout; }
int dcp_checkpoint_files(const dcp_checkpoint *ckpt) { return (int)ckpt->n_files; }
const char *dcp_checkpoint_json(const dcp_checkpoint *ckpt) { return ckpt->json; }
size_t dcp_checkpoint_tensors(const dcp_checkpoint *ckpt) { return ckpt->n_tensors; }

const dcp_tensor *dcp_checkpoint_tensor(const dcp_checkpoint *ckpt, size_t i) {
    return i < ckpt->n_tensors ? &ckpt->tensors[i].tensor : NULL;
}

static int by_path(const void *key, const void *tensor) {
    return strcmp(key, ((const ckpt_tensor *)tensor)->tensor.path);
}

const ckpt_tensor *checkpoint_lookup(const dcp_checkpoint *ckpt, const char *path) {
    return bsearch(path, ckpt->tensors, ckpt->n_tensors, sizeof *ckpt->tensors, by_path);
}

size_t dcp_checkpoint_boxes(const dcp_checkpoint *ckpt, size_t i) {
    return i < ckpt->n_tensors ? ckpt->tensors[i].n_pieces : 0;
}

int dcp_checkpoint_box(const dcp_checkpoint *ckpt, size_t i, size_t k, dcp_box *box) {
    if (k >= dcp_checkpoint_boxes(ckpt, i)) return -1;
    const ckpt_piece *p = &ckpt->pieces[ckpt->tensors[i].first_piece + k];
    *box = step_index_row_box(p->row);
    return (int)(p->file - ckpt->files);
}

const dcp_tensor *dcp_checkpoint_find(const dcp_checkpoint *ckpt, const char *path) {
    const ckpt_tensor *t = path ? checkpoint_lookup(ckpt, path) : NULL;
    return t ? &t->tensor : NULL;
}
