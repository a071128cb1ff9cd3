/* Each rank works alone until the ranks agree to write, and again between joining the checksums and
 * the agreement to publish. */
#include "save/write.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "core/bytes.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "core/json.h"
#include "core/system.h"
#include "io/descriptors.h"
#include "move/engine.h"
#include "move/transfer.h"
#include "save/context.h"
#include "save/history.h"
#include "save/image.h"
#include "save/plan.h"
#include "save/request.h"
#include "store/directory.h"
#include "store/retention.h"

/* Returns a fingerprint of the file's layout: which of its ranges contain data. */
static uint64_t pages_of(const save_file *file) {
    const h5_skeleton *s = &file->skeleton;
    const uint64_t sizes[] = {s->file_bytes,   s->index.offset, s->index.bytes, s->blocks.offset,
                              s->blocks.bytes, s->meta.offset,  s->meta.bytes};
    uint64_t raw = core_crc64_raw(~0ULL, sizes, sizeof sizes);
    for (size_t i = 0; i < s->n_runs; i++)
        raw = core_crc64_raw(raw, (uint64_t[]){s->runs[i].offset, s->runs[i].bytes}, 16);
    for (size_t i = 0; i < file->n; i++)
        raw = core_crc64_raw(raw, (uint64_t[]){file->rows[i].offset, file->rows[i].bytes}, 16);
    return raw;
}

static void take_recycled(save_image *im) {
    if (im->comm->rank || !im->engine->is_by_position || !im->reuse->now->refused) return;
    im->is_recycled =
        store_recycle_reuse(im->store, strrchr(im->path, '/') + 1, pages_of(im->layout), im->path);
}

void save_image_note_recycled(const save_image *im, uint64_t step) {
    if (!im->comm->rank && im->engine->is_by_position)
        store_recycle_record(im->store, step, im->file.fd, pages_of(im->layout));
}

/* Called on rank 0. */
static int create(save_image *im, dcp_error *err) {
    uint64_t bytes = save_reuse_may_share(im) ? 0 : im->layout->skeleton.file_bytes;
    int hosts = im->layout->layout == DCP_LAYOUT_GLOBAL ? im->store->hosts : 0;
    int status = DCP_OK;
    if (!im->is_recycled) status = store_striped_create(im->store, im->path, bytes, hosts, err);
    return status ? status : im->engine->open(im->path, &im->file, err);
}

int save_image_begin(save_image *im, save_sharing *sharing, dcp_error *err) {
    move_pieces_sort(im->pieces, im->n_pieces);
    move_device_begin(&im->device, im->pieces, im->n_pieces);
    int status = DCP_OK;
    if (im->engine->is_by_position)
        status = save_context_open_queue(save_context_of(im->store), err);
    if (!status) take_recycled(im);
    if (!status && im->comm->rank == 0) status = create(im, err);
    return status ? status : save_reuse_begin(im, sharing, err);
}

/* Opens the file, which rank 0 has created. An engine that writes by position opens files only when
 * they are used, but a rank that has something to write opens the file here, because opening it
 * determines the memory alignment of bulk parts. If opening fails, the later use of the file
 * returns the failure. */
static int open_created(save_image *im, dcp_error *err) {
    if (im->comm->rank == 0) return DCP_OK;
    if (!im->engine->is_by_position) return im->engine->open(im->path, &im->file, err);
    io_fd_prepare(&im->file, AT_FDCWD, im->path, IO_WRITE);
    if (!im->n_pieces) return DCP_OK;
    int status = io_fd_acquire(&im->file, err);
    if (!status) io_fd_release(&im->file);
    return status;
}

/* Shares extents with the last step's file if the image can share any. Adds the time to the
 * report. */
static int share_unchanged(save_image *im, const save_sharing *sharing, dcp_report *report,
                           dcp_error *err) {
    double start = core_clock_now();
    if (!save_reuse_may_share(im)) return DCP_OK;
    int status = save_reuse_share(im, sharing, err);
    report->copy_s += move_progress_phase(im->progress, DCP_PHASE_COPY, start, core_clock_now());
    return status;
}

/* Sets the word of the replicas in the sums of layout global. Shards have one word for all files of
 * a rank (save_sharded_write). */
static void note_replicas(void *ctx) {
    const save_image *im = ctx;
    if (im->layout->layout == DCP_LAYOUT_GLOBAL)
        im->sums[im->layout->blocks] = save_replicas_word(im->replicas);
}

static move_transfer transfer_of(save_image *im, const move_file *file, dcp_report *report) {
    const bool is_summed = im->replicas && im->replicas->others_are_summed;
    return (move_transfer){.direction = MOVE_TO_FILE,
                           .comm = im->comm,
                           .queue = save_context_of(im->store)->queue,
                           .files = file,
                           .n_files = 1,
                           .pieces = im->pieces,
                           .n_pieces = im->n_pieces,
                           .replicas = im->replicas ? im->replicas->pieces : NULL,
                           .n_replicas = im->replicas && !is_summed ? im->replicas->n : 0,
                           .others_are_summed = is_summed,
                           .window_cache = im->reuse && im->reuse->shared.n ? NULL : im->moves,
                           .uses_window_cache = im->uses_moves,
                           .device = &im->device,
                           .progress = im->progress,
                           .is_last = im->is_last,
                           .skips_bulk = im->mover != NULL,
                           .sums = im->mover ? NULL : im->sums, /* with a mover: joined later */
                           .n_sums = im->layout->blocks + 1,
                           .on_summed = note_replicas,
                           .ctx = im,
                           .report = report};
}

int save_image_write(save_image *im, const save_sharing *sharing, dcp_report *report,
                     dcp_error *err) {
    const int opened = open_created(im, err);
    const bool agrees = im->mover || !im->engine->is_by_position;
    if (im->mover) im->mover->announce(im->mover->ctx, im);
    int status = agrees ? comm_agree(im->comm, opened, err) : DCP_OK;
    if (!status) status = share_unchanged(im, sharing, report, err);
    if (status) return status;
    const move_file file = {
        .end = im->layout->skeleton.file_bytes, .file = &im->file, .path = im->path};
    move_transfer t = transfer_of(im, &file, report);
    status = im->engine->to_file(&t, err);
    if (!status && !im->mover) save_reuse_note(im);
    return status;
}

int save_image_join_sums(save_image *im, dcp_error *err) {
    note_replicas(im);
    int status = comm_allreduce(im->comm, im->sums, im->layout->blocks + 1, DCP_REDUCE_XOR, err);
    if (!status) save_reuse_note(im);
    return status;
}

/* Returns page-aligned, zeroed memory of whole pages. */
static unsigned char *table_memory(uint64_t bytes) {
    void *memory;
    uint64_t size = core_round_to_pages(bytes ? bytes : 1);
    if (posix_memalign(&memory, PAGE_BYTES, size)) return NULL;
    return memset(memory, 0, size);
}

/* Converts the raw sums of blocks to the checksums of blocks and of rows. */
static void fill_blocks(const save_image *im, format_row *rows, unsigned char *blocks) {
    uint64_t *crcs = im->sums;
    for (size_t i = 0; i < im->layout->n; i++) {
        uint64_t *row = crcs + rows[i].first_block;
        for (uint64_t b = 0; b < format_index_blocks(rows[i].bytes); b++) {
            row[b] = core_crc64_finish(row[b], format_index_block_bytes(rows[i].bytes, b));
            core_put_u64(blocks + 8 * (rows[i].first_block + b), row[b]);
        }
        rows[i].crc = format_index_join_blocks(row, rows[i].bytes);
    }
}

static void write_table(save_image *im, io_queue *queue, const format_range *range,
                        const unsigned char *data) {
    uint64_t total = core_round_to_pages(range->bytes);
    for (uint64_t at = 0; at < total; at += IO_SLOT_BYTES) {
        uint64_t part = total - at < IO_SLOT_BYTES ? total - at : IO_SLOT_BYTES;
        io_queue_write(queue, io_queue_next_slot(queue), &im->file, data + at, part,
                       range->offset + at);
    }
}

static int build(const save_image *im, format_row *rows, unsigned char *const *tables,
                 unsigned char *block, format_userblock *ub, dcp_error *err) {
    const save_file *f = im->layout;
    uint64_t path_bytes = format_index_path_bytes(rows, f->n);
    fill_blocks(im, rows, tables[1]);
    format_index_encode(rows, f->n, path_bytes, f->layout, tables[0]);
    memset(tables[2], ' ', ub->meta.bytes);
    memcpy(tables[2], im->meta, strlen(im->meta));
    ub->rows = f->n;
    ub->row_bytes = format_index_row_bytes(path_bytes, f->layout);
    format_range *ranges[] = {&ub->index, &ub->blocks, &ub->meta};
    for (int t = 0; t < 3; t++) {
        if (!ranges[t]->bytes) ranges[t]->offset = USERBLOCK_BYTES; /* the table is empty */
        ranges[t]->crc = core_crc64(tables[t], ranges[t]->bytes);
    }
    int status = h5_skeleton_outside_crc(
        &f->skeleton, rows, f->n, (const unsigned char *const *)tables, &ub->outside_crc, err);
    if (!status) format_userblock_encode(ub, block);
    return status;
}

/* Writes the index, the blocks, the JSON and the user block, each on pages of its own. Called on
 * one rank, once the checksums of all data are known. */
static int write_tables(save_image *im, io_queue *queue, dcp_error *err) {
    const h5_skeleton *s = &im->layout->skeleton;
    format_userblock ub = {.layout = im->layout->layout,
                           .file_bytes = s->file_bytes,
                           .index = s->index,
                           .blocks = s->blocks,
                           .meta = s->meta};
    unsigned char *tables[] = {table_memory(ub.index.bytes), table_memory(ub.blocks.bytes),
                               table_memory(ub.meta.bytes)};
    unsigned char *block = table_memory(USERBLOCK_BYTES);
    int status = DCP_OK;
    if (!tables[0] || !tables[1] || !tables[2] || !block)
        status = core_fail_memory(err, ub.index.bytes + ub.blocks.bytes + ub.meta.bytes);
    else
        status = build(im, im->layout->rows, tables, block, &ub, err);
    if (!status) {
        write_table(im, queue, &ub.index, tables[0]);
        write_table(im, queue, &ub.blocks, tables[1]);
        write_table(im, queue, &ub.meta, tables[2]);
        write_table(im, queue, &(format_range){0, USERBLOCK_BYTES, 0}, block);
        io_queue_drain(queue);
        status = io_queue_status(queue, err);
    }
    for (int t = 0; t < 3; t++) free(tables[t]);
    free(block);
    return status;
}

/* Makes this rank's writes durable. A rank that never opened the file has written nothing. */
static int sync_written(save_image *im, dcp_error *err) {
    io_file *file = &im->file;
    if (file->fd < 0 && !file->failed) return DCP_OK;
    int status = io_fd_acquire(file, err);
    if (status) return status;
    status = io_sync(file, err);
    io_fd_release(file);
    return status;
}

int save_image_finish(save_image *im, dcp_report *report, dcp_error *err) {
    int status = DCP_OK;
    double start = core_clock_now();
    if (im->comm->rank == 0) {
        status = save_context_open_queue(save_context_of(im->store), err);
        if (!status) status = write_tables(im, save_context_of(im->store)->queue, err);
    }
    double middle = core_clock_now();
    if (!status) status = sync_written(im, err);
    save_reuse_close(im);
    report->publish_s += move_progress_phase(im->progress, DCP_PHASE_PUBLISH, start, middle);
    report->sync_s += move_progress_phase(im->progress, DCP_PHASE_SYNC, middle, core_clock_now());
    return status;
}

/* Layout sharded: each file is written by one rank alone. Each file's tables contain the state id,
 * a checksum of the checksums of all whole tensors. So the tables are written after the data of all
 * shards. */

typedef struct shard {
    const save_shard *planned;
    move_global *global; /* per row: where its bytes lie in the whole tensor */
    save_image im;
} shard;

struct save_sharded {
    dcp_store *store;
    const save_request *r;
    const save_plan *plan;
    dcp_comm *self;
    shard *list;
    size_t n;
    uint64_t *first_block;  /* per tensor: its first index in `sums` */
    uint64_t *sums, blocks; /* of the blocks of whole tensors; rank 0's JSON follows */
    uint64_t json_words;    /* words of the JSON; the replicas' word follows it */
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
    s->im.replicas = s == all->list ? plan->replicas : NULL; /* read with the first file */
    if (status) return status;
    add_pieces(plan, s, r, all);
    if (!move_pieces_have_copies(s->im.pieces, s->im.n_pieces))
        return core_fail_memory(err, file->n * sizeof *s->im.pieces);
    return save_reuse_prepare(&s->im, all->store, (size_t)(s - all->list), err);
}

static int shard_write(shard *s, const save_sharded *all, const char *folder,
                       move_progress *progress, dcp_report *report, dcp_error *err) {
    save_sharing sharing;
    int status = prepare_image(s, all, all->r, all->plan, folder, progress, err);
    if (!status) status = save_image_begin(&s->im, &sharing, err);
    if (!status) status = save_image_write(&s->im, &sharing, report, err);
    if (!status) report->cloned_bytes += s->im.reuse->bytes;
    if (!status && all->n > 1) /* many files cannot all remain open */
        io_fd_adopt(&s->im.file, s->im.file.direct ? IO_WRITE : IO_WRITE_BUFFERED);
    return status;
}

/* Makes the save_mover move the bulk parts of all shards together, since they come from the same
 * old files. */
static int move_apart(const save_sharded *all, const save_mover *mover, dcp_report *report,
                      dcp_error *err) {
    double start = core_clock_now();
    if (!all->n || !all->list[0].im.mover) return DCP_OK;
    save_image **images = core_array(all->n, sizeof *images);
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

/* Returns the state id: a checksum of the path, dtype, shape and checksum of every tensor, in
 * order. */
static uint64_t state_id(const save_request *r, const save_sharded *all) {
    uint64_t raw = ~0ULL;
    for (size_t i = 0; i < r->n; i++) {
        const state_tensor *t = r->sorted[i];
        const uint64_t *sums = all->sums + all->first_block[i];
        raw = format_index_state_id(raw, &t->tensor, format_index_join_sums(sums, t->bytes));
    }
    return ~raw;
}

/* Makes the shard's meta: the state's meta with the member {"shard": {rank, state_id, world}}
 * added. */
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
    if (!status) status = io_fd_acquire(&s->im.file, err);
    if (!status) status = save_image_finish(&s->im, report, err);
    if (status) return status;
    save_image_note_recycled(&s->im, all->r->step);
    io_fd_release(&s->im.file);
    return DCP_OK;
}

/* Allocates memory for the words that are joined over all ranks. */
static int make_joined(save_sharded *all, dcp_error *err) {
    const save_request *r = all->r;
    all->first_block = calloc(r->n + 1, sizeof *all->first_block);
    if (!all->first_block) return core_fail_memory(err, r->n * 8);
    for (size_t i = 0; i < r->n; i++) {
        all->first_block[i] = all->blocks;
        all->blocks += format_index_blocks(r->sorted[i]->bytes);
    }
    all->json_words = all->plan->json_bytes / 8 + 1; /* with zeros after the text */
    const uint64_t words =
        all->blocks + all->json_words + 1 + COMM_XOR_SCRATCH(all->store->comm->size);
    all->sums = calloc(words, sizeof *all->sums);
    if (!all->sums) return core_fail_memory(err, words * 8);
    if (r->meta) memcpy(all->sums + all->blocks, r->meta, strlen(r->meta));
    return DCP_OK;
}

/* Returns true if no file of this rank can share extents with a file of the last step. */
static bool cannot_share(const dcp_store *store) {
    const struct save_history *last = save_context_of(store)->history;
    for (size_t i = 0; last && i < last->n_files; i++)
        if (!last->files[i].refused) return false;
    return true;
}

int save_sharded_make(dcp_store *store, const save_request *r, const save_plan *plan,
                      save_sharded **out, bool *shares_none, dcp_error *err) {
    save_sharded *all = *out = calloc(1, sizeof *all);
    if (!all) return core_fail_memory(err, sizeof *all);
    *all = (save_sharded){.store = store, .r = r, .plan = plan};
    all->list = calloc(plan->shards_written.n + 1, sizeof *all->list);
    if (!all->list) return core_fail_memory(err, plan->shards_written.n * sizeof *all->list);
    for (; all->n < plan->shards_written.n; all->n++)
        all->list[all->n] =
            (shard){.planned = &plan->shards_written.list[all->n], .im.file.fd = -1};
    *shares_none = cannot_share(store);
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

/* Removes the rank's number from a failure. Shards are written over a communicator of one rank, in
 * which the failed rank is always 0. The next agreement sets the rank's number among all ranks. */
static int forget_rank(int status, dcp_error *err) {
    if (status && err) err->rank = -1;
    return status;
}

int save_sharded_write(save_sharded *all, const char *folder, bool shares_none,
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
    if (!status && !shares_none)
        status = comm_allreduce(comm, &report->cloned_bytes, 1, DCP_REDUCE_SUM, err);
    if (!status && r->mover)
        status = comm_agree(comm, r->mover->prove(r->mover->ctx, all->sums, err), err);
    if (!status) save_history_record(save_context_of(all->store)->noted, r, all->sums);
    return status;
}

int save_sharded_finish(save_sharded *all, dcp_report *report, dcp_error *err) {
    const uint64_t id = state_id(all->r, all);
    int status = DCP_OK;
    for (size_t i = 0; i < all->n && !status; i++)
        status = shard_finish(&all->list[i], all, id, report, err);
    return forget_rank(status, err);
}
