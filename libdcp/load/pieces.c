/* A tensor's home turns the boxes that it receives into the requests that reader/view.h expects. */
#include "load/pieces.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/box.h"
#include "core/bytes.h"
#include "core/fail.h"
#include "format/hold.h"
#include "io/queue.h"
#include "load/loading.h"
#include "load/proofs.h"
#include "move/engine.h"
#include "move/transfer.h"
#include "reader/checkpoint.h"

/* A box as it was received. */
typedef struct asked_box {
    size_t number; /* the tensor's number in the checkpoint */
    const unsigned char *start;
    uint64_t bytes; /* size of start and count together */
} asked_box;

static int by_number(const void *a, const void *b) {
    const asked_box *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

static size_t count_most(const comm_buffer *boxes, const uint64_t *bytes, int ranks) {
    const unsigned char *at = boxes->data, *start;
    size_t most = 0, tensor;
    uint32_t dims;
    for (int r = 0; r < ranks; r++) {
        size_t n = 0;
        for (const unsigned char *end = at + bytes[r]; at < end; n++)
            at = plan_box_next(at, &tensor, &dims, &start);
        if (n > most) most = n;
    }
    return most;
}

/* Appends the boxes of one rank, which begin at *at, to `asked`, ordered by the tensors' numbers.
 * Moves *at to the end of these boxes. */
static int put_asked(const load_home_request *a, const unsigned char **at, uint64_t bytes,
                     asked_box *list, comm_buffer *asked, dcp_error *err) {
    size_t n = 0, is_sorted = 1;
    for (const unsigned char *end = *at + bytes; *at < end; n++) {
        size_t tensor;
        uint32_t dims;
        *at = plan_box_next(*at, &tensor, &dims, &list[n].start);
        list[n].number = a->numbers[tensor];
        list[n].bytes = 16ULL * dims;
        is_sorted &= !n || list[n - 1].number <= list[n].number;
    }
    if (!is_sorted) qsort(list, n, sizeof *list, by_number); /* renames may change the order */
    for (size_t i = 0; i < n; i++) {
        const uint64_t number = list[i].number;
        unsigned char *to = comm_buffer_append(asked, sizeof number + list[i].bytes);
        if (!to) return core_fail_memory(err, asked->bytes);
        memcpy(to, &number, sizeof number);
        memcpy(to + sizeof number, list[i].start, list[i].bytes);
    }
    return DCP_OK;
}

static int answer_boxes(void *ctx, const comm_buffer *boxes, const uint64_t *bytes,
                        plan_homes *homes, dcp_error *err) {
    const load_home_request *a = ctx;
    const int ranks = a->job->comm->size;
    const size_t most = count_most(boxes, bytes, ranks);
    const unsigned char *at = boxes->data;
    comm_buffer asked = {0};
    asked_box *list = core_array(most + 1, sizeof *list);
    uint64_t *asked_bytes = calloc((unsigned)ranks, sizeof *asked_bytes);
    int status = list && asked_bytes ? DCP_OK : core_fail_memory(err, most * sizeof *list);
    for (int r = 0; r < ranks && !status; r++) {
        const uint64_t before = asked.bytes;
        status = put_asked(a, &at, bytes[r], list, &asked, err);
        asked_bytes[r] = asked.bytes - before;
    }
    free(list);
    if (!status)
        status = reader_view_answer(a->job->ckpt, (const uint64_t *)(const void *)asked.data,
                                    asked_bytes, &homes->out, homes->out_bytes, err);
    free(asked_bytes);
    free(asked.data);
    return status;
}

static int take_rows(void *ctx, plan_homes *homes, dcp_error *err) {
    const load_home_request *a = ctx;
    load_job *l = a->job;
    free(homes->out.data); /* it has been sent */
    homes->out = (comm_buffer){0};
    int status = reader_view_unpack(l->ckpt, &homes->in, &l->view, err);
    return status ? status : load_pieces_begin(l, a->end, err);
}

int load_request_prepare(load_home_request *a, load_job *l, uint64_t *end, dcp_error *err) {
    const size_t ranks = (size_t)l->comm->size, n = l->chosen.n;
    a->job = l;
    a->end = end;
    a->numbers = core_array(n + 1, sizeof *a->numbers);
    a->bytes = calloc(2 * ranks, sizeof *a->bytes);
    if (!a->numbers || !a->bytes) return core_fail_memory(err, (n + 2 * ranks) * 8);
    for (size_t i = 0; i < n; i++) a->numbers[i] = (size_t)(l->chosen.stored[i] - l->ckpt->tensors);
    a->homes = (plan_homes){.numbers = a->numbers,
                            .answer = answer_boxes,
                            .receive = take_rows,
                            .ctx = a,
                            .out_bytes = a->bytes,
                            .in_bytes = a->bytes + ranks};
    return DCP_OK;
}

void load_request_free(load_home_request *a) {
    free(a->numbers);
    free(a->bytes);
    free(a->homes.out.data);
    free(a->homes.in.data);
    *a = (load_home_request){0};
}

/* Without the option cast, the wanted types always equal the stored ones. */
static bool needs_cast(const load_job *l, size_t i) {
    return l->options.cast &&
           l->chosen.wanted[i]->tensor.dtype != l->chosen.stored[i]->tensor.dtype;
}

static uint64_t stored_size(const load_job *l, size_t i) {
    return dcp_dtype_bytes(l->chosen.stored[i]->tensor.dtype);
}

static uint64_t wanted_size(const load_job *l, size_t i) {
    return dcp_dtype_bytes(l->chosen.wanted[i]->tensor.dtype);
}

/* Returns true if the tensor's elements are converted on the way into the boxes. */
static bool load_cast_is_narrow(const load_job *l, size_t i) {
    return stored_size(l, i) > wanted_size(l, i) || (l->cast.on_the_way && needs_cast(l, i));
}

/* Makes `shadow`, the tensor with the stored type. Each of its boxes lies at the end of
 * the wanted box's memory. */
static void make_shadow(const load_job *l, size_t i, state_tensor *shadow, state_box *boxes) {
    const state_tensor *t = l->chosen.wanted[i];
    uint64_t surplus = wanted_size(l, i) - stored_size(l, i);
    *shadow = *t;
    shadow->tensor.dtype = l->chosen.stored[i]->tensor.dtype;
    shadow->bytes = l->chosen.stored[i]->bytes;
    shadow->boxes = boxes;
    for (size_t k = 0; k < t->n_boxes; k++) {
        boxes[k] = t->boxes[k];
        boxes[k].data = (unsigned char *)t->boxes[k].data +
                        dcp_box_elems(&t->boxes[k].box, t->tensor.ndim) * surplus;
    }
}

int load_cast_prepare(load_job *l, dcp_error *err) {
    load_casting *cast = &l->cast;
    size_t n = l->chosen.n, tensors = 0, boxes = 0;
    for (size_t i = 0; i < n; i++) {
        if (!needs_cast(l, i)) continue;
        if (load_cast_is_narrow(l, i)) {
            cast->narrows = true;
            continue;
        }
        tensors++;
        boxes += l->chosen.wanted[i]->n_boxes;
    }
    cast->tensors = calloc(n + 1, sizeof *cast->tensors);
    cast->shadows = calloc(tensors + 1, sizeof *cast->shadows);
    cast->boxes = calloc(boxes + 1, sizeof *cast->boxes);
    if (!cast->tensors || !cast->shadows || !cast->boxes)
        return core_fail_memory(err, n * 8 + tensors * sizeof *cast->shadows);
    state_tensor *shadow = cast->shadows;
    state_box *box = cast->boxes;
    for (size_t i = 0; i < n; i++) {
        cast->tensors[i] = l->chosen.wanted[i];
        if (!needs_cast(l, i) || load_cast_is_narrow(l, i)) continue;
        make_shadow(l, i, shadow, box);
        box += shadow->n_boxes;
        cast->tensors[i] = shadow++;
    }
    return DCP_OK;
}

void load_cast_free(load_casting *cast) {
    free(cast->tensors);
    free(cast->shadows);
    free(cast->boxes);
    *cast = (load_casting){0};
}

void load_cast_in_place(const load_job *l) {
    for (size_t i = 0; i < l->chosen.n; i++) {
        const state_tensor *want = l->chosen.wanted[i], *shadow = l->cast.tensors[i];
        for (size_t k = 0; k < want->n_boxes && shadow != want; k++)
            dcp_convert(shadow->tensor.dtype, shadow->boxes[k].data, want->tensor.dtype,
                        want->boxes[k].data, dcp_box_elems(&want->boxes[k].box, want->tensor.ndim));
    }
}

/* Makes pieces of the checkpoint's datasets from the state's boxes. Pieces are moved in batches. */

/* If at most this many datasets are near a box, memory is allocated for a piece of each. If there
 * are more, those that share elements with the box are counted first, since a single long dataset
 * can make all datasets of a tensor count as near. */
enum { FEW = 64 };

/* The maximum number of pieces that a rank has at a time, unless a single tensor has more. These
 * pieces take a few MiB. */
enum { MOST_PIECES = 32 << 10 };

static int make_sums(load_job *l, dcp_error *err) {
    uint64_t blocks = 0;
    l->first_sum = calloc(l->chosen.n + 1, sizeof *l->first_sum);
    if (!l->first_sum) return core_fail_memory(err, l->chosen.n * sizeof *l->first_sum);
    for (size_t i = 0; i < l->chosen.n; i++) {
        l->first_sum[i] = blocks;
        blocks += load_datasets(l, i)->blocks;
    }
    l->first_sum[l->chosen.n] = blocks;
    l->sums = calloc(blocks + COMM_XOR_SCRATCH(l->comm->size), sizeof *l->sums);
    return l->sums ? DCP_OK : core_fail_memory(err, blocks * sizeof *l->sums);
}

/* Returns a path to the file that is valid while its folder is open, even if the folder is renamed.
 * Returns NULL if memory is short. */
static char *path_by_folder(const format_file *file) {
    const char *slash = strrchr(file->path, '/');
    char *path;
    if (asprintf(&path, "/proc/self/fd/%d/%s", file->folder, slash ? slash + 1 : file->path) < 0)
        return NULL;
    return path;
}

/* HDF5 opens files by their paths. If the step has lost its name since it was opened, another step
 * may have that name, so HDF5 gets paths that lead through the open folder. */
static int find_detours(load_job *l, dcp_error *err) {
    const dcp_checkpoint *ckpt = l->ckpt;
    bool moved = ckpt->hold && !format_hold_is_named(ckpt->hold);
    for (size_t f = 0; f < ckpt->n_files && moved; f++) {
        const format_file *file = ckpt->by_address[f];
        if (file->hidden) continue;
        l->files[f].path = path_by_folder(file);
        if (!l->files[f].path) return core_fail_memory(err, PATH_MAX);
    }
    return DCP_OK;
}

static int list_files(load_job *l, dcp_error *err) {
    const dcp_checkpoint *ckpt = l->ckpt;
    l->files = calloc(ckpt->n_files, sizeof *l->files);
    if (!l->files) return core_fail_memory(err, ckpt->n_files * sizeof *l->files);
    for (size_t f = 0; f < ckpt->n_files; f++) {
        format_file *file = ckpt->by_address[f];
        l->files[f] = (move_file){.base = file->base,
                                  .end = file->base + file->ub.file_bytes,
                                  .file = &file->file,
                                  .path = file->path,
                                  .owner = file};
    }
    return DCP_OK;
}

/* Finds the datasets near the boxes. Requires that this rank has the rows of all shards. */
static int find_in_rows(load_job *l, dcp_error *err) {
    reader_request *wants = calloc(l->boxes.n + 1, sizeof *wants);
    int status = wants ? DCP_OK : core_fail_memory(err, l->boxes.n * sizeof *wants);
    for (size_t i = 0; i < l->boxes.n && !status; i++)
        wants[i] = (reader_request){l->chosen.stored[l->boxes.boxes[i].tensor],
                                    &l->boxes.boxes[i].box->box};
    if (!status) reader_view_request(l->ckpt, DCP_OK, wants, l->boxes.n, &l->view, &status, err);
    free(wants);
    return status;
}

/* Prepares the checksums, the list of files, and the queue. */
static int prepare_pieces(load_job *l, dcp_error *err) {
    int status =
        l->ckpt->rows == READER_ROWS_HERE ? reader_view_local(l->ckpt, &l->view, err) : DCP_OK;
    if (!status) status = make_sums(l, err);
    if (!status) status = list_files(l, err);
    if (status) return status;
    return l->engine->is_by_position ? io_queue_create(&l->queue, err) : find_detours(l, err);
}

void load_pieces_free(load_job *l) {
    io_queue_destroy(l->queue);
    for (size_t f = 0; l->files && f < l->ckpt->n_files; f++)
        if (l->files[f].path != l->ckpt->by_address[f]->path) free((char *)l->files[f].path);
    free(l->files);
    reader_view_free(&l->view);
    free(l->sums);
    free(l->first_sum);
    free(l->provers);
    free(l->home_provers);
}

/* Makes a piece of the part of the box that the dataset holds. Returns false if the dataset holds
 * no part of the box. Boxes that several ranks may need are not bulk: aggregators read them once
 * for all these ranks. */
static bool make_piece(const load_job *l, const plan_box *b, const reader_dataset *from,
                       move_piece *out) {
    const state_box *box = b->box;
    box_copy copy;
    if (!format_index_shared(from->row, &box->box, &copy)) return false;
    *out = (move_piece){.file_offset = from->file->base + from->row->offset,
                        .bytes = from->row->bytes,
                        .row = from->row,
                        .box = box};
    if (b->keeper && l->boxes.exact[b->tensor])
        out->sums = l->sums + l->first_sum[b->tensor] + from->known_blocks;
    move_piece_set_copy(out, &copy);
    if (from->file->hidden || b->replicated || !l->boxes.exact[b->tensor]) out->bulk = 0;
    if (box->device) out->device = (move_device *)&l->device;
    return true;
}

/* Returns an upper bound on the number of pieces of a box of the tensor. */
static size_t most_pieces(const load_job *l, size_t tensor, const dcp_box *box) {
    const reader_datasets *known = load_datasets(l, tensor);
    size_t n = 0, k, end;
    reader_join_near(l->chosen.stored[tensor], known, box, &k, &end);
    if (end - k <= FEW) return end - k;
    for (; k < end; k++) {
        box_copy copy;
        n += (size_t)format_index_shared(known->datasets[k].row, box, &copy);
    }
    return n;
}

/* Adds the datasets' pieces of b's box to out and returns their number. */
static size_t pieces_of(const load_job *l, const plan_box *b, move_piece *out) {
    const reader_datasets *known = load_datasets(l, b->tensor);
    size_t n = 0, k, end;
    reader_join_near(l->chosen.stored[b->tensor], known, &b->box->box, &k, &end);
    for (; k < end; k++) n += (size_t)make_piece(l, b, &known->datasets[k], out + n);
    return n;
}

/* HDF5 must not open a file before plain reads have shown that its metadata is intact. */
static int check_metadata(void *owner, dcp_error *err) {
    return format_file_check_outside(owner, err);
}

/* Tensors are moved in batches, to limit the number of pieces that a rank has at a time. */
typedef struct piece_batch {
    /* The batch has tensors [tensor, end); until the ranks agree, `end` suits only this rank. */
    size_t tensor, end;
    size_t box;          /* the first box of these tensors */
    bool exact, inexact; /* exact: has tensors that the boxes cover exactly; inexact: has others */
    bool is_last;        /* no other walk over the tensors follows this one */
    size_t agreed_end;   /* the end of the first batch, if it is agreed on already; else 0 */
    move_piece *pieces;
    move_cast *casts; /* one per piece; NULL: no elements are converted on the way */
    size_t n, room;
} piece_batch;

static bool is_in(const load_job *l, const piece_batch *b, size_t tensor) {
    return l->boxes.exact[tensor] ? b->exact : b->inexact;
}

/* Returns an upper bound on the number of pieces of all of the tensor's boxes. */
static size_t most_of_tensor(const load_job *l, size_t tensor) {
    const state_tensor *t = l->cast.tensors[tensor];
    size_t n = 0;
    for (size_t k = 0; k < t->n_boxes; k++) n += most_pieces(l, tensor, &t->boxes[k].box);
    return n;
}

/* Counts the pieces of the tensors, starting at the batch's first one, until they reach
 * MOST_PIECES. Opens the datasets of these tensors. Each dataset holds a piece, so the number of
 * open datasets is limited, too. */
static int measure_batch(load_job *l, piece_batch *b, dcp_error *err) {
    b->room = 0;
    for (b->end = b->tensor; b->end < l->chosen.n; b->end++) {
        if (!is_in(l, b, b->end)) continue;
        int status = reader_view_open(l->ckpt, load_datasets(l, b->end), err);
        if (status) return status;
        size_t more = most_of_tensor(l, b->end);
        if (b->inexact) more += load_proofs_of(l, b->end, NULL);
        if (b->room && b->room + more > MOST_PIECES) return DCP_OK;
        b->room += more;
    }
    return DCP_OK;
}

/* Sets *end to the number of tensors whose pieces this rank can have in one batch, and opens their
 * datasets. */
static int measure_pieces(const load_job *l, uint64_t *end, dcp_error *err) {
    size_t n = 0, i = 0;
    for (; i < l->chosen.n; i++) {
        core_state_prefetch(l->cast.tensors, l->chosen.n, i);
        int status = reader_view_open(l->ckpt, load_datasets(l, i), err);
        if (status) return status;
        const size_t more = most_of_tensor(l, i);
        if (n && n + more > MOST_PIECES) break;
        n += more;
    }
    *end = i;
    return DCP_OK;
}

int load_pieces_begin(load_job *l, uint64_t *end, dcp_error *err) {
    const dcp_checkpoint *ckpt = l->ckpt;
    const bool finds = ckpt->rows != READER_ROWS_HERE && !load_uses_homes(l);
    int status = finds ? find_in_rows(l, err) : DCP_OK;
    if (!status) status = prepare_pieces(l, err);
    return status ? status : measure_pieces(l, end, err);
}

static void cast_pieces(const load_job *l, piece_batch *b, size_t tensor, size_t first) {
    if (!l->cast.narrows || !load_cast_is_narrow(l, tensor)) return;
    for (; first < b->n; first++) {
        b->casts[first].to = l->chosen.wanted[tensor]->tensor.dtype;
        b->pieces[first].cast = &b->casts[first];
    }
}

/* Makes the pieces of the tensors before b->end; moves b->box to the first box after them. */
static void fill_batch(const load_job *l, piece_batch *b) {
    const plan_boxes *boxes = &l->boxes;
    for (size_t tensor = b->tensor; tensor < b->end; tensor++) {
        for (; b->box < boxes->n && boxes->boxes[b->box].tensor == tensor; b->box++) {
            const plan_box *box = &boxes->boxes[b->box];
            if (b->box + PREFETCH_DISTANCE < boxes->n)
                core_prefetch(box[PREFETCH_DISTANCE].box, sizeof *box->box);
            if (!is_in(l, b, tensor)) continue;
            size_t first = b->n;
            b->n += pieces_of(l, box, b->pieces + first);
            cast_pieces(l, b, tensor, first);
        }
        if (b->inexact) b->n += load_proofs_of(l, tensor, b->pieces + b->n);
    }
}

static int reserve_pieces(const load_job *l, piece_batch *b, dcp_error *err) {
    b->pieces = calloc(b->room + 1, sizeof *b->pieces);
    if (l->cast.narrows) b->casts = calloc(b->room + 1, sizeof *b->casts);
    if (!b->pieces || (l->cast.narrows && !b->casts))
        return core_fail_memory(err, b->room * (sizeof *b->pieces + sizeof *b->casts));
    return DCP_OK;
}

/* Collective, unless the batch's end has already been agreed on. The batch ends with the last
 * tensor that suits all ranks. A failure of this rank is reported in this agreement or, if there is
 * none, when the move ends. */
static int agree_batch(load_job *l, piece_batch *b, dcp_error *failure, dcp_error *err) {
    b->n = 0;
    int status = measure_batch(l, b, failure);
    if (!status) status = reserve_pieces(l, b, failure);
    if (!status) status = move_progress_poll(&l->progress, failure);
    if (b->agreed_end) {
        b->end = b->agreed_end;
        b->agreed_end = 0;
        return DCP_OK;
    }
    uint64_t end = status ? 0 : b->end + 1, least = end;
    int failed = comm_allreduce(l->comm, &least, 1, DCP_REDUCE_MIN, err);
    if (failed) return failed;
    if (!least) {
        if (status && err) *err = *failure;
        return comm_agree(l->comm, status, err);
    }
    b->end = least - 1;
    return DCP_OK;
}

/* `failure` is this rank's failure so far, or NULL. */
static int move_pieces(load_job *l, const move_engine *engine, const piece_batch *b,
                       const dcp_error *failure, dcp_error *err) {
    const bool is_end = b->is_last && b->end == l->chosen.n;
    const bool joins = is_end && l->ckpt->rows == READER_ROWS_HERE;
    move_transfer t = {.direction = MOVE_FROM_FILE,
                       .comm = l->comm,
                       .queue = l->queue,
                       .files = l->files,
                       .n_files = l->ckpt->n_files,
                       .reader_ranges = l->ckpt->reader_ranges,
                       .pieces = b->pieces,
                       .n_pieces = failure ? 0 : b->n,
                       .device = &l->device,
                       .progress = &l->progress,
                       .check_metadata = check_metadata,
                       .failure = failure,
                       .is_agreed_later = is_end && !joins,
                       .sums = joins ? l->sums : NULL,
                       .n_sums = l->first_sum[l->chosen.n],
                       .report = &l->report};
    move_pieces_sort(t.pieces, t.n_pieces);
    return engine->from_files(&t, err);
}

/* Collective: prepares and moves one batch. */
static int move_batch(load_job *l, const move_engine *engine, piece_batch *b, dcp_error *err) {
    dcp_error failure = {.rank = -1};
    int status = agree_batch(l, b, &failure, err);
    if (!status) {
        if (!failure.status) fill_batch(l, b);
        if (!move_pieces_have_copies(b->pieces, b->n))
            core_fail_memory(&failure, b->n * sizeof *b->pieces);
        status = move_pieces(l, engine, b, failure.status ? &failure : NULL, err);
    }
    move_pieces_free(b->pieces, b->n);
    free(b->casts);
    b->pieces = NULL;
    b->casts = NULL;
    for (; b->tensor < b->end; b->tensor++) reader_view_close(load_datasets(l, b->tensor));
    return status;
}

static int move_batches(load_job *l, const move_engine *engine, piece_batch b, dcp_error *err) {
    int status;
    do {
        status = move_batch(l, engine, &b, err);
    } while (!status && b.end < l->chosen.n);
    return status;
}

int load_pieces_move_all(load_job *l, dcp_error *err) {
    const bool both = l->engine->is_by_position, due = load_proofs_are_due(l);
    const bool again = due && !both;
    piece_batch first = {.exact = true,
                         .inexact = both && due,
                         .is_last = !again,
                         .agreed_end = due ? 0 : l->first_end};
    int status = move_batches(l, l->engine, first, err);
    if (!status && again) /* proofs read whole blocks, each on one rank */
        status = move_batches(l, move_engine_for_scattered(),
                              (piece_batch){.inexact = true, .is_last = true}, err);
    return status;
}
