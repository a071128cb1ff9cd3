/* Layout sharded: a file for each rank, written by one process alone. The files are tied together
 * by the state id, a checksum over the checksums of all whole tensors. So the data of all shards is
 * written first, then their tables. */
#include "save/sharded.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "core/bytes.h"
#include "core/clock.h"
#include "core/fail.h"
#include "core/json.h"
#include "move/engine.h"
#include "save/context.h"
#include "save/history.h"
#include "save/plan.h"
#include "save/replica_sums.h"
#include "save/request.h"
#include "save/reuse.h"
#include "save/write.h"

typedef struct shard {
    const save_shard *planned;
    move_global *global; /* a row: what it is of the whole tensor */
    save_image im;
} shard;

struct save_sharded {
    dcp_store *store;
    const save_request *r;
    const save_plan *plan;
    dcp_comm *self;
    shard *list;
    size_t n;
    uint64_t *first_block;  /* a tensor: its first place in `sums` */
    uint64_t *sums, blocks; /* of whole tensors; behind them the JSON, which rank 0 has, */
    uint64_t json_words;    /* and the word of the replicas */
};

static void add_pieces(const save_plan *plan, shard *s, const save_request *r,
                       const save_sharded *all) {
    const save_shard *planned = s->planned;
    for (size_t i = 0; i < planned->file.n; i++) {
        if (planned->sources[i] == SAVE_NO_SOURCE) continue;
        const plan_box *b = &plan->boxes.boxes[planned->sources[i]];
        const dcp_tensor *t = &r->sorted[b->tensor]->tensor;
        const dcp_box whole = dcp_box_whole(t);
        const box_copy dense = {.run_bytes = planned->file.rows[i].bytes, .runs = 1};
        s->global[i].bytes = r->sorted[b->tensor]->bytes;
        s->global[i].sums = all->sums + all->first_block[b->tensor];
        core_box_copy_between(&s->global[i].copy, t->ndim, dcp_dtype_bytes(t->dtype), &whole,
                              &b->box->box);
        move_piece *p = save_image_add(&s->im, i, b->box, &dense);
        p->global = &s->global[i];
        p->own = save_replicas_own(plan->replicas, planned->sources[i]);
    }
}

static int prepare_image(shard *s, const save_sharded *all, const save_request *r,
                         const save_plan *plan, const char *folder, move_progress *progress,
                         dcp_error *err) {
    char name[64];
    const save_file *file = &s->planned->file;
    snprintf(name, sizeof name, "shard-%05d-of-%05d.h5", s->planned->number, plan->shards);
    s->global = calloc(file->n + 1, sizeof *s->global);
    if (!s->global) return core_fail_memory(err, file->n * sizeof *s->global);
    int status = save_image_prepare(&s->im, all->self, file, folder, name, file->n, progress, err);
    s->im.store = all->store;
    s->im.engine = plan->engine;
    s->im.mover = plan->engine->is_by_position ? r->mover : NULL;
    s->im.is_last = s == &all->list[all->n - 1];
    s->im.replicas = s == all->list ? plan->replicas : NULL; /* with the first file */
    if (status) return status;
    add_pieces(plan, s, r, all);
    if (!move_pieces_have_copies(s->im.pieces, s->im.n_pieces))
        return core_fail_memory(err, file->n * sizeof *s->im.pieces);
    return save_reuse_prepare(&s->im, all->store, (size_t)(s - all->list), err);
}

static int shard_write(shard *s, const save_sharded *all, const char *folder,
                       move_progress *progress, dcp_report *report, dcp_error *err) {
    uint64_t told[SAVE_REUSE_WORDS];
    int status = prepare_image(s, all, all->r, all->plan, folder, progress, err);
    if (!status) status = save_image_begin(&s->im, told, err);
    if (!status) status = save_image_write(&s->im, told, report, err);
    if (!status) report->cloned_bytes += s->im.reuse->bytes;
    if (!status && all->n > 1) /* with many, not all can stay open */
        io_use_lend(&s->im.file, s->im.file.direct ? IO_WRITE : IO_WRITE_BUFFERED);
    return status;
}

/* What the shards left to the save_mover, all at once: they have rows from the same old files. */
static int move_apart(const save_sharded *all, const save_mover *mover, dcp_report *report,
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
static uint64_t state_id(const save_request *r, const save_sharded *all) {
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
        json_pack("{s:i, s:s, s:i}", "rank", s->planned->number, "state_id", text, "world", world);
    if (!member || json_object_set_new(object, "shard", member) ||
        !(s->im.meta = core_json_canonical(object)))
        status = core_fail_memory(err, strlen(meta));
    json_decref(object);
    return status;
}

static int shard_finish(shard *s, const save_sharded *all, uint64_t id, dcp_report *report,
                        dcp_error *err) {
    const char *json = (char *)(all->sums + all->blocks);
    int status = shard_meta(s, json, all->plan->shards, id, err);
    if (!status) status = io_use_begin(&s->im.file, err);
    if (!status) status = save_image_finish(&s->im, report, err);
    if (status) return status;
    save_image_note_recycled(&s->im, all->r->step);
    io_use_end(&s->im.file);
    return DCP_OK;
}

/* Room for what is joined over all ranks. */
static int make_joined(save_sharded *all, dcp_error *err) {
    const save_request *r = all->r;
    all->first_block = calloc(r->n + 1, sizeof *all->first_block);
    if (!all->first_block) return core_fail_memory(err, r->n * 8);
    for (size_t i = 0; i < r->n; i++) {
        all->first_block[i] = all->blocks;
        all->blocks += step_index_blocks(r->sorted[i]->bytes);
    }
    all->json_words = all->plan->json_bytes / 8 + 1; /* with zeros behind the text */
    const uint64_t words =
        all->blocks + all->json_words + 1 + COMM_XOR_ROOM(all->store->comm->size);
    all->sums = calloc(words, sizeof *all->sums);
    if (!all->sums) return core_fail_memory(err, words * 8);
    if (r->meta) memcpy(all->sums + all->blocks, r->meta, strlen(r->meta));
    return DCP_OK;
}

/* Whether a file may share extents with one of the last step: 0 on some rank where it may. */
static uint64_t cannot_share(const dcp_store *store) {
    const struct save_history *last = save_context_of(store)->history;
    for (size_t i = 0; last && i < last->n_files; i++)
        if (!last->files[i].refused) return 0;
    return 1;
}

int save_sharded_make(dcp_store *store, const save_request *r, const save_plan *plan,
                      save_sharded **out, uint64_t *told, dcp_error *err) {
    save_sharded *all = *out = calloc(1, sizeof *all);
    if (!all) return core_fail_memory(err, sizeof *all);
    *all = (save_sharded){.store = store, .r = r, .plan = plan};
    all->list = calloc(plan->shards_written.n + 1, sizeof *all->list);
    if (!all->list) return core_fail_memory(err, plan->shards_written.n * sizeof *all->list);
    for (; all->n < plan->shards_written.n; all->n++)
        all->list[all->n] =
            (shard){.planned = &plan->shards_written.list[all->n], .im.file.fd = -1};
    *told = cannot_share(store);
    int status = make_joined(all, err);
    return status ? status : dcp_comm_self(&all->self, err);
}

void save_sharded_free(save_sharded *all) {
    if (!all) return;
    for (size_t i = 0; i < all->n; i++) {
        save_image_free(&all->list[i].im);
        free(all->list[i].global);
    }
    free(all->list);
    free(all->first_block);
    free(all->sums);
    dcp_comm_destroy(all->self);
    free(all);
}

/* The shards' own communicators called this rank 0; an agreement gives it its number among all. */
static int forget_rank(int status, dcp_error *err) {
    if (status && err) err->rank = -1;
    return status;
}

int save_sharded_write(save_sharded *all, const char *folder, uint64_t told,
                       move_progress *progress, dcp_report *report, dcp_error *err) {
    dcp_comm *comm = all->store->comm;
    const save_request *r = all->r;
    int status = DCP_OK;
    for (size_t i = 0; i < all->n && !status; i++)
        status = shard_write(&all->list[i], all, folder, progress, report, err);
    if (!status) status = move_apart(all, r->mover, report, err);
    move_progress_release(progress);
    status = forget_rank(status, err);
    uint64_t *word = all->sums + all->blocks + all->json_words;
    if (!status) *word = save_replicas_word(all->plan->replicas);
    status = comm_agree_xor(comm, status, all->sums, all->blocks + all->json_words + 1, err);
    if (!status) status = save_replicas_compare(all->store, r, all->plan->replicas, *word, err);
    if (!status && !told)
        status = comm_allreduce(comm, &report->cloned_bytes, 1, DCP_REDUCE_SUM, err);
    if (!status && r->mover)
        status = comm_agree(comm, r->mover->prove(r->mover->ctx, all->sums, err), err);
    if (!status) save_history_note(save_context_of(all->store)->noted, r, all->sums);
    return status;
}

int save_sharded_finish(save_sharded *all, dcp_report *report, dcp_error *err) {
    const uint64_t id = state_id(all->r, all);
    int status = DCP_OK;
    for (size_t i = 0; i < all->n && !status; i++)
        status = shard_finish(&all->list[i], all, id, report, err);
    return forget_rank(status, err);
}
