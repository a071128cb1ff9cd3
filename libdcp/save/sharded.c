/* Layout sharded: a file for each rank, written by one process alone. The files are tied together
 * by the state id, a checksum over the checksums of all whole tensors. So the data of all shards is
 * written first, then their tables. */
#include "save/sharded.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/message.h"
#include "core/bytes.h"
#include "core/clock.h"
#include "core/fail.h"
#include "core/json.h"
#include "move/engine.h"
#include "save/context.h"
#include "save/history.h"
#include "save/plan.h"
#include "save/request.h"
#include "save/reuse.h"
#include "save/write.h"

typedef struct shard {
    int number;
    save_file file;
    dcp_box *boxes;      /* a row's */
    move_global *global; /* a row: what it is of the whole tensor */
    save_image im;
} shard;

typedef struct shards {
    dcp_store *store;
    dcp_comm *self;
    shard *list;
    size_t n;
    uint64_t *first_block;  /* a tensor: its first place in `sums` */
    uint64_t *sums, blocks; /* of whole tensors */
} shards;

typedef struct shard_box {
    size_t tensor; /* in the request's sorted ones */
    dcp_box box;
    const state_box *source; /* NULL: nothing to write */
    char *path;              /* the dataset's, in `paths` */
} shard_box;

/* Shard `number` gets at most so many rows. The bytes of their paths are added to *path_bytes. */
static size_t measure_boxes(const save_request *r, const save_plan *plan, int number,
                            size_t *bytes) {
    size_t n = 0;
    for (size_t i = 0; i < plan->boxes.n; i++)
        if (plan->boxes.boxes[i].rank == number) {
            *bytes += strlen(r->sorted[plan->boxes.boxes[i].tensor]->tensor.path) + 24;
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
        return core_fail(err, DCP_ERR_UNSUPPORTED,
                         "tensor %s: layout sharded keeps names that end in @<digits> for the "
                         "pieces of a tensor: rename it",
                         path);
    if (k && strlen(path) + 12 > DCP_MAX_PATH)
        return core_fail(err, DCP_ERR_UNSUPPORTED,
                         "tensor %.80s...: layout sharded needs 12 bytes after its name for the "
                         "number of a piece: shorten it",
                         path);
    *length = (size_t)(k ? sprintf(out, "%s@%zu", path, k) : sprintf(out, "%s", path));
    return DCP_OK;
}

/* The boxes that the shard keeps, ascending by path: *n_out of them in out[], their paths in
 * `paths`, both with the room that measure_boxes found. Tensors without elements, which
 * nobody holds, are in shard 0. DCP_ERR_UNSUPPORTED: a name that is in the way of a piece's. */
static int collect_boxes(const save_request *r, const save_plan *plan, int number, shard_box *out,
                         size_t *n_out, char *paths, dcp_error *err) {
    size_t n = 0, k = 0;
    for (size_t i = 0; i < plan->boxes.n; i++) {
        const plan_box *b = &plan->boxes.boxes[i];
        if (b->keeper && b->rank == number)
            out[n++] = (shard_box){b->tensor, b->box->box, b->box, NULL};
    }
    for (size_t i = 0; i < r->n && number == 0; i++)
        if (!r->sorted[i]->bytes)
            out[n++] = (shard_box){i, dcp_box_whole(&r->sorted[i]->tensor), NULL, NULL};
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

static void fill_rows(const save_request *r, const shard_box *boxes, size_t n, shard *s) {
    for (size_t i = 0; i < n; i++) {
        const dcp_tensor *t = &r->sorted[boxes[i].tensor]->tensor;
        const dcp_box *box = &boxes[i].box;
        uint64_t size = dcp_dtype_bytes(t->dtype);
        s->file.rows[i] = (step_row){.tensor = *t,
                                     .box = &s->boxes[i],
                                     .bytes = dcp_box_elems(box, t->ndim) * size,
                                     .first_block = s->file.blocks};
        s->file.rows[i].tensor.path = boxes[i].path;
        s->boxes[i] = *box;
        s->file.blocks += step_index_blocks(s->file.rows[i].bytes);
        const dcp_box all = dcp_box_whole(t);
        core_box_copy_between(&s->global[i].copy, t->ndim, size, &all, box);
    }
    s->file.n = n;
    s->file.layout = DCP_LAYOUT_SHARDED;
}

static int add_pieces(const shard_box *boxes, size_t n, shard *s, const save_request *r,
                      const shards *all, dcp_error *err) {
    for (size_t i = 0; i < n; i++) {
        size_t tensor = boxes[i].tensor;
        if (!boxes[i].source) continue;
        box_copy whole = {.run_bytes = s->file.rows[i].bytes, .runs = 1};
        move_piece *p = save_image_add(&s->im, i, boxes[i].source, &whole);
        s->global[i].bytes = r->sorted[tensor]->bytes;
        s->global[i].sums = all->sums + all->first_block[tensor];
        p->global = &s->global[i];
    }
    if (move_pieces_have_copies(s->im.pieces, s->im.n_pieces)) return DCP_OK;
    return core_fail_memory(err, n * sizeof *s->im.pieces);
}

static int shard_write(shard *s, const shards *all, const save_request *r, const save_plan *plan,
                       const char *folder, move_progress *progress, dcp_report *report,
                       dcp_error *err) {
    size_t bytes = 1, n = measure_boxes(r, plan, s->number, &bytes);
    char name[64];
    snprintf(name, sizeof name, "shard-%05d-of-%05d.h5", s->number, plan->shards);
    shard_box *boxes = calloc(n + 1, sizeof *boxes);
    s->file.rows = calloc(n + 1, sizeof *s->file.rows);
    s->file.paths = malloc(bytes);
    s->boxes = calloc(n + 1, sizeof *s->boxes);
    s->global = calloc(n + 1, sizeof *s->global);
    int status = DCP_OK;
    if (!boxes || !s->file.rows || !s->file.paths || !s->boxes || !s->global)
        status = core_fail_memory(err, n * sizeof *s->file.rows);
    if (!status) status = collect_boxes(r, plan, s->number, boxes, &n, s->file.paths, err);
    if (!status) fill_rows(r, boxes, n, s);
    if (!status)
        status = h5_skeleton_build(s->file.rows, n, DCP_LAYOUT_SHARDED, plan->meta_bytes,
                                   &s->file.skeleton, err);
    if (!status)
        status = save_image_prepare(&s->im, all->self, &s->file, folder, name, n, progress, err);
    s->im.store = all->store;
    s->im.engine = plan->engine;
    s->im.mover = plan->engine->is_by_position ? r->mover : NULL;
    s->im.is_last = s == &all->list[all->n - 1];
    if (!status) status = add_pieces(boxes, n, s, r, all, err);
    if (!status) status = save_reuse_prepare(&s->im, all->store, (size_t)(s - all->list), err);
    if (!status) save_image_take_recycled(&s->im);
    if (!status) status = save_image_write(&s->im, report, err);
    if (!status && !s->im.mover) status = save_image_join_sums(&s->im, err);
    if (!status) report->cloned_bytes += s->im.reuse->bytes;
    free(boxes);
    return status;
}

/* What the shards left to the save_mover, all at once: they have rows from the same old files. */
static int move_apart(const shards *all, const save_mover *mover, dcp_report *report,
                      dcp_error *err) {
    double start = core_clock_now();
    if (!all->n || !all->list[0].im.mover) return DCP_OK;
    save_image **images = malloc(all->n * sizeof *images);
    if (!images) return core_fail_memory(err, all->n * sizeof *images);
    for (size_t i = 0; i < all->n; i++) images[i] = &all->list[i].im;
    int status = mover->move(mover->ctx, images, all->n, err);
    free(images);
    for (size_t i = 0; i < all->n && !status; i++)
        status = save_image_join_sums(&all->list[i].im, err);
    report->write_s +=
        move_progress_phase(all->list[0].im.progress, DCP_PHASE_WRITE, start, core_clock_now());
    return status;
}

/* The checksum of path, dtype, shape and checksum of every tensor, in order. */
static uint64_t state_id(const save_request *r, const shards *all) {
    uint64_t raw = ~0ULL;
    for (size_t i = 0; i < r->n; i++) {
        const state_tensor *t = r->sorted[i];
        const uint64_t *sums = all->sums + all->first_block[i];
        raw = step_index_state_id(raw, &t->tensor, step_index_join_sums(sums, t->bytes));
    }
    return ~raw;
}

/* The shard's meta: the state's with {"shard": {rank, state_id, world}}. */
static int shard_meta(shard *s, const char *meta, int world, uint64_t id, dcp_error *err) {
    json_t *object;
    int status = core_json_parse_object(meta, strlen(meta), &object, err);
    if (status) return status;
    char text[17];
    snprintf(text, sizeof text, "%016llx", (unsigned long long)id);
    json_t *member =
        json_pack("{s:i, s:s, s:i}", "rank", s->number, "state_id", text, "world", world);
    if (!member || json_object_set_new(object, "shard", member) ||
        !(s->im.meta = core_json_canonical(object)))
        status = core_fail_memory(err, strlen(meta));
    json_decref(object);
    return status;
}

static int shards_prepare(dcp_store *store, const save_request *r, const save_plan *plan,
                          shards *all, dcp_error *err) {
    int size = store->comm->size, rank = store->comm->rank;
    all->list = calloc((size_t)plan->shards / (size_t)size + 1, sizeof *all->list);
    all->first_block = calloc(r->n + 1, sizeof *all->first_block);
    if (!all->list || !all->first_block) return core_fail_memory(err, r->n * 8);
    for (int k = rank; k < plan->shards; k += size)
        all->list[all->n++] = (shard){.number = k, .im.file.fd = -1};
    for (size_t i = 0; i < plan->boxes.n; i++) {
        int owner = plan->boxes.boxes[i].rank;
        if (owner >= plan->shards || owner % size != rank)
            return core_fail(err, DCP_ERR_ARG,
                             "tensor %s: its box of rank %d can't be written by rank %d: of %d "
                             "shards, rank r writes those with number %% %d = r",
                             r->sorted[plan->boxes.boxes[i].tensor]->tensor.path, owner, rank,
                             plan->shards, size);
    }
    for (size_t i = 0; i < r->n; i++) {
        all->first_block[i] = all->blocks;
        all->blocks += step_index_blocks(r->sorted[i]->bytes);
    }
    all->sums = calloc(all->blocks + 1, sizeof *all->sums);
    return all->sums ? dcp_comm_self(&all->self, err) : core_fail_memory(err, all->blocks * 8);
}

/* The shards' own communicators called this rank 0; now it gets its number among all. */
static int agree_on_shards(dcp_comm *comm, int status, dcp_error *err) {
    if (status && err) err->rank = -1;
    return comm_agree(comm, status, err);
}

static void shards_free(shards *all) {
    for (size_t i = 0; i < all->n; i++) {
        save_image_free(&all->list[i].im);
        save_file_free(&all->list[i].file);
        free(all->list[i].boxes);
        free(all->list[i].global);
    }
    free(all->list);
    free(all->first_block);
    free(all->sums);
    dcp_comm_destroy(all->self);
}

int save_sharded(dcp_store *store, const save_request *r, const save_plan *plan, const char *folder,
                 move_progress *progress, dcp_report *report, dcp_error *err) {
    shards all = {.store = store};
    comm_message meta = {.data = (unsigned char *)r->meta}; /* rank 0's, then that of all */
    if (r->meta) meta.bytes = strlen(r->meta) + 1;
    int status = shards_prepare(store, r, plan, &all, err);
    for (size_t i = 0; i < all.n && !status; i++)
        status = shard_write(&all.list[i], &all, r, plan, folder, progress, report, err);
    if (!status) status = move_apart(&all, r->mover, report, err);
    move_progress_release(progress);
    status = agree_on_shards(store->comm, status, err);
    if (!status) status = comm_allreduce(store->comm, all.sums, all.blocks, DCP_REDUCE_XOR, err);
    if (!status)
        status = comm_allreduce(store->comm, &report->cloned_bytes, 1, DCP_REDUCE_SUM, err);
    if (!status && r->mover)
        status = comm_agree(store->comm, r->mover->prove(r->mover->ctx, all.sums, err), err);
    if (!status) status = comm_message_broadcast(store->comm, &meta, 0, err);
    if (status) goto free_all;
    save_history_note(save_context_of(store)->noted, r, all.sums);
    uint64_t id = state_id(r, &all);
    for (size_t i = 0; i < all.n && !status; i++) {
        status = shard_meta(&all.list[i], (char *)meta.data, plan->shards, id, err);
        if (!status) status = save_image_finish(&all.list[i].im, report, err);
        if (!status) save_image_note_recycled(&all.list[i].im, r->step);
    }
    status = agree_on_shards(store->comm, status, err);
free_all:
    if (!r->meta) free(meta.data);
    shards_free(&all);
    return status;
}
