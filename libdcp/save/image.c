/* The pieces that are written into a file, and the extents that the file shares with the last
 * step's file. */
#include "save/image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/bytes.h"
#include "core/fail.h"
#include "core/system.h"
#include "format/folder.h"
#include "io/file.h"
#include "move/engine.h"
#include "save/context.h"
#include "save/history.h"
#include "save/plan.h"

/* Adds the metadata's pieces on rank 0. They are like any other pieces, but have no checksums of
 * blocks. */
static void add_metadata(save_image *im) {
    for (size_t i = 0; i < im->layout->skeleton.n_runs; i++) {
        const h5_run *run = &im->layout->skeleton.runs[i];
        const box_copy whole = {.run_bytes = run->bytes, .runs = 1};
        move_piece *p = &im->pieces[im->n_pieces++];
        *p = (move_piece){.file_offset = run->offset, .bytes = run->bytes, .raw = run->data};
        move_piece_set_copy(p, &whole);
        p->bulk = 0;
    }
}

int save_image_prepare(save_image *im, dcp_comm *comm, const save_file *layout, const char *folder,
                       const char *name, size_t n_pieces, move_progress *progress, dcp_error *err) {
    *im = (save_image){.comm = comm, .layout = layout, .file.fd = -1, .progress = progress};
    if (snprintf(im->path, sizeof im->path, "%s/%s", folder, name) >= (int)sizeof im->path)
        return core_fail(err, DCP_ERR_ARG, "path of %s is too long", folder);
    size_t total = n_pieces + layout->skeleton.n_runs;
    im->pieces = calloc(total + 1, sizeof *im->pieces);
    im->sums = calloc(layout->blocks + 1 + COMM_XOR_SCRATCH(comm->size), sizeof *im->sums);
    if (!im->pieces || !im->sums)
        return core_fail_memory(err, total * sizeof *im->pieces + layout->blocks * 8);
    add_metadata(im);
    return DCP_OK;
}

move_piece *save_image_add(save_image *im, size_t row, const state_box *box, const box_copy *copy) {
    const format_row *r = &im->layout->rows[row];
    move_piece *p = &im->pieces[im->n_pieces++];
    *p = (move_piece){.file_offset = r->offset,
                      .bytes = r->bytes,
                      .row = r,
                      .box = box,
                      .sums = im->sums + r->first_block};
    move_piece_set_copy(p, copy);
    if (box->device) {
        im->device.staging = save_context_of(im->store)->memory.staging;
        p->device = &im->device;
    }
    if (im->mover) p->bulk = p->bulk && copy->run_bytes >= SAVE_APART_BYTES;
    return p;
}

void save_image_free(save_image *im) {
    if (im->layout) io_fd_close(&im->file);
    if (im->reuse && im->reuse->from >= 0) close(im->reuse->from);
    if (im->reuse) free(im->reuse->shared.list);
    if (im->reuse) free(im->reuse->sums);
    free(im->reuse);
    move_pieces_free(im->pieces, im->n_pieces);
    free(im->sums);
    free(im->meta);
    *im = (save_image){.file.fd = -1};
}

/* Sharing unchanged bytes with the last step's file.
 *
 * Candidates are the rows in which the previous save left at least one block unchanged. The
 * checksums of their blocks in memory are computed, and compared with the checksums in the last
 * step's record. Rank 0 shares the whole pages of unchanged blocks, and everything else is written
 * as usual. All ranks have the same checksums, so each rank finds the same ranges without
 * communication. Rank 0 only has to report how many of the ranges it could share, counted from the
 * first one.
 *
 * A page is shared only if all its bytes belong to one tensor and are unchanged, so no page is
 * partly shared. Checksums are always computed from memory, so a load notices if shared bytes are
 * damaged on the disk. A row's bytes are written again after REWRITE_AFTER saves or a few more, so
 * such damage does not last forever. Different rows are written again in different saves. */

#define REWRITE_AFTER 16
#define LEAST_BYTES (64u << 10) /* a smaller extent is not worth sharing */

/* Returns the record of file `i` of this rank in the store's last step, or NULL if there is
 * none. */
static const save_file_record *find_last(const dcp_store *store, size_t i) {
    const struct save_history *last = save_context_of(store)->history;
    const struct save_history *now = save_context_of(store)->noted;
    if (!last || last->layout != now->layout || last->shards != now->shards) return NULL;
    return &last->files[i];
}

int save_reuse_prepare(save_image *im, dcp_store *store, size_t i, dcp_error *err) {
    char step[64];
    const save_file *file = im->layout;
    save_reuse *u = im->reuse = calloc(1, sizeof *u);
    if (!u) return core_fail_memory(err, sizeof *u);
    u->from = -1;
    u->now = &save_context_of(store)->noted->files[i];
    u->last = find_last(store, i);
    u->now->refused = u->last && u->last->refused;
    if (u->now->refused) return DCP_OK;
    *u->now = (save_file_record){.rows = save_history_rows(file->rows, file->n),
                                 .n = file->n,
                                 .age = calloc(file->n + 1, 1),
                                 .steady = calloc(file->n + 1, 1),
                                 .sums = calloc(file->blocks + 1, sizeof *u->now->sums)};
    if (!u->now->age || !u->now->steady || !u->now->sums)
        return core_fail_memory(err, file->n * 2 + file->blocks * 8);
    if (u->last && (u->last->n != file->n || u->last->rows != u->now->rows)) u->last = NULL;
    if (!u->last) return DCP_OK;
    format_name_write(step, "", save_context_of(store)->history->step);
    if (snprintf(u->path, sizeof u->path, "%s/%s%s", store->dir, step, strrchr(im->path, '/')) >=
        (int)sizeof u->path)
        return core_fail(err, DCP_ERR_ARG, "path of %s is too long", store->dir);
    return DCP_OK;
}

bool save_reuse_may_share(const save_image *im) {
    return im->engine->is_by_position && im->reuse && im->reuse->last && !im->reuse->last->refused;
}

/* Opens the last step's file if it has not changed since it was written. Shares its user block,
 * which will be overwritten anyway, to find out whether extents can be shared. Returns -1 if they
 * can't. */
static int open_last(save_reuse *u, int to, bool *refused) {
    uint64_t identity[4];
    int fd = open(u->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return -1;
    io_identify(fd, identity);
    bool usable = memcmp(identity, u->last->identity, sizeof identity) == 0;
    if (usable && io_clone(fd, to, 0, PAGE_BYTES)) {
        usable = false;
        *refused = io_clone_is_refused(errno);
    }
    if (usable) return fd;
    close(fd);
    return -1;
}

static bool in_memory(const save_image *im) {
    for (size_t i = 0; i < im->n_pieces; i++)
        if (im->pieces[i].box && !im->pieces[i].box->data) return false;
    return true;
}

static bool is_candidate(const save_image *im, size_t row) {
    const save_file_record *last = im->reuse->last;
    const format_row *r = &im->layout->rows[row];
    return last->steady[row] && last->age[row] < REWRITE_AFTER + row % REWRITE_AFTER &&
           r->bytes >= PAGE_BYTES && r->offset % PAGE_BYTES == 0;
}

/* Adds a run to the checksums. Bytes that other holders supply are added only to the checksums of
 * the box, through `other`, which is NULL if that was done before. */
static void sum_run(const move_piece *p, const move_piece *other, uint64_t run) {
    uint64_t a, b;
    core_box_copy_run(p->copy, run, &a, &b);
    for (uint64_t at = a, end = a + p->copy->run_bytes, to; at < end; at = to) {
        to = end;
        const move_piece *as = move_piece_turn(p, at, &to) ? p : other;
        if (as) move_piece_sum_memory(as, at, b + (at - a), to - at);
    }
}

/* Computes the checksums of the candidates; they are not computed again during writing. */
static void sum_candidates(save_image *im) {
    const bool is_summed = im->replicas && im->replicas->others_are_summed;
    for (size_t i = 0; i < im->n_pieces; i++) {
        move_piece *p = &im->pieces[i];
        if (!p->row || !is_candidate(im, (size_t)(p->row - im->layout->rows))) continue;
        const move_piece other = move_piece_own_sums(p);
        for (uint64_t run = 0; run < p->copy->runs; run++)
            sum_run(p, is_summed ? NULL : &other, run);
        p->sums = p->own = NULL;
        p->global = NULL;
    }
}

static int by_place(const void *a, const void *b) {
    const move_span *x = a, *y = b;
    return (x->from > y->from) - (x->from < y->from);
}

/* Joins adjacent ranges, and drops short ones. */
static void tidy(move_span_list *s) {
    size_t kept = 0;
    qsort(s->list, s->n, sizeof *s->list, by_place);
    for (size_t i = 0, end; i < s->n; i = end) {
        move_span joined = s->list[i];
        for (end = i + 1; end < s->n && s->list[end].from == joined.to; end++)
            joined.to = s->list[end].to;
        if (joined.to - joined.from >= LEAST_BYTES) s->list[kept++] = joined;
    }
    s->n = kept;
}

/* Finds the whole pages of unchanged blocks. `sums` are the blocks' checksums, joined over all
 * ranks. */
static void find_unchanged(const save_image *im, const uint64_t *sums, move_span_list *out) {
    for (size_t i = 0; i < im->layout->n; i++) {
        const format_row *row = &im->layout->rows[i];
        if (!is_candidate(im, i)) continue;
        for (uint64_t b = 0; b < format_index_blocks(row->bytes); b++) {
            uint64_t k = row->first_block + b, from = row->offset + b * BLOCK_BYTES;
            uint64_t bytes = format_index_block_bytes(row->bytes, b) / PAGE_BYTES * PAGE_BYTES;
            if (sums[k] == im->reuse->last->sums[k] && bytes)
                out->list[out->n++] = (move_span){from, from + bytes};
        }
    }
    tidy(out);
}

/* Collective: finds the unchanged ranges and stores them in u->shared. */
static int look(save_image *im, dcp_error *err) {
    save_reuse *u = im->reuse;
    const uint64_t blocks = im->layout->blocks;
    sum_candidates(im);
    memcpy(u->sums, im->sums, blocks * sizeof *u->sums);
    int status = comm_allreduce(im->comm, u->sums, blocks, DCP_REDUCE_XOR, err);
    if (!status) find_unchanged(im, u->sums, &u->shared);
    return status;
}

/* Shares the ranges in order, and returns how many were shared. If a range can't be shared, for
 * example because the disk is full, this range and all later ones have to be written. */
static uint64_t share_ranges(const move_span_list *shared, int from, int to) {
    uint64_t done = 0;
    while (done < shared->n && !io_clone(from, to, shared->list[done].from,
                                         shared->list[done].to - shared->list[done].from))
        done++;
    return done;
}

/* Reserves space for everything that is not shared. */
static int reserve_rest(const save_image *im, dcp_error *err) {
    const move_span_list *shared = &im->reuse->shared;
    uint64_t at = 0;
    for (size_t i = 0; i <= shared->n; i++) {
        uint64_t to = i < shared->n ? shared->list[i].from : im->layout->skeleton.file_bytes;
        if (to > at && io_reserve_range(im->file.fd, at, to - at))
            return core_fail_errno(err, "reserve space for", im->path);
        if (i < shared->n) at = shared->list[i].to;
    }
    return DCP_OK;
}

static int add_bytes(void *ctx, const move_fragment *f) {
    *(uint64_t *)ctx += f->piece->box ? f->bytes : 0;
    return DCP_OK;
}

/* Makes the pieces skip the shared ranges, which count as written. */
static void skip_shared(save_image *im) {
    save_reuse *u = im->reuse;
    uint64_t before = 0, left = 0;
    size_t first = 0;
    for (size_t i = 0; i < im->n_pieces; i++) {
        im->pieces[i].skip = &u->shared;
        if (im->pieces[i].box) before += move_piece_supplied(&im->pieces[i]);
    }
    move_fragments(im->pieces, im->n_pieces, &first, 0, im->layout->skeleton.file_bytes, add_bytes,
                   &left);
    move_bulk_parts(im->pieces, im->n_pieces, add_bytes, &left);
    for (size_t i = 0; i < u->shared.n; i++)
        u->bytes += u->shared.list[i].to - u->shared.list[i].from;
    if (before > left) move_progress_written(im->progress, before - left);
}

static bool has_candidates(const save_image *im) {
    for (size_t i = 0; i < im->layout->n; i++)
        if (is_candidate(im, i)) return true;
    return false;
}

/* Values of save_sharing.how; the ranks use the smallest one. NO: rank 0 can't share, or no row is
 * a candidate; rank 0 has then reserved space for the whole file. NOT_IN_MEMORY: some boxes are not
 * in host memory, so they can't be compared. */
enum { NO, NOT_IN_MEMORY, YES };

/* On rank 0: sets the file's size, and sets *sharing to rank 0's part of the vote. */
static int begin_file(save_image *im, save_sharing *sharing, dcp_error *err) {
    save_reuse *u = im->reuse;
    bool refused = false;
    const uint64_t bytes = im->layout->skeleton.file_bytes;
    if (core_file_limit_check(bytes) || ftruncate(im->file.fd, (off_t)bytes))
        return core_fail_errno(err, "set the size of", im->path);
    u->from = open_last(u, im->file.fd, &refused);
    sharing->refused = refused != 0;
    if (u->from >= 0 && has_candidates(im)) return DCP_OK;
    sharing->how = NO;
    return reserve_rest(im, err);
}

void save_reuse_vote(comm_vote *v, save_sharing *sharing) {
    comm_vote_min(v, &sharing->how, 1);
    comm_vote_any(v, &sharing->refused);
}

int save_reuse_begin(save_image *im, save_sharing *sharing, dcp_error *err) {
    save_reuse *u = im->reuse;
    const uint64_t blocks = im->layout->blocks;
    *sharing = (save_sharing){.how = YES};
    if (!save_reuse_may_share(im)) return DCP_OK;
    u->sums = core_array(blocks + 1, sizeof *u->sums);
    u->shared.list = core_array(blocks + 1, sizeof *u->shared.list);
    if (!u->sums || !u->shared.list) return core_fail_memory(err, blocks * 24);
    if (!in_memory(im)) sharing->how = NOT_IN_MEMORY;
    return im->comm->rank ? DCP_OK : begin_file(im, sharing, err);
}

/* On rank 0: shares as many ranges as possible, sets *done to their number, and reserves space for
 * the rest. */
static int share_and_reserve(save_image *im, const save_sharing *sharing, uint64_t *done,
                             dcp_error *err) {
    save_reuse *u = im->reuse;
    *done = sharing->how == YES ? share_ranges(&u->shared, u->from, im->file.fd) : 0;
    u->shared.n = (size_t)*done;
    return reserve_rest(im, err);
}

int save_reuse_share(save_image *im, const save_sharing *sharing, dcp_error *err) {
    save_reuse *u = im->reuse;
    uint64_t done = UINT64_MAX;
    int status = DCP_OK;
    u->now->refused = sharing->refused;
    if (sharing->how == NO) return DCP_OK;
    if (sharing->how == YES) status = look(im, err);
    if (status) return status;
    if (im->comm->rank == 0) status = share_and_reserve(im, sharing, &done, err);
    status = comm_agree_min(im->comm, status, &done, 1, err);
    u->shared.n = status ? 0 : (size_t)done;
    if (u->shared.n) skip_shared(im);
    return status;
}

/* Returns true if any byte of the row is shared. */
static bool is_shared(const save_reuse *u, const format_row *row) {
    const move_span *spans = u->shared.list; /* NULL: no range is shared */
    size_t low =
        spans ? core_lower_bound(&spans->to, u->shared.n, sizeof *spans, row->offset + 1) : 0;
    return low < u->shared.n && u->shared.list[low].from < row->offset + row->bytes;
}

void save_reuse_note(save_image *im) {
    save_reuse *u = im->reuse;
    if (!u || u->now->refused) return;
    memcpy(u->now->sums, im->sums, im->layout->blocks * sizeof *im->sums);
    for (size_t i = 0; i < im->layout->n; i++) {
        const format_row *row = &im->layout->rows[i];
        if (is_shared(u, row)) u->now->age[i] = (unsigned char)(u->last->age[i] + 1);
        u->now->steady[i] = !u->last; /* without a previous step, every row counts as steady */
        for (uint64_t b = 0; b < format_index_blocks(row->bytes) && !u->now->steady[i]; b++)
            u->now->steady[i] =
                im->sums[row->first_block + b] == u->last->sums[row->first_block + b];
    }
}

void save_reuse_close(save_image *im) {
    if (im->reuse && im->comm->rank == 0) io_identify(im->file.fd, im->reuse->now->identity);
}
