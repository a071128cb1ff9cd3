/* From rows of files to tensors. In layout global a row is a tensor; shards hold boxes of tensors,
 * which have to fit together. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/box.h"
#include "core/cover.h"
#include "core/fail.h"
#include "core/json.h"
#include "load/checkpoint.h"

static int compare_paths(const char *a, size_t a_bytes, const char *b, size_t b_bytes) {
    int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
    return order ? order : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

static size_t tensor_path_bytes(const ckpt_piece *p) {
    return p->file->ub.layout == DCP_LAYOUT_SHARDED ? step_index_tensor_path(p->row->tensor.path)
                                                    : strlen(p->row->tensor.path);
}

static int by_tensor(const void *a, const void *b) {
    const ckpt_piece *x = a, *y = b;
    int order = compare_paths(x->row->tensor.path, tensor_path_bytes(x), y->row->tensor.path,
                              tensor_path_bytes(y));
    if (order) return order;
    if (x->file != y->file) return x->file < y->file ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

static int by_reader(const void *a, const void *b) {
    const ckpt_file *x = *(ckpt_file *const *)a, *y = *(ckpt_file *const *)b;
    if (x->reader != y->reader) return x->reader < y->reader ? -1 : 1;
    return (x > y) - (x < y);
}

/* Gives the files their addresses. */
static int place_files(dcp_checkpoint *ckpt, dcp_error *err) {
    size_t ranks = ckpt->scattered ? (size_t)ckpt->comm->size : 0, r = 0;
    ckpt->by_address = calloc(ckpt->n_files, sizeof *ckpt->by_address);
    if (ckpt->scattered) ckpt->lanes = calloc(ranks + 1, sizeof *ckpt->lanes);
    if (!ckpt->by_address || (ckpt->scattered && !ckpt->lanes))
        return core_fail_memory(err, (ckpt->n_files + ranks) * sizeof *ckpt->lanes);
    for (size_t f = 0; f < ckpt->n_files; f++) ckpt->by_address[f] = &ckpt->files[f];
    if (ckpt->scattered)
        qsort(ckpt->by_address, ckpt->n_files, sizeof *ckpt->by_address, by_reader);
    for (size_t f = 0; f < ckpt->n_files; f++) {
        ckpt_file *file = ckpt->by_address[f];
        for (; r < ranks && r <= (size_t)file->reader; r++) ckpt->lanes[r] = ckpt->address_end;
        file->base = ckpt->address_end;
        ckpt->address_end += file->ub.file_bytes;
    }
    for (; ckpt->lanes && r <= ranks; r++) ckpt->lanes[r] = ckpt->address_end;
    return DCP_OK;
}

static int collect_pieces(dcp_checkpoint *ckpt, size_t *n_out, dcp_error *err) {
    size_t n = 0, at = 0;
    int status = place_files(ckpt, err);
    if (status) return status;
    for (size_t f = 0; f < ckpt->n_files; f++) {
        ckpt_file *file = &ckpt->files[f];
        file->first_block = ckpt->blocks;
        ckpt->blocks += file->ub.blocks.bytes / 8;
        n += file->ub.rows;
    }
    ckpt->pieces = malloc((n + 1) * sizeof *ckpt->pieces);
    if (!ckpt->pieces) return core_fail_memory(err, n * sizeof *ckpt->pieces);
    for (size_t f = 0; f < ckpt->n_files; f++)
        for (size_t i = 0; i < ckpt->files[f].ub.rows; i++)
            ckpt->pieces[at++] = (ckpt_piece){&ckpt->files[f], &ckpt->files[f].rows[i], 0};
    if (ckpt->layout == DCP_LAYOUT_SHARDED) /* else rows are tensors, in this order */
        qsort(ckpt->pieces, n, sizeof *ckpt->pieces, by_tensor);
    *n_out = n;
    return DCP_OK;
}

/* Orders the tensor's pieces as their boxes are; what has no elements goes. */
static int order_pieces(dcp_checkpoint *ckpt, ckpt_tensor *t, const cover_box *boxes, size_t n,
                        dcp_error *err) {
    ckpt_piece *pieces = ckpt->pieces + t->first_piece;
    ckpt_piece *before = malloc((t->n_pieces + 1) * sizeof *before);
    if (!before) return core_fail_memory(err, t->n_pieces * sizeof *before);
    memcpy(before, pieces, t->n_pieces * sizeof *before);
    t->sweep = core_cover_finest(t->tensor.ndim, t->tensor.shape, boxes, n);
    t->n_pieces = n;
    for (size_t i = 0; i < n; i++) {
        pieces[i] = before[boxes[i].tag];
        if (boxes[i].box.count[t->sweep] > t->longest) t->longest = boxes[i].box.count[t->sweep];
    }
    free(before);
    return DCP_OK;
}

/* The pieces of one tensor agree about it and cover it. */
static int check_tensor(dcp_checkpoint *ckpt, ckpt_tensor *t, dcp_error *err) {
    const ckpt_piece *pieces = ckpt->pieces + t->first_piece;
    cover_box *boxes = calloc(t->n_pieces + 1, sizeof *boxes);
    if (!boxes) return core_fail_memory(err, t->n_pieces * sizeof *boxes);
    int status = DCP_OK;
    size_t n = 0, first, second;
    for (size_t i = 0; i < t->n_pieces; i++) {
        if (!core_tensor_same(&pieces[i].row->tensor, &t->tensor))
            status = core_fail(err, DCP_ERR_CORRUPT, "%s: tensor %s: files differ in its shape",
                               ckpt->path, t->tensor.path);
        if (pieces[i].row->bytes)
            boxes[n++] = (cover_box){.box = step_index_row_box(pieces[i].row), .tag = i};
    }
    if (!status && t->bytes &&
        core_cover_check(t->tensor.ndim, t->tensor.shape, boxes, n, &first, &second) != COVER_EXACT)
        status = core_fail(err, DCP_ERR_CORRUPT, "%s: tensor %s: the shards don't cover it once",
                           ckpt->path, t->tensor.path);
    if (!status && t->bytes) status = order_pieces(ckpt, t, boxes, n, err);
    free(boxes);
    return status;
}

static void count_blocks(dcp_checkpoint *ckpt, ckpt_tensor *t) {
    for (size_t k = 0; k < t->n_pieces; k++) {
        ckpt->pieces[t->first_piece + k].first_block = t->blocks;
        t->blocks += step_index_blocks(ckpt->pieces[t->first_piece + k].row->bytes);
    }
}

/* The first of the tensor's pieces that starts at `at` or after it on the dimension of the sweep.
 */
static size_t first_from(const ckpt_tensor *t, const ckpt_piece *pieces, uint64_t at) {
    size_t low = 0, high = t->n_pieces;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const dcp_box *box = pieces[middle].row->box;
        if ((box ? box->start[t->sweep] : 0) < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void checkpoint_near(const dcp_checkpoint *ckpt, const ckpt_tensor *t, const dcp_box *box,
                     size_t *first, size_t *end) {
    const ckpt_piece *pieces = ckpt->pieces + t->first_piece;
    *first = 0;
    *end = t->n_pieces;
    if (t->n_pieces < 2 || !t->longest) return;
    uint64_t start = box->start[t->sweep];
    *first = first_from(t, pieces, start < t->longest ? 0 : start - t->longest + 1);
    *end = first_from(t, pieces, start + box->count[t->sweep]);
}

/* Whether piece i is of another tensor than the one before. */
static int begins_tensor(const dcp_checkpoint *ckpt, size_t i) {
    if (!i || ckpt->layout == DCP_LAYOUT_GLOBAL) return 1;
    const ckpt_piece *pieces = ckpt->pieces;
    const ckpt_piece *a = &pieces[i - 1], *b = &pieces[i];
    return compare_paths(a->row->tensor.path, tensor_path_bytes(a), b->row->tensor.path,
                         tensor_path_bytes(b)) != 0;
}

/* A tensor for each group of pieces, with a path of its own. */
static int name_tensors(dcp_checkpoint *ckpt, size_t n, dcp_error *err) {
    size_t bytes = 0, tensors = 0;
    for (size_t i = 0; i < n; i++)
        if (begins_tensor(ckpt, i)) {
            bytes += tensor_path_bytes(&ckpt->pieces[i]) + 1;
            tensors++;
        }
    ckpt->tensors = calloc(tensors + 1, sizeof *ckpt->tensors);
    ckpt->tensor_paths = malloc(bytes + 1);
    if (!ckpt->tensors || !ckpt->tensor_paths) return core_fail_memory(err, bytes);
    char *path = ckpt->tensor_paths;
    for (size_t i = 0; i < n; i++) {
        const ckpt_piece *p = &ckpt->pieces[i];
        if (!begins_tensor(ckpt, i)) {
            ckpt->tensors[ckpt->n_tensors - 1].n_pieces++;
            continue;
        }
        size_t length = tensor_path_bytes(p);
        ckpt_tensor *t = &ckpt->tensors[ckpt->n_tensors++];
        *t = (ckpt_tensor){.tensor = p->row->tensor, .first_piece = i, .n_pieces = 1};
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
        return core_fail(err, DCP_ERR_CORRUPT,
                         "%s: meta: it is shard %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT
                         ", not %zu of %zu",
                         path, rank, world, number, ckpt->n_files);
    memcpy(id, text, 17);
    json_object_del(meta, "shard");
    return DCP_OK;
}

/* A folder that was renamed would pass for another step of the run. */
static int check_step(dcp_checkpoint *ckpt, json_int_t step, dcp_error *err) {
    uint64_t named;
    ckpt->step = (uint64_t)step;
    if (!step_of_folder(ckpt->path, &named) || named == ckpt->step) return DCP_OK;
    return core_fail(err, DCP_ERR_CORRUPT,
                     "%s: meta: the folder says step %" PRIu64 ", meta says %" PRIu64, ckpt->path,
                     named, ckpt->step);
}

static int read_meta(dcp_checkpoint *ckpt, size_t number, char **json, char *id, dcp_error *err) {
    const ckpt_file *file = &ckpt->files[number];
    json_t *meta;
    if (core_json_parse_object(file->meta, strlen(file->meta), &meta, NULL))
        return core_fail(err, DCP_ERR_CORRUPT, "%s: meta: not a JSON object", file->path);
    int status = DCP_OK;
    if (ckpt->layout == DCP_LAYOUT_SHARDED) status = check_shard(ckpt, number, meta, id, err);
    json_t *step = json_object_get(meta, "step");
    if (!status && (!json_is_integer(step) || json_integer_value(step) < 0))
        status = core_fail(err, DCP_ERR_CORRUPT, "%s: meta: no step", file->path);
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
        status = core_fail(err, DCP_ERR_CORRUPT, "%s: meta: of another state than %s",
                           ckpt->files[number].path, ckpt->files[first].path);
    free(json);
    return status;
}

int checkpoint_metas(dcp_checkpoint *ckpt, dcp_error *err) {
    size_t first = 0;
    while (first < ckpt->n_files && !ckpt->files[first].path) first++;
    if (first == ckpt->n_files) return DCP_OK;
    int status = read_meta(ckpt, first, &ckpt->json, ckpt->state_id, err);
    for (size_t f = first + 1; f < ckpt->n_files && !status; f++)
        if (ckpt->files[f].path) status = check_meta(ckpt, first, f, err);
    return status;
}

int checkpoint_join(dcp_checkpoint *ckpt, dcp_error *err) {
    size_t n = 0;
    for (size_t f = 0; f < ckpt->n_files; f++)
        if (ckpt->files[f].ub.layout != ckpt->layout)
            return core_fail(err, DCP_ERR_CORRUPT, "%s: user block: of the other layout",
                             ckpt->files[f].path);
    int status = collect_pieces(ckpt, &n, err);
    if (!status) status = name_tensors(ckpt, n, err);
    if (!status) status = checkpoint_metas(ckpt, err);
    for (size_t i = 0; i < ckpt->n_tensors && !status; i++)
        if (ckpt->layout == DCP_LAYOUT_SHARDED) status = check_tensor(ckpt, &ckpt->tensors[i], err);
    for (size_t i = 0; i < ckpt->n_tensors && !status; i++) count_blocks(ckpt, &ckpt->tensors[i]);
    return status;
}
