/* A shard's rows are the boxes that it keeps, ascending by path. */
#include "save/file_plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/fail.h"
#include "save/request.h"

void save_file_free(save_file *file) {
    free(file->rows);
    free(file->paths);
    h5_skeleton_free(&file->skeleton);
    *file = (save_file){0};
}

typedef struct shard_box {
    size_t tensor; /* in the request's sorted ones */
    dcp_box box;
    size_t source; /* in the plan's; SAVE_NO_SOURCE: nothing to write */
    char *path;    /* the dataset's, in `paths` */
} shard_box;

/* Shard `number` gets at most so many rows. The bytes of their paths are added to *path_bytes. */
static size_t measure_boxes(const save_request *r, const plan_boxes *held, int number,
                            size_t *bytes) {
    size_t n = 0;
    for (size_t i = 0; i < held->n; i++)
        if (held->boxes[i].rank == number) {
            *bytes += strlen(r->sorted[held->boxes[i].tensor]->tensor.path) + 24;
            n++;
        }
    for (size_t i = 0; i < r->n && number == 0; i++) {
        *bytes += strlen(r->sorted[i]->tensor.path) + 24;
        n++;
    }
    return n;
}

static int order_by_path(const void *a, const void *b) {
    return strcmp(((const shard_box *)a)->path, ((const shard_box *)b)->path);
}

/* Whether a component of the path ends in @digits: as a dataset or as a folder it could be in the
 * way of a piece's name. */
static int is_like_a_piece(const char *path) {
    for (const char *at = strchr(path, '@'); at; at = strchr(at + 1, '@')) {
        size_t digits = strspn(at + 1, "0123456789");
        if (digits && (!at[1 + digits] || at[1 + digits] == '/')) return 1;
    }
    return 0;
}

/* Names of datasets: the tensor's path, then path@1, path@2 for its further boxes in this shard. */
static int name_dataset(const char *path, size_t k, char *out, size_t *length, dcp_error *err) {
    if (is_like_a_piece(path))
        return core_fail_tensor(
            core_fail(err, DCP_ERR_UNSUPPORTED,
                      "tensor %s: layout sharded keeps names that end in @<digits> for the "
                      "pieces of a tensor: rename it",
                      path),
            path, err);
    if (k && strlen(path) + 12 > DCP_MAX_PATH)
        return core_fail_tensor(
            core_fail(err, DCP_ERR_UNSUPPORTED,
                      "tensor %.80s...: layout sharded needs 12 bytes after its name for the "
                      "number of a piece: shorten it",
                      path),
            path, err);
    *length = (size_t)(k ? sprintf(out, "%s@%zu", path, k) : sprintf(out, "%s", path));
    return DCP_OK;
}

/* The boxes that the shard keeps, ascending by path: *n_out of them in out[], their paths in
 * `paths`, both with the room that measure_boxes found. Tensors without elements, which
 * nobody holds, are in shard 0. DCP_ERR_UNSUPPORTED: a name that is in the way of a piece's. */
static int collect_boxes(const save_request *r, const plan_boxes *held, int number, shard_box *out,
                         size_t *n_out, char *paths, dcp_error *err) {
    size_t n = 0, k = 0;
    for (size_t i = 0; i < held->n; i++) {
        const plan_box *b = &held->boxes[i];
        if (b->keeper && b->rank == number) out[n++] = (shard_box){b->tensor, b->box->box, i, NULL};
    }
    for (size_t i = 0; i < r->n && number == 0; i++)
        if (!r->sorted[i]->bytes)
            out[n++] = (shard_box){i, dcp_box_whole(&r->sorted[i]->tensor), SAVE_NO_SOURCE, NULL};
    for (size_t i = 0; i < n; i++) {
        size_t length = 0;
        k = i && out[i - 1].tensor == out[i].tensor ? k + 1 : 0;
        out[i].path = paths;
        int status = name_dataset(r->sorted[out[i].tensor]->tensor.path, k, paths, &length, err);
        if (status) return status;
        paths += length + 1;
    }
    qsort(out, n, sizeof *out, order_by_path);
    *n_out = n;
    return DCP_OK;
}

static void fill_rows(const save_request *r, const shard_box *boxes, size_t n, save_shard *s) {
    for (size_t i = 0; i < n; i++) {
        const dcp_tensor *t = &r->sorted[boxes[i].tensor]->tensor;
        const dcp_box *box = &boxes[i].box;
        s->file.rows[i] =
            (step_row){.tensor = *t,
                       .box = &s->boxes[i],
                       .bytes = dcp_box_elems(box, t->ndim) * dcp_dtype_bytes(t->dtype),
                       .first_block = s->file.blocks};
        s->file.rows[i].tensor.path = boxes[i].path;
        s->boxes[i] = *box;
        s->tensors[i] = boxes[i].tensor;
        s->sources[i] = boxes[i].source;
        s->file.blocks += step_index_blocks(s->file.rows[i].bytes);
    }
    s->file.n = n;
    s->file.layout = DCP_LAYOUT_SHARDED;
}

static int lay_out_shard(const save_request *r, const plan_boxes *held, uint64_t meta_bytes,
                         const h5_asked *asked, save_shard *s, dcp_error *err) {
    size_t bytes = 1, n = measure_boxes(r, held, s->number, &bytes);
    shard_box *boxes = calloc(n + 1, sizeof *boxes);
    s->file.rows = calloc(n + 1, sizeof *s->file.rows);
    s->file.paths = malloc(bytes);
    s->boxes = calloc(n + 1, sizeof *s->boxes);
    s->tensors = calloc(n + 1, sizeof *s->tensors);
    s->sources = calloc(n + 1, sizeof *s->sources);
    int status = DCP_OK;
    if (!boxes || !s->file.rows || !s->file.paths || !s->boxes || !s->tensors || !s->sources)
        status = core_fail_memory(err, n * sizeof *s->file.rows);
    if (!status) status = collect_boxes(r, held, s->number, boxes, &n, s->file.paths, err);
    if (!status) fill_rows(r, boxes, n, s);
    if (!status)
        status = h5_skeleton_build(s->file.rows, n, DCP_LAYOUT_SHARDED, meta_bytes, asked,
                                   &s->file.skeleton, err);
    free(boxes);
    return status;
}

static int check_owners(const save_request *r, int rank, int size, const plan_boxes *held,
                        dcp_error *err) {
    for (size_t i = 0; i < held->n; i++) {
        int owner = held->boxes[i].rank;
        if (owner >= r->shards || owner % size != rank)
            return core_fail_tensor(
                core_fail(err, DCP_ERR_ARG,
                          "tensor %s: its box of rank %d can't be written by rank %d: of %d "
                          "shards, rank r writes those with number %% %d = r",
                          r->sorted[held->boxes[i].tensor]->tensor.path, owner, rank, r->shards,
                          size),
                r->sorted[held->boxes[i].tensor]->tensor.path, err);
    }
    return DCP_OK;
}

int save_shards_lay_out(const save_request *r, const plan_boxes *boxes, int rank, int size,
                        uint64_t meta_bytes, const h5_asked *asked, save_shards *out,
                        dcp_error *err) {
    out->list = calloc((size_t)r->shards / (size_t)size + 1, sizeof *out->list);
    if (!out->list) return core_fail_memory(err, sizeof *out->list);
    int status = check_owners(r, rank, size, boxes, err);
    for (int k = rank; k < r->shards && !status; k += size) {
        save_shard *s = &out->list[out->n++];
        s->number = k;
        status = lay_out_shard(r, boxes, meta_bytes, asked, s, err);
    }
    return status;
}

void save_shards_free(save_shards *shards) {
    for (size_t i = 0; i < shards->n; i++) {
        save_shard *s = &shards->list[i];
        save_file_free(&s->file);
        free(s->boxes);
        free(s->tensors);
        free(s->sources);
    }
    free(shards->list);
}
