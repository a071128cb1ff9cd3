#include "reader/checkpoint.h"

#include <assert.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/box.h"
#include "core/bytes.h"
#include "core/fail.h"
#include "core/json.h"
#include "core/system.h"
#include "format/folder.h"
#include "format/hold.h"

int reader_checkpoint_make_files(dcp_checkpoint *ckpt, size_t n, dcp_error *err) {
    ckpt->files = calloc(n + 1, sizeof *ckpt->files);
    if (!ckpt->files) return core_fail_memory(err, n * sizeof *ckpt->files);
    ckpt->n_files = n;
    for (size_t i = 0; i < n; i++) {
        ckpt->files[i] = format_file_of(NULL);
        if (ckpt->layout == DCP_LAYOUT_SHARDED && ckpt->comm)
            ckpt->files[i].reader = (int)(i % (size_t)ckpt->comm->size);
        if (ckpt->hold) ckpt->files[i].folder = ckpt->hold->folder_fd;
    }
    return DCP_OK;
}

void reader_checkpoint_wait(dcp_checkpoint *ckpt) {
    if (ckpt->user) ckpt->user->wait(ckpt->user);
}

bool reader_checkpoint_is_gone(const dcp_checkpoint *ckpt) {
    const format_hold *hold = ckpt->hold;
    return hold ? hold->is_claimed || !format_hold_is_named(hold) : ckpt->gone != 0;
}

const char *dcp_checkpoint_path(const dcp_checkpoint *ckpt) { return ckpt ? ckpt->path : NULL; }
uint64_t dcp_checkpoint_step(const dcp_checkpoint *ckpt) { return ckpt ? ckpt->step : 0; }
dcp_layout dcp_checkpoint_layout(const dcp_checkpoint *ckpt) {
    return ckpt ? ckpt->layout : DCP_LAYOUT_GLOBAL;
}
int dcp_checkpoint_files(const dcp_checkpoint *ckpt) { return ckpt ? (int)ckpt->n_files : 0; }
const char *dcp_checkpoint_json(const dcp_checkpoint *ckpt) { return ckpt ? ckpt->json : NULL; }
size_t dcp_checkpoint_tensors(const dcp_checkpoint *ckpt) { return ckpt ? ckpt->n_tensors : 0; }

const dcp_tensor *dcp_checkpoint_tensor(const dcp_checkpoint *ckpt, size_t i) {
    return i < dcp_checkpoint_tensors(ckpt) ? &ckpt->tensors[i].tensor : NULL;
}

static int by_tensor_path(const void *key, const void *tensor) {
    return strcmp(key, ((const reader_tensor *)tensor)->tensor.path);
}

const reader_tensor *reader_checkpoint_lookup(const dcp_checkpoint *ckpt, const char *path) {
    return bsearch(path, ckpt->tensors, ckpt->n_tensors, sizeof *ckpt->tensors, by_tensor_path);
}

size_t dcp_checkpoint_boxes(const dcp_checkpoint *ckpt, size_t i) {
    return i < dcp_checkpoint_tensors(ckpt) ? ckpt->tensors[i].n_datasets : 0;
}

const dcp_tensor *dcp_checkpoint_find(const dcp_checkpoint *ckpt, const char *path) {
    const reader_tensor *t = ckpt && path ? reader_checkpoint_lookup(ckpt, path) : NULL;
    return t ? &t->tensor : NULL;
}

/* The sum is a polynomial modulo a prime: the summed words are its coefficients, and the key is the
 * point at which it is evaluated. Two different polynomials have the same value under few of the
 * 2^61 keys: at most as many as there are coefficients. Reference: Carter & Wegman, "New Hash
 * Functions and Their Use in Authentication and Set Equality". */

#define PRIME ((1ULL << 61) - 1)

typedef unsigned __int128 product;

/* Requires `word` < PRIME. */
static uint64_t add_word(uint64_t sum, uint64_t key, uint64_t word) {
    assert(word < PRIME);
    const product all = (product)sum * key + word;
    const uint64_t once = (uint64_t)(all & PRIME) + (uint64_t)(all >> 61);
    return once < PRIME ? once : once - PRIME;
}

/* Adds 56 bits at a time. The length is added first, so two lists of texts with the same bytes but
 * different boundaries have different sums. */
static uint64_t add_text(uint64_t sum, uint64_t key, const void *data, size_t bytes) {
    const unsigned char *at = data, *end = at + bytes;
    unsigned char last[8] = {0};
    sum = add_word(sum, key, bytes);
    for (; end - at >= 8; at += 7) sum = add_word(sum, key, core_get_u64(at) << 8 >> 8);
    memcpy(last, at, (size_t)(end - at));
    return add_word(sum, key, core_get_u64(last));
}

static uint64_t sum_under(const dcp_checkpoint *ckpt, uint64_t key) {
    uint64_t sum = 1; /* not 0, so leading zeros count */
    for (size_t i = 0; i < ckpt->n_tensors; i++) {
        const dcp_tensor *t = &ckpt->tensors[i].tensor;
        sum = add_word(sum, key, (uint64_t)t->dtype | (uint64_t)t->ndim << 8);
        sum = add_text(sum, key, t->shape, t->ndim * sizeof *t->shape);
        sum = add_text(sum, key, t->path, strlen(t->path));
    }
    sum = add_text(sum, key, ckpt->state_id, strlen(ckpt->state_id));
    return add_text(sum, key, ckpt->json, strlen(ckpt->json));
}

int reader_digest_make(const dcp_checkpoint *ckpt, uint64_t digest[READER_DIGEST_WORDS],
                       dcp_error *err) {
    uint64_t bits;
    int status = core_entropy(&bits, err);
    if (status) return status;
    digest[READER_DIGEST_KEY] = bits % PRIME;
    digest[READER_DIGEST_SUM] = sum_under(ckpt, digest[READER_DIGEST_KEY]);
    return DCP_OK;
}

int reader_digest_check(const dcp_checkpoint *ckpt, const uint64_t digest[READER_DIGEST_WORDS],
                        dcp_error *err) {
    if (sum_under(ckpt, digest[READER_DIGEST_KEY]) == digest[READER_DIGEST_SUM]) return DCP_OK;
    return core_fail_at(
        err, DCP_ERR_CORRUPT, ckpt->path,
        "shards have different tensors or meta, although their checksums are equal");
}

/* In layout global each row is a tensor. In layout sharded each row is a box of a tensor; the boxes
 * must fit together. */

static int compare_tensor_paths(const char *a, size_t a_bytes, const char *b, size_t b_bytes) {
    int order = memcmp(a, b, a_bytes < b_bytes ? a_bytes : b_bytes);
    return order ? order : (a_bytes > b_bytes) - (a_bytes < b_bytes);
}

static size_t tensor_path_bytes(const reader_dataset *p) {
    return p->file->ub.layout == DCP_LAYOUT_SHARDED ? format_index_tensor_path(p->row->tensor.path)
                                                    : strlen(p->row->tensor.path);
}

static int by_dataset_tensor(const void *a, const void *b) {
    const reader_dataset *x = a, *y = b;
    int order = compare_tensor_paths(x->row->tensor.path, tensor_path_bytes(x), y->row->tensor.path,
                                     tensor_path_bytes(y));
    if (order) return order;
    if (x->file != y->file) return x->file < y->file ? -1 : 1;
    return (x->row > y->row) - (x->row < y->row);
}

static int by_reader(const void *a, const void *b) {
    const format_file *x = *(format_file *const *)a, *y = *(format_file *const *)b;
    if (x->reader != y->reader) return x->reader < y->reader ? -1 : 1;
    return (x > y) - (x < y);
}

int reader_join_assign_addresses(dcp_checkpoint *ckpt, dcp_error *err) {
    size_t ranks = ckpt->scattered ? (size_t)ckpt->comm->size : 0, r = 0;
    ckpt->by_address = calloc(ckpt->n_files, sizeof *ckpt->by_address);
    if (ckpt->scattered) ckpt->reader_ranges = calloc(ranks + 1, sizeof *ckpt->reader_ranges);
    if (!ckpt->by_address || (ckpt->scattered && !ckpt->reader_ranges))
        return core_fail_memory(err, (ckpt->n_files + ranks) * sizeof *ckpt->reader_ranges);
    for (size_t f = 0; f < ckpt->n_files; f++) ckpt->by_address[f] = &ckpt->files[f];
    if (ckpt->scattered)
        qsort(ckpt->by_address, ckpt->n_files, sizeof *ckpt->by_address, by_reader);
    for (size_t f = 0; f < ckpt->n_files; f++) {
        format_file *file = ckpt->by_address[f];
        for (; r < ranks && r <= (size_t)file->reader; r++)
            ckpt->reader_ranges[r] = ckpt->address_end;
        file->base = ckpt->address_end;
        ckpt->address_end += file->ub.file_bytes;
        if (ckpt->address_end > MAX_STEP_BYTES)
            return core_fail_at(
                err, DCP_ERR_CORRUPT, file->path,
                "user block: with this file's size, the step would have more than 1 PiB");
    }
    for (; ckpt->reader_ranges && r <= ranks; r++) ckpt->reader_ranges[r] = ckpt->address_end;
    return DCP_OK;
}

static reader_dataset dataset_of(format_file *file, const format_row *row) {
    return (reader_dataset){file, row, file->crcs ? file->crcs + row->first_block : NULL, 0, 0};
}

static int collect_datasets(dcp_checkpoint *ckpt, size_t *n_out, dcp_error *err) {
    size_t n = 0, at = 0;
    int status = reader_join_assign_addresses(ckpt, err);
    if (status) return status;
    for (size_t f = 0; f < ckpt->n_files; f++) {
        format_file *file = &ckpt->files[f];
        file->first_block = ckpt->blocks;
        ckpt->blocks += file->ub.blocks.bytes / 8;
        n += file->ub.rows;
    }
    ckpt->datasets = core_array(n + 1, sizeof *ckpt->datasets);
    if (!ckpt->datasets) return core_fail_memory(err, n * sizeof *ckpt->datasets);
    for (size_t f = 0; f < ckpt->n_files; f++)
        for (size_t i = 0; i < ckpt->files[f].ub.rows; i++)
            ckpt->datasets[at++] = dataset_of(&ckpt->files[f], &ckpt->files[f].rows[i]);
    if (ckpt->layout == DCP_LAYOUT_SHARDED) /* global rows are tensors, already sorted */
        qsort(ckpt->datasets, n, sizeof *ckpt->datasets, by_dataset_tensor);
    *n_out = n;
    return DCP_OK;
}

/* Sorts the tensor's datasets in the order of `boxes`, and drops datasets without elements. */
static int order_datasets(reader_tensor *t, const cover_box *boxes, size_t n, dcp_error *err) {
    reader_dataset *datasets = t->datasets;
    reader_dataset *before = core_array(t->n_datasets + 1, sizeof *before);
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

int reader_join_fail_shape(const dcp_checkpoint *ckpt, const char *tensor, dcp_error *err) {
    return core_fail_tensor(core_fail_at(err, DCP_ERR_CORRUPT, ckpt->path,
                                         "tensor %s: files differ in its shape", tensor),
                            tensor, err);
}

int reader_join_fail_cover(const dcp_checkpoint *ckpt, const char *tensor, dcp_error *err) {
    return core_fail_tensor(core_fail_at(err, DCP_ERR_CORRUPT, ckpt->path,
                                         "tensor %s: the shards don't cover it exactly once",
                                         tensor),
                            tensor, err);
}

/* Checks that all datasets of a tensor have the same type and shape, and together cover it exactly
 * once. */
static int check_tensor(dcp_checkpoint *ckpt, reader_tensor *t, dcp_error *err) {
    const reader_dataset *datasets = t->datasets;
    cover_box *boxes = calloc(t->n_datasets + 1, sizeof *boxes);
    if (!boxes) return core_fail_memory(err, t->n_datasets * sizeof *boxes);
    int status = DCP_OK;
    size_t n = 0, first, second;
    for (size_t i = 0; i < t->n_datasets; i++) {
        if (!core_tensor_same(&datasets[i].row->tensor, &t->tensor))
            status = reader_join_fail_shape(ckpt, t->tensor.path, err);
        if (datasets[i].row->bytes)
            boxes[n++] = (cover_box){.box = format_index_row_box(datasets[i].row), .tag = i};
    }
    if (!status && t->bytes &&
        core_cover_check(t->tensor.ndim, t->tensor.shape, boxes, n, &first, &second) != COVER_EXACT)
        status = reader_join_fail_cover(ckpt, t->tensor.path, err);
    if (!status && t->bytes) status = order_datasets(t, boxes, n, err);
    free(boxes);
    return status;
}

static void count_blocks(reader_tensor *t) {
    for (size_t k = 0; k < t->n_datasets; k++) {
        t->datasets[k].first_block = t->datasets[k].known_blocks = t->blocks;
        t->blocks += format_index_blocks(t->datasets[k].row->bytes);
    }
}

/* Returns the number of the first dataset that starts at or after `at` on dimension t->sweep. */
static size_t first_from(const reader_tensor *t, const reader_datasets *known, uint64_t at) {
    size_t low = 0, high = known->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const dcp_box *box = known->datasets[middle].row->box;
        if ((box ? box->start[t->sweep] : 0) < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void reader_join_near(const reader_tensor *t, const reader_datasets *known, const dcp_box *box,
                      size_t *first, size_t *end) {
    *first = 0;
    *end = known->n;
    if (known->n < 2 || !t->longest) return;
    uint64_t start = box->start[t->sweep];
    *first = first_from(t, known, start < t->longest ? 0 : start - t->longest + 1);
    *end = first_from(t, known, start + box->count[t->sweep]);
}

/* Returns true if dataset i is the first one of its tensor. */
static bool begins_tensor(const dcp_checkpoint *ckpt, size_t i) {
    if (!i || ckpt->layout == DCP_LAYOUT_GLOBAL) return true;
    const reader_dataset *datasets = ckpt->datasets;
    const reader_dataset *a = &datasets[i - 1], *b = &datasets[i];
    return compare_tensor_paths(a->row->tensor.path, tensor_path_bytes(a), b->row->tensor.path,
                                tensor_path_bytes(b)) != 0;
}

/* Makes a tensor from each group of datasets, with its own copy of the path. */
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
        const reader_dataset *p = &ckpt->datasets[i];
        if (!begins_tensor(ckpt, i)) {
            ckpt->tensors[ckpt->n_tensors - 1].n_datasets++;
            continue;
        }
        size_t length = tensor_path_bytes(p);
        reader_tensor *t = &ckpt->tensors[ckpt->n_tensors++];
        *t = (reader_tensor){
            .tensor = p->row->tensor, .datasets = &ckpt->datasets[i], .n_datasets = 1};
        t->tensor.path = path;
        memcpy(path, p->row->tensor.path, length);
        path[length] = 0;
        path += length + 1;
        t->bytes = dcp_tensor_bytes(&t->tensor);
    }
    return DCP_OK;
}

static json_int_t member_number(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

/* Checks the member "shard" of a shard's JSON and removes it. Copies its state_id to `id`. */
static int check_shard(const dcp_checkpoint *ckpt, size_t number, json_t *meta, char *id,
                       dcp_error *err) {
    const char *path = ckpt->files[number].path;
    const json_t *shard = json_object_get(meta, "shard");
    const json_int_t rank = member_number(shard, "rank"), world = member_number(shard, "world");
    const char *text = json_string_value(json_object_get(shard, "state_id"));
    if (rank != (json_int_t)number || world != (json_int_t)ckpt->n_files || !text ||
        strlen(text) != 16)
        return core_fail_at(err, DCP_ERR_CORRUPT, path,
                            "meta: names shard %" JSON_INTEGER_FORMAT " of %" JSON_INTEGER_FORMAT
                            ", not %zu of %zu",
                            rank, world, number, ckpt->n_files);
    memcpy(id, text, 17);
    json_object_del(meta, "shard");
    return DCP_OK;
}

/* Checks that the meta has the step that the folder's name gives: otherwise a renamed folder would
 * pass for another step of the run. */
static int check_step(dcp_checkpoint *ckpt, json_int_t step, dcp_error *err) {
    uint64_t named;
    ckpt->step = (uint64_t)step;
    if (!format_name_read(ckpt->path, &named) || named == ckpt->step) return DCP_OK;
    return core_fail_at(err, DCP_ERR_CORRUPT, ckpt->path,
                        "meta: the folder's name has step %" PRIu64 ", but meta has %" PRIu64,
                        named, ckpt->step);
}

static int read_meta(dcp_checkpoint *ckpt, size_t number, char **json, char *id, dcp_error *err) {
    const format_file *file = &ckpt->files[number];
    json_t *meta;
    dcp_error why;
    int status = core_json_parse_object(file->meta, strlen(file->meta), &meta, &why);
    if (status == DCP_ERR_ARG)
        return core_fail_at(err, DCP_ERR_CORRUPT, file->path, "meta: not a JSON object: %s",
                            why.message);
    if (status) return core_fail_again(err, status, &why, "%s", why.message);
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

int reader_join_fail_meta(const dcp_checkpoint *ckpt, size_t first, size_t number, dcp_error *err) {
    return core_fail_at(err, DCP_ERR_CORRUPT, ckpt->files[number].path,
                        "meta: belongs to another state than %s", ckpt->files[first].path);
}

int reader_join_check_meta(dcp_checkpoint *ckpt, size_t first, size_t number, dcp_error *err) {
    char *json = NULL, id[17] = "";
    int status = read_meta(ckpt, number, &json, id, err);
    if (!status && (strcmp(json, ckpt->json) || strcmp(id, ckpt->state_id)))
        status = reader_join_fail_meta(ckpt, first, number, err);
    free(json);
    return status;
}

int reader_join_first_meta(dcp_checkpoint *ckpt, size_t first, dcp_error *err) {
    return read_meta(ckpt, first, &ckpt->json, ckpt->state_id, err);
}

int reader_join_metas(dcp_checkpoint *ckpt, dcp_error *err) {
    size_t first = 0;
    while (first < ckpt->n_files && !ckpt->files[first].path) first++;
    if (first == ckpt->n_files) return DCP_OK;
    int status = reader_join_first_meta(ckpt, first, err);
    for (size_t f = first + 1; f < ckpt->n_files && !status; f++)
        if (ckpt->files[f].path) status = reader_join_check_meta(ckpt, first, f, err);
    return status;
}

int reader_join_check_layout(const dcp_checkpoint *ckpt, const format_file *file, dcp_error *err) {
    if (file->ub.layout == ckpt->layout) return DCP_OK;
    return core_fail_at(err, DCP_ERR_CORRUPT, file->path,
                        "user block: its layout is not that of the step");
}

int reader_join_files(dcp_checkpoint *ckpt, dcp_error *err) {
    size_t n = 0;
    int status = DCP_OK;
    for (size_t f = 0; f < ckpt->n_files && !status; f++)
        status = reader_join_check_layout(ckpt, &ckpt->files[f], err);
    if (!status) status = collect_datasets(ckpt, &n, err);
    if (!status) status = name_tensors(ckpt, n, err);
    if (!status) status = reader_join_metas(ckpt, err);
    for (size_t i = 0; i < ckpt->n_tensors && !status; i++)
        if (ckpt->layout == DCP_LAYOUT_SHARDED) status = check_tensor(ckpt, &ckpt->tensors[i], err);
    for (size_t i = 0; i < ckpt->n_tensors && !status; i++) count_blocks(&ckpt->tensors[i]);
    return status;
}
