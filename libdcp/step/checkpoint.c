/* Opening a checkpoint: each file's tables are read by one rank, all ranks decode the same bytes,
 * and join the files' rows into tensors. In layout global a row is a tensor; shards hold boxes of
 * tensors, which have to fit together. */
#include "step/checkpoint.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "comm/message.h"
#include "core/box.h"
#include "core/cover.h"
#include "core/fail.h"
#include "core/json.h"
#include "step/folder.h"
#include "step/hold.h"
#include "step/list.h"
#include "step/visibility.h"

enum {
    LOOKS = 100,  /* at a directory whose steps come and go */
    LISTINGS = 4, /* of one that seems to have none */
};

static int compare_tensor_paths(const char *a, size_t a_bytes, const char *b, size_t b_bytes) {
    int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
    return order ? order : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

static size_t tensor_path_bytes(const step_dataset *p) {
    return p->file->ub.layout == DCP_LAYOUT_SHARDED ? step_index_tensor_path(p->row->tensor.path)
                                                    : strlen(p->row->tensor.path);
}

static int by_dataset_tensor(const void *a, const void *b) {
    const step_dataset *x = a, *y = b;
    int order = compare_tensor_paths(x->row->tensor.path, tensor_path_bytes(x), y->row->tensor.path,
                                     tensor_path_bytes(y));
    if (order) return order;
    if (x->file != y->file) return x->file < y->file ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

static int by_reader(const void *a, const void *b) {
    const step_file *x = *(step_file *const *)a, *y = *(step_file *const *)b;
    if (x->reader != y->reader) return x->reader < y->reader ? -1 : 1;
    return (x > y) - (x < y);
}

/* Gives the files their addresses. */
static int place_files(dcp_checkpoint *ckpt, dcp_error *err) {
    size_t ranks = ckpt->scattered ? (size_t)ckpt->comm->size : 0, r = 0;
    ckpt->by_address = calloc(ckpt->n_files, sizeof *ckpt->by_address);
    if (ckpt->scattered) ckpt->reader_ranges = calloc(ranks + 1, sizeof *ckpt->reader_ranges);
    if (!ckpt->by_address || (ckpt->scattered && !ckpt->reader_ranges))
        return core_fail_memory(err, (ckpt->n_files + ranks) * sizeof *ckpt->reader_ranges);
    for (size_t f = 0; f < ckpt->n_files; f++) ckpt->by_address[f] = &ckpt->files[f];
    if (ckpt->scattered)
        qsort(ckpt->by_address, ckpt->n_files, sizeof *ckpt->by_address, by_reader);
    for (size_t f = 0; f < ckpt->n_files; f++) {
        step_file *file = ckpt->by_address[f];
        for (; r < ranks && r <= (size_t)file->reader; r++)
            ckpt->reader_ranges[r] = ckpt->address_end;
        file->base = ckpt->address_end;
        ckpt->address_end += file->ub.file_bytes;
        if (ckpt->address_end > MAX_STEP_BYTES)
            return core_fail_at(err, DCP_ERR_CORRUPT, file->path,
                                "user block: no step's files are that large");
    }
    for (; ckpt->reader_ranges && r <= ranks; r++) ckpt->reader_ranges[r] = ckpt->address_end;
    return DCP_OK;
}

static int collect_datasets(dcp_checkpoint *ckpt, size_t *n_out, dcp_error *err) {
    size_t n = 0, at = 0;
    int status = place_files(ckpt, err);
    if (status) return status;
    for (size_t f = 0; f < ckpt->n_files; f++) {
        step_file *file = &ckpt->files[f];
        file->first_block = ckpt->blocks;
        ckpt->blocks += file->ub.blocks.bytes / 8;
        n += file->ub.rows;
    }
    ckpt->datasets = malloc((n + 1) * sizeof *ckpt->datasets);
    if (!ckpt->datasets) return core_fail_memory(err, n * sizeof *ckpt->datasets);
    for (size_t f = 0; f < ckpt->n_files; f++)
        for (size_t i = 0; i < ckpt->files[f].ub.rows; i++)
            ckpt->datasets[at++] = (step_dataset){&ckpt->files[f], &ckpt->files[f].rows[i], 0};
    if (ckpt->layout == DCP_LAYOUT_SHARDED) /* else rows are tensors, in this order */
        qsort(ckpt->datasets, n, sizeof *ckpt->datasets, by_dataset_tensor);
    *n_out = n;
    return DCP_OK;
}

/* Puts the tensor's datasets in the order of their boxes, and leaves out those without elements. */
static int order_datasets(dcp_checkpoint *ckpt, step_tensor *t, const cover_box *boxes, size_t n,
                          dcp_error *err) {
    step_dataset *datasets = ckpt->datasets + t->first_dataset;
    step_dataset *before = malloc((t->n_datasets + 1) * sizeof *before);
    if (!before) return core_fail_memory(err, t->n_datasets * sizeof *before);
    memcpy(before, datasets, t->n_datasets * sizeof *before);
    t->sweep = core_cover_finest(t->tensor.ndim, t->tensor.shape, boxes, n);
    t->n_datasets = n;
    for (size_t i = 0; i < n; i++) {
        datasets[i] = before[boxes[i].tag];
        if (boxes[i].box.count[t->sweep] > t->longest) t->longest = boxes[i].box.count[t->sweep];
    }
    free(before);
    return DCP_OK;
}

/* All datasets of a tensor name the same type and shape, and together they cover it once. */
static int check_tensor(dcp_checkpoint *ckpt, step_tensor *t, dcp_error *err) {
    const step_dataset *datasets = ckpt->datasets + t->first_dataset;
    cover_box *boxes = calloc(t->n_datasets + 1, sizeof *boxes);
    if (!boxes) return core_fail_memory(err, t->n_datasets * sizeof *boxes);
    int status = DCP_OK;
    size_t n = 0, first, second;
    for (size_t i = 0; i < t->n_datasets; i++) {
        if (!core_tensor_same(&datasets[i].row->tensor, &t->tensor))
            status = core_fail_tensor(core_fail_at(err, DCP_ERR_CORRUPT, ckpt->path,
                                                   "tensor %s: files differ in its shape",
                                                   t->tensor.path),
                                      t->tensor.path, err);
        if (datasets[i].row->bytes)
            boxes[n++] = (cover_box){.box = step_index_row_box(datasets[i].row), .tag = i};
    }
    if (!status && t->bytes &&
        core_cover_check(t->tensor.ndim, t->tensor.shape, boxes, n, &first, &second) != COVER_EXACT)
        status = core_fail_tensor(core_fail_at(err, DCP_ERR_CORRUPT, ckpt->path,
                                               "tensor %s: the shards don't cover it once",
                                               t->tensor.path),
                                  t->tensor.path, err);
    if (!status && t->bytes) status = order_datasets(ckpt, t, boxes, n, err);
    free(boxes);
    return status;
}

static void count_blocks(dcp_checkpoint *ckpt, step_tensor *t) {
    for (size_t k = 0; k < t->n_datasets; k++) {
        ckpt->datasets[t->first_dataset + k].first_block = t->blocks;
        t->blocks += step_index_blocks(ckpt->datasets[t->first_dataset + k].row->bytes);
    }
}

/* The first of the tensor's datasets that starts at `at` or after it on the dimension of the sweep.
 */
static size_t first_from(const step_tensor *t, const step_dataset *datasets, uint64_t at) {
    size_t low = 0, high = t->n_datasets;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const dcp_box *box = datasets[middle].row->box;
        if ((box ? box->start[t->sweep] : 0) < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void step_checkpoint_near(const dcp_checkpoint *ckpt, const step_tensor *t, const dcp_box *box,
                          size_t *first, size_t *end) {
    const step_dataset *datasets = ckpt->datasets + t->first_dataset;
    *first = 0;
    *end = t->n_datasets;
    if (t->n_datasets < 2 || !t->longest) return;
    uint64_t start = box->start[t->sweep];
    *first = first_from(t, datasets, start < t->longest ? 0 : start - t->longest + 1);
    *end = first_from(t, datasets, start + box->count[t->sweep]);
}

/* Whether dataset i is of another tensor than the one before. */
static int begins_tensor(const dcp_checkpoint *ckpt, size_t i) {
    if (!i || ckpt->layout == DCP_LAYOUT_GLOBAL) return 1;
    const step_dataset *datasets = ckpt->datasets;
    const step_dataset *a = &datasets[i - 1], *b = &datasets[i];
    return compare_tensor_paths(a->row->tensor.path, tensor_path_bytes(a), b->row->tensor.path,
                                tensor_path_bytes(b)) != 0;
}

/* A tensor for each group of datasets, with a path of its own. */
static int name_tensors(dcp_checkpoint *ckpt, size_t n, dcp_error *err) {
    size_t bytes = 0, tensors = 0;
    for (size_t i = 0; i < n; i++)
        if (begins_tensor(ckpt, i)) {
            bytes += tensor_path_bytes(&ckpt->datasets[i]) + 1;
            tensors++;
        }
    ckpt->tensors = calloc(tensors + 1, sizeof *ckpt->tensors);
    ckpt->tensor_paths = malloc(bytes + 1);
    if (!ckpt->tensors || !ckpt->tensor_paths) return core_fail_memory(err, bytes);
    char *path = ckpt->tensor_paths;
    for (size_t i = 0; i < n; i++) {
        const step_dataset *p = &ckpt->datasets[i];
        if (!begins_tensor(ckpt, i)) {
            ckpt->tensors[ckpt->n_tensors - 1].n_datasets++;
            continue;
        }
        size_t length = tensor_path_bytes(p);
        step_tensor *t = &ckpt->tensors[ckpt->n_tensors++];
        *t = (step_tensor){.tensor = p->row->tensor, .first_dataset = i, .n_datasets = 1};
        t->tensor.path = path;
        memcpy(path, p->row->tensor.path, length);
        path[length] = 0;
        path += length + 1;
        t->bytes = dcp_tensor_bytes(&t->tensor);
    }
    return DCP_OK;
}

/* Takes "shard" out of a shard's JSON and checks it. */
static int check_shard(const dcp_checkpoint *ckpt, size_t number, json_t *meta, char *id,
                       dcp_error *err) {
    const char *path = ckpt->files[number].path, *text = NULL;
    json_int_t rank = -1, world = -1;
    json_t *shard = json_object_get(meta, "shard");
    if (!shard ||
        json_unpack(shard, "{s:I, s:s, s:I}", "rank", &rank, "state_id", &text, "world", &world) ||
        rank != (json_int_t)number || world != (json_int_t)ckpt->n_files || strlen(text) != 16)
        return core_fail_at(err, DCP_ERR_CORRUPT, path,
                            "meta: it is shard %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT
                            ", not %zu of %zu",
                            rank, world, number, ckpt->n_files);
    memcpy(id, text, 17);
    json_object_del(meta, "shard");
    return DCP_OK;
}

/* A folder that was renamed would pass for another step of the run. */
static int check_step(dcp_checkpoint *ckpt, json_int_t step, dcp_error *err) {
    uint64_t named;
    ckpt->step = (uint64_t)step;
    if (!step_name_read(ckpt->path, &named) || named == ckpt->step) return DCP_OK;
    return core_fail_at(err, DCP_ERR_CORRUPT, ckpt->path,
                        "meta: the folder says step %" PRIu64 ", meta says %" PRIu64, named,
                        ckpt->step);
}

static int read_meta(dcp_checkpoint *ckpt, size_t number, char **json, char *id, dcp_error *err) {
    const step_file *file = &ckpt->files[number];
    json_t *meta;
    dcp_error why;
    if (core_json_parse_object(file->meta, strlen(file->meta), &meta, &why))
        return core_fail_at(err, DCP_ERR_CORRUPT, file->path, "meta: not a JSON object: %s",
                            why.message);
    int status = DCP_OK;
    if (ckpt->layout == DCP_LAYOUT_SHARDED) status = check_shard(ckpt, number, meta, id, err);
    json_t *step = json_object_get(meta, "step");
    if (!status && (!json_is_integer(step) || json_integer_value(step) < 0))
        status = core_fail_at(err, DCP_ERR_CORRUPT, file->path, "meta: no step");
    if (!status && json == &ckpt->json) status = check_step(ckpt, json_integer_value(step), err);
    if (!status && !(*json = core_json_canonical(meta)))
        status = core_fail_memory(err, strlen(file->meta));
    json_decref(meta);
    return status;
}

static int check_meta(dcp_checkpoint *ckpt, size_t first, size_t number, dcp_error *err) {
    char *json = NULL, id[17] = "";
    int status = read_meta(ckpt, number, &json, id, err);
    if (!status && (strcmp(json, ckpt->json) || strcmp(id, ckpt->state_id)))
        status = core_fail_at(err, DCP_ERR_CORRUPT, ckpt->files[number].path,
                              "meta: of another state than %s", ckpt->files[first].path);
    free(json);
    return status;
}

int step_checkpoint_read_metas(dcp_checkpoint *ckpt, dcp_error *err) {
    size_t first = 0;
    while (first < ckpt->n_files && !ckpt->files[first].path) first++;
    if (first == ckpt->n_files) return DCP_OK;
    int status = read_meta(ckpt, first, &ckpt->json, ckpt->state_id, err);
    for (size_t f = first + 1; f < ckpt->n_files && !status; f++)
        if (ckpt->files[f].path) status = check_meta(ckpt, first, f, err);
    return status;
}

int step_checkpoint_join(dcp_checkpoint *ckpt, dcp_error *err) {
    size_t n = 0;
    for (size_t f = 0; f < ckpt->n_files; f++)
        if (ckpt->files[f].ub.layout != ckpt->layout)
            return core_fail_at(err, DCP_ERR_CORRUPT, ckpt->files[f].path,
                                "user block: of the other layout");
    int status = collect_datasets(ckpt, &n, err);
    if (!status) status = name_tensors(ckpt, n, err);
    if (!status) status = step_checkpoint_read_metas(ckpt, err);
    for (size_t i = 0; i < ckpt->n_tensors && !status; i++)
        if (ckpt->layout == DCP_LAYOUT_SHARDED) status = check_tensor(ckpt, &ckpt->tensors[i], err);
    for (size_t i = 0; i < ckpt->n_tensors && !status; i++) count_blocks(ckpt, &ckpt->tensors[i]);
    return status;
}

static int is_no_step(int status) {
    return status == DCP_ERR_NOT_FOUND || status == DCP_ERR_CORRUPT;
}

/* A listing that is made while a writer publishes one step and removes another may see neither. */
static int find_newest(const char *dir, char *folder, dcp_error *err) {
    uint64_t step;
    int status = step_list_newest(dir, folder, &step, err);
    for (int look = 1; look < LISTINGS && is_no_step(status); look++)
        status = step_list_newest(dir, folder, &step, err);
    return status;
}

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
    if (step_folder_files(path, &n, &layout, NULL) && !step_name_read(path, &step))
        return find_newest(path, folder, err);
    if (strlen(path) >= PATH_MAX) return core_fail(err, DCP_ERR_ARG, "%.80s: too long", path);
    strcpy(folder, path);
    return DCP_OK;
}

/* One file's packed tables from its reader, which checks their rows, to all. */
static int share_tables(dcp_comm *comm, step_file *file, dcp_error *err) {
    comm_message packed = {0};
    int status = DCP_OK, checked = comm->rank != file->reader;
    if (!checked) status = step_tables_pack(file, &packed.data, &packed.bytes, err);
    status = comm_agree(comm, status, err);
    if (!status) status = comm_message_broadcast(comm, &packed, file->reader, err);
    if (!status) {
        status = step_tables_unpack(file, packed.data, packed.bytes, checked, err);
        status = comm_agree(comm, status, err);
    }
    free(packed.data);
    return status;
}

int step_checkpoint_make_files(dcp_checkpoint *ckpt, size_t n, dcp_error *err) {
    ckpt->files = calloc(n + 1, sizeof *ckpt->files);
    if (!ckpt->files) return core_fail_memory(err, n * sizeof *ckpt->files);
    ckpt->n_files = n;
    for (size_t i = 0; i < n; i++) {
        ckpt->files[i] = step_file_of(NULL);
        if (ckpt->hold) ckpt->files[i].folder = ckpt->hold->folder_fd;
    }
    return DCP_OK;
}

/* Opens the step's folder on this rank. Where that fails, its files are opened by their paths.
 * DCP_ERR_NOT_FOUND: the step is going. */
static int hold_folder(dcp_checkpoint *ckpt, const char *folder, int locks, dcp_error *err) {
    ckpt->hold = step_hold_open(folder, locks, &ckpt->gone);
    if (!ckpt->hold || !ckpt->hold->is_claimed) return DCP_OK;
    return core_fail_at(err, DCP_ERR_NOT_FOUND, folder,
                        "its store's writer is removing it, and has locked about.json");
}

/* The files of the folder, with their paths. */
static int name_files(dcp_checkpoint *ckpt, const char *folder, size_t n, dcp_error *err) {
    int status = step_checkpoint_make_files(ckpt, n, err);
    for (size_t i = 0; i < n && !status; i++) {
        ckpt->files[i].path = step_folder_path(folder, ckpt->layout, i, n);
        if (!ckpt->files[i].path) status = core_fail_memory(err, PATH_MAX);
    }
    return status;
}

/* Finds the step's folder and fills path, layout and files, with their paths. */
typedef int (*find_fn)(dcp_checkpoint *ckpt, const char *path, dcp_error *err);

/* In a directory that all ranks share: what rank 0 sees counts. */
static int find_shared(dcp_checkpoint *ckpt, const char *path, dcp_error *err) {
    char folder[PATH_MAX] = "";
    uint64_t head[2] = {0, 0};
    int status = DCP_OK;
    if (ckpt->comm->rank == 0) {
        size_t n = 0;
        status = resolve(path, folder, err);
        if (!status) status = hold_folder(ckpt, folder, 1, err);
        if (!status) status = step_folder_files(folder, &n, &ckpt->layout, err);
        head[0] = n;
        head[1] = ckpt->layout;
    }
    status = comm_agree(ckpt->comm, status, err);
    if (!status) status = comm_broadcast(ckpt->comm, head, sizeof head, 0, err);
    if (!status) status = comm_broadcast(ckpt->comm, folder, sizeof folder, 0, err);
    if (status) return status;
    ckpt->layout = (dcp_layout)head[1];
    ckpt->path = strdup(folder);
    if (ckpt->comm->rank != 0) hold_folder(ckpt, folder, 0, err);
    status = name_files(ckpt, folder, head[0], err);
    if (!ckpt->path) status = core_fail_memory(err, PATH_MAX);
    return comm_agree(ckpt->comm, status, err);
}

/* Collective. The path of a file as its reader sees it, to those who don't; NULL: no memory. */
static int share_path(dcp_comm *comm, step_file *file, dcp_error *err) {
    char path[PATH_MAX] = "";
    if (comm->rank == file->reader) snprintf(path, sizeof path, "%s", file->path);
    int status = comm_broadcast(comm, path, sizeof path, file->reader, err);
    if (status || !file->hidden) return status;
    free(file->path);
    file->path = strdup(path);
    return DCP_OK;
}

/* The step's folder: this rank's, or where it sees nothing the first file's. */
static int name_folder(dcp_checkpoint *ckpt, const step_visibility *v, dcp_error *err) {
    int any = memchr(v->seen, 1, v->n) != NULL;
    const char *path = any ? v->folder : ckpt->files[0].path;
    ckpt->path = path ? strdup(path) : NULL;
    if (ckpt->path && !any) *strrchr(ckpt->path, '/') = '\0';
    for (size_t f = 0; f < v->n; f++)
        if (!ckpt->files[f].path) return core_fail_memory(err, PATH_MAX);
    return ckpt->path ? DCP_OK : core_fail_memory(err, PATH_MAX);
}

static int take_visible(dcp_checkpoint *ckpt, const step_visibility *v, dcp_error *err) {
    uint64_t hidden = memchr(v->seen, 0, v->n) != NULL;
    ckpt->layout = v->layout;
    int status = memchr(v->seen, 1, v->n) ? hold_folder(ckpt, v->folder, 1, err) : DCP_OK;
    if (!status) status = name_files(ckpt, v->folder, v->n, err);
    status = comm_agree(ckpt->comm, status, err);
    if (!status) status = comm_allreduce(ckpt->comm, &hidden, 1, DCP_REDUCE_MAX, err);
    ckpt->scattered = hidden != 0;
    for (size_t f = 0; f < v->n && !status; f++) {
        ckpt->files[f].reader = (int)v->readers[f];
        ckpt->files[f].hidden = !v->seen[f];
        if (hidden) status = share_path(ckpt->comm, &ckpt->files[f], err);
    }
    return status ? status : comm_agree(ckpt->comm, name_folder(ckpt, v, err), err);
}

/* In directories of which ranks may have different ones. */
static int find_private(dcp_checkpoint *ckpt, const char *own_path, dcp_error *err) {
    step_visibility v;
    int status = step_visibility_find(ckpt->comm, own_path, &v, err);
    for (int look = 1; look < LISTINGS && is_no_step(status); look++) {
        step_visibility_free(&v);
        status = step_visibility_find(ckpt->comm, own_path, &v, err);
    }
    if (!status) status = take_visible(ckpt, &v, err);
    step_visibility_free(&v);
    return status;
}

/* Collective. Whether to look again: on some rank what was found has lost its name since, or is
 * about to, so that it was no step of the directory any more by the time that it was held. */
static int has_moved(dcp_checkpoint *ckpt, int *moved, dcp_error *err) {
    const step_hold *hold = ckpt->hold;
    uint64_t any = hold ? hold->is_claimed || !step_hold_is_named(hold) : ckpt->gone != 0;
    int status = comm_allreduce(ckpt->comm, &any, 1, DCP_REDUCE_MAX, err);
    *moved = any != 0;
    return status;
}

static int open_once(dcp_checkpoint *ckpt, const char *path, find_fn find, int *moved,
                     dcp_error *err) {
    dcp_error why = {0};
    int status = find(ckpt, path, err);
    for (size_t i = 0; i < ckpt->n_files && !status; i++)
        status = share_tables(ckpt->comm, &ckpt->files[i], err);
    if (!status) status = comm_agree(ckpt->comm, step_checkpoint_join(ckpt, err), err);
    if (status == DCP_ERR_COMM || !has_moved(ckpt, moved, &why)) return status;
    if (err) *err = why;
    return why.status;
}

static int open_found(dcp_comm *comm, const char *path, find_fn find, dcp_checkpoint **out,
                      dcp_error *err) {
    if (!comm) return core_fail(err, DCP_ERR_ARG, "dcp_checkpoint_open: a communicator is needed");
    int status = DCP_OK, moved = 1;
    for (int look = 0; look < LOOKS && moved; look++) {
        dcp_checkpoint *ckpt = calloc(1, sizeof *ckpt);
        moved = 0;
        status = ckpt ? DCP_OK : core_fail_memory(err, sizeof *ckpt);
        if (!out) status = core_fail(err, DCP_ERR_ARG, "dcp_checkpoint_open: out is NULL");
        status = comm_agree(comm, status, err);
        if (ckpt) ckpt->comm = comm;
        if (!status) status = open_once(ckpt, path, find, &moved, err);
        if (!status && (!moved || look + 1 == LOOKS))
            *out = ckpt;
        else
            dcp_checkpoint_close(ckpt);
    }
    return status;
}

int dcp_checkpoint_open(dcp_comm *comm, const char *path, dcp_checkpoint **out, dcp_error *err) {
    return open_found(comm, path, find_shared, out, err);
}

int dcp_checkpoint_open_private(dcp_comm *comm, const char *own_path, dcp_checkpoint **out,
                                dcp_error *err) {
    return open_found(comm, own_path, find_private, out, err);
}

void step_checkpoint_settle(dcp_checkpoint *ckpt) {
    if (ckpt->user) ckpt->user->settle(ckpt->user);
}

void dcp_checkpoint_close(dcp_checkpoint *ckpt) {
    if (!ckpt) return;
    step_checkpoint_settle(ckpt);
    for (size_t i = 0; ckpt->files && i < ckpt->n_files; i++) step_tables_free(&ckpt->files[i]);
    free(ckpt->files);
    free(ckpt->by_address);
    free(ckpt->reader_ranges);
    free(ckpt->tensors);
    free(ckpt->tensor_paths);
    free(ckpt->datasets);
    step_hold_close(ckpt->hold);
    free(ckpt->path);
    free(ckpt->json);
    free(ckpt->cache.data);
    free(ckpt);
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

static int by_tensor_path(const void *key, const void *tensor) {
    return strcmp(key, ((const step_tensor *)tensor)->tensor.path);
}

const step_tensor *step_checkpoint_lookup(const dcp_checkpoint *ckpt, const char *path) {
    return bsearch(path, ckpt->tensors, ckpt->n_tensors, sizeof *ckpt->tensors, by_tensor_path);
}

size_t dcp_checkpoint_boxes(const dcp_checkpoint *ckpt, size_t i) {
    return i < ckpt->n_tensors ? ckpt->tensors[i].n_datasets : 0;
}

int dcp_checkpoint_box(const dcp_checkpoint *ckpt, size_t i, size_t k, dcp_box *box) {
    if (k >= dcp_checkpoint_boxes(ckpt, i)) return -1;
    const step_dataset *p = &ckpt->datasets[ckpt->tensors[i].first_dataset + k];
    *box = step_index_row_box(p->row);
    return (int)(p->file - ckpt->files);
}

const dcp_tensor *dcp_checkpoint_find(const dcp_checkpoint *ckpt, const char *path) {
    const step_tensor *t = path ? step_checkpoint_lookup(ckpt, path) : NULL;
    return t ? &t->tensor : NULL;
}
