/* Before the ranks agree to write, each does what it can alone; and so from the checksums on, until
 * they agree to publish. */
#include "save/write.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/clock.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "io/use.h"
#include "move/engine.h"
#include "move/transfer.h"
#include "save/context.h"
#include "save/history.h"
#include "save/image.h"
#include "save/replica_sums.h"
#include "save/reuse.h"
#include "store/recycle.h"
#include "store/striped.h"

/* A fingerprint of the pages that are written: all that something lies on. */
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
        store_recycle_take(im->store, strrchr(im->path, '/') + 1, pages_of(im->layout), im->path);
}

void save_image_note_recycled(const save_image *im, uint64_t step) {
    if (!im->comm->rank && im->engine->is_by_position)
        store_recycle_note(im->store, step, im->file.fd, pages_of(im->layout));
}

/* On rank 0. */
static int create(save_image *im, dcp_error *err) {
    uint64_t bytes = save_reuse_may_share(im) ? 0 : im->layout->skeleton.file_bytes;
    int hosts = im->layout->layout == DCP_LAYOUT_GLOBAL ? im->store->hosts : 0;
    int status = DCP_OK;
    if (!im->is_recycled) status = store_striped_create(im->store, im->path, bytes, hosts, err);
    return status ? status : im->engine->open(im->path, &im->file, err);
}

int save_image_begin(save_image *im, uint64_t told[SAVE_REUSE_WORDS], dcp_error *err) {
    move_pieces_sort(im->pieces, im->n_pieces);
    move_device_begin(&im->device, im->pieces, im->n_pieces);
    int status = DCP_OK;
    if (im->engine->is_by_position)
        status = save_context_open_queue(save_context_of(im->store), err);
    if (!status) take_recycled(im);
    if (!status && im->comm->rank == 0) status = create(im, err);
    return status ? status : save_reuse_begin(im, told, err);
}

/* The file is there. By position it is opened when it is used: already now, where this rank has
 * something to write, as bulk asks how memory has to lie. Whether that failed shows when it is
 * used. */
static int open_created(save_image *im, dcp_error *err) {
    if (im->comm->rank == 0) return DCP_OK;
    if (!im->engine->is_by_position) return im->engine->open(im->path, &im->file, err);
    io_use_prepare(&im->file, AT_FDCWD, im->path, IO_WRITE);
    if (!im->n_pieces) return DCP_OK;
    int status = io_use_begin(&im->file, err);
    if (!status) io_use_end(&im->file);
    return status;
}

/* Of a file whose bytes may be on the disk already. */
static int share_unchanged(save_image *im, const uint64_t told[SAVE_REUSE_WORDS],
                           dcp_report *report, dcp_error *err) {
    double start = core_clock_now();
    if (!save_reuse_may_share(im)) return DCP_OK;
    int status = save_reuse_share(im, told, err);
    report->copy_s += move_progress_phase(im->progress, DCP_PHASE_COPY, start, core_clock_now());
    return status;
}

/* Of layout global; shards have theirs together (sharded.c). */
static void note_replicas(void *ctx) {
    const save_image *im = ctx;
    if (im->layout->layout == DCP_LAYOUT_GLOBAL)
        im->sums[im->layout->blocks] = save_replicas_word(im->replicas);
}

static int move_pieces(save_image *im, dcp_report *report, dcp_error *err) {
    const int is_summed = im->replicas && im->replicas->others_are_summed;
    const move_file file = {
        .end = im->layout->skeleton.file_bytes, .file = &im->file, .path = im->path};
    move_transfer t = {.direction = MOVE_TO_FILE,
                       .comm = im->comm,
                       .queue = save_context_of(im->store)->queue,
                       .files = &file,
                       .n_files = 1,
                       .pieces = im->pieces,
                       .n_pieces = im->n_pieces,
                       .replicas = im->replicas ? im->replicas->pieces : NULL,
                       .n_replicas = im->replicas && !is_summed ? im->replicas->n : 0,
                       .others_are_summed = is_summed,
                       .kept = im->reuse && im->reuse->shared.n ? NULL : im->moves,
                       .uses_kept = im->uses_moves,
                       .device = &im->device,
                       .progress = im->progress,
                       .is_last = im->is_last,
                       .bulk_is_apart = im->mover != NULL,
                       .sums = im->mover ? NULL : im->sums, /* it adds to them */
                       .n_sums = im->layout->blocks + 1,
                       .on_summed = note_replicas,
                       .ctx = im,
                       .report = report};
    return im->engine->to_file(&t, err);
}

int save_image_write(save_image *im, const uint64_t told[SAVE_REUSE_WORDS], dcp_report *report,
                     dcp_error *err) {
    const int opened = open_created(im, err), agrees = im->mover || !im->engine->is_by_position;
    if (im->mover) im->mover->announce(im->mover->ctx, im);
    int status = agrees ? comm_agree(im->comm, opened, err) : DCP_OK;
    if (!status) status = share_unchanged(im, told, report, err);
    if (!status) status = move_pieces(im, report, err);
    if (!status && !im->mover) save_reuse_note(im);
    return status;
}

int save_image_join_sums(save_image *im, dcp_error *err) {
    note_replicas(im);
    int status = comm_allreduce(im->comm, im->sums, im->layout->blocks + 1, DCP_REDUCE_XOR, err);
    if (!status) save_reuse_note(im);
    return status;
}

/* Page-aligned and zeroed up to whole pages. */
static unsigned char *table_memory(uint64_t bytes) {
    void *memory;
    uint64_t size = core_round_to_pages(bytes ? bytes : 1);
    if (posix_memalign(&memory, PAGE_BYTES, size)) return NULL;
    return memset(memory, 0, size);
}

/* Raw sums of blocks become checksums of blocks and of rows. */
static void fill_blocks(const save_image *im, step_row *rows, unsigned char *blocks) {
    uint64_t *crcs = im->sums;
    for (size_t i = 0; i < im->layout->n; i++) {
        uint64_t *row = crcs + rows[i].first_block;
        for (uint64_t b = 0; b < step_index_blocks(rows[i].bytes); b++) {
            row[b] = core_crc64_finish(row[b], step_index_block_bytes(rows[i].bytes, b));
            core_put_u64(blocks + 8 * (rows[i].first_block + b), row[b]);
        }
        rows[i].crc = step_index_join_blocks(row, rows[i].bytes);
    }
}

static void write_table(save_image *im, io_queue *queue, const step_range *range,
                        const unsigned char *data) {
    uint64_t total = core_round_to_pages(range->bytes);
    for (uint64_t at = 0; at < total; at += IO_SLOT_BYTES) {
        uint64_t part = total - at < IO_SLOT_BYTES ? total - at : IO_SLOT_BYTES;
        io_queue_write(queue, io_queue_next(queue), &im->file, data + at, part, range->offset + at);
    }
}

static int build(const save_image *im, step_row *rows, unsigned char *const *tables,
                 unsigned char *block, step_userblock *ub, dcp_error *err) {
    const save_file *f = im->layout;
    uint64_t path_bytes = step_index_path_bytes(rows, f->n);
    fill_blocks(im, rows, tables[1]);
    step_index_encode(rows, f->n, path_bytes, f->layout, tables[0]);
    memset(tables[2], ' ', ub->meta.bytes);
    memcpy(tables[2], im->meta, strlen(im->meta));
    ub->rows = f->n;
    ub->row_bytes = step_index_row_bytes(path_bytes, f->layout);
    step_range *ranges[] = {&ub->index, &ub->blocks, &ub->meta};
    for (int t = 0; t < 3; t++) {
        if (!ranges[t]->bytes) ranges[t]->offset = USERBLOCK_BYTES; /* an empty table is nowhere */
        ranges[t]->crc = core_crc64(tables[t], ranges[t]->bytes);
    }
    int status = h5_skeleton_outside_crc(
        &f->skeleton, rows, f->n, (const unsigned char *const *)tables, &ub->outside_crc, err);
    if (!status) step_userblock_encode(ub, block);
    return status;
}

/* One rank, when the checksums of all data are known: index, blocks, JSON and the user block, each
 * on pages of its own. */
static int write_tables(save_image *im, io_queue *queue, dcp_error *err) {
    const h5_skeleton *s = &im->layout->skeleton;
    step_userblock ub = {.layout = im->layout->layout,
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
        write_table(im, queue, &(step_range){0, USERBLOCK_BYTES, 0}, block);
        io_queue_drain(queue);
        status = io_queue_status(queue, err);
    }
    for (int t = 0; t < 3; t++) free(tables[t]);
    free(block);
    return status;
}

/* A rank that never opened the file has written nothing. */
static int sync_written(save_image *im, dcp_error *err) {
    io_file *file = &im->file;
    if (file->fd < 0 && !file->failed) return DCP_OK;
    int status = io_use_begin(file, err);
    if (status) return status;
    status = io_sync(file, err);
    io_use_end(file);
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
