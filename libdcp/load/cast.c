/* Moving is collective, so converting from scratch memory goes in groups, on all ranks at once. A
 * group is what fits into a rank's scratch memory: some boxes, or a slice of one. Checksums add up
 * over slices and groups, so the proof at the end is the same as for a load without a cast. */
#include "load/cast.h"

#include <stdlib.h>

#include "core/box.h"
#include "core/fail.h"
#include "core/strides.h"
#include "load/pieces.h"
#include "step/read.h"

#define SCRATCH_BYTES (32u << 20)
#define READ_BYTES BLOCK_BYTES
#define PART_BYTES (16u << 10)

/* Without the option all types are the same. */
static int needs_cast(const load_job *l, size_t i) {
    return l->options.cast &&
           l->chosen.wanted[i]->tensor.dtype != l->chosen.stored[i]->tensor.dtype;
}

static uint64_t stored_size(const load_job *l, size_t i) {
    return dcp_dtype_bytes(l->chosen.stored[i]->tensor.dtype);
}

static uint64_t wanted_size(const load_job *l, size_t i) {
    return dcp_dtype_bytes(l->chosen.wanted[i]->tensor.dtype);
}

int load_cast_is_narrow(const load_job *l, size_t i) {
    return stored_size(l, i) > wanted_size(l, i) || (l->cast.by_scratch && needs_cast(l, i));
}

int load_cast_agree(load_job *l, const dcp_state *state, dcp_error *err) {
    uint64_t by_scratch = state->device || state->has_strides;
    if (!l->options.cast) return DCP_OK;
    int status = comm_allreduce(l->comm, &by_scratch, 1, DCP_REDUCE_MAX, err);
    l->cast.by_scratch = by_scratch != 0;
    return status;
}

/* The tensor with the stored type, its boxes at the ends of their memory. */
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
            cast->narrows = 1;
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

/* Some elements of a box, in scratch memory. */
typedef struct slice {
    const plan_box *of;
    state_box box;
    uint64_t first, elems; /* of the whole box's, row-major */
} slice;

typedef struct narrowing {
    load_job *load;
    unsigned char *scratch;
    size_t next;    /* of the plan's boxes */
    uint64_t first; /* element of it */
    slice *slices;  /* this group's; room for all boxes */
    size_t n;
} narrowing;

static int is_due(const load_job *l, const plan_box *b) {
    return load_pieces_fill(l, b->tensor) && load_cast_is_narrow(l, b->tensor);
}

/* Moves on to what is next; 0 where nothing is left. */
static int skip_others(narrowing *w) {
    const plan_boxes *boxes = &w->load->boxes;
    while (w->next < boxes->n && !is_due(w->load, &boxes->boxes[w->next])) w->next++;
    return w->next < boxes->n;
}

/* A box that doesn't fit into the rest of the scratch memory begins a group. One that is larger
 * than all of it is cut into slices, each a group of its own. */
static void fill_group(narrowing *w) {
    const load_job *l = w->load;
    uint64_t used = 0;
    w->n = 0;
    while (skip_others(w)) {
        const plan_box *b = &l->boxes.boxes[w->next];
        uint32_t dims = core_box_dims(l->chosen.wanted[b->tensor]->tensor.ndim);
        uint64_t size = stored_size(l, b->tensor), room = (SCRATCH_BYTES - used) / size;
        uint64_t left = dcp_box_elems(&b->box->box, dims) - w->first;
        if (used && left > room) return;
        slice *s = &w->slices[w->n++];
        *s = (slice){.of = b, .first = w->first, .box = {.data = w->scratch + used, .rank = -1}};
        s->elems = dcp_box_slice(dims, &b->box->box, w->first, room, &s->box.box);
        used += s->elems * size;
        used = (used + 7) / 8 * 8;
        w->first += s->elems;
        if (s->elems < left) continue;
        w->first = 0;
        w->next++;
    }
}

/* Converts `n` stored elements in a buffer and puts them on the device, or where strides say. */
static int deliver_by_buffer(load_job *l, const plan_box *b, uint64_t first,
                             const unsigned char *stored, uint64_t n, dcp_error *err) {
    unsigned char part[PART_BYTES];
    const dcp_tensor *from = &l->chosen.stored[b->tensor]->tensor;
    const dcp_tensor *to = &l->chosen.wanted[b->tensor]->tensor;
    uint64_t size = wanted_size(l, b->tensor), most = PART_BYTES / size;
    int status = DCP_OK;
    for (uint64_t at = 0; at < n && !status; at += most) {
        if (most > n - at) most = n - at;
        dcp_convert(from->dtype, stored + at * stored_size(l, b->tensor), to->dtype, part, most);
        if (b->box->data)
            core_strides_put(b->box->data, b->box->strides, (first + at) * size, most * size, part);
        else
            status = move_device_put(&l->device, b->box, to->path, (first + at) * size, part,
                                     most * size, err);
    }
    return status;
}

static int is_dense(const state_box *box) { return box->data && !box->strides; }

/* `n` stored elements become the box's from number `first` on. */
static int deliver(load_job *l, const plan_box *b, uint64_t first, const unsigned char *stored,
                   uint64_t n, dcp_error *err) {
    if (!is_dense(b->box)) return deliver_by_buffer(l, b, first, stored, n, err);
    dcp_convert(l->chosen.stored[b->tensor]->tensor.dtype, stored,
                l->chosen.wanted[b->tensor]->tensor.dtype,
                (unsigned char *)b->box->data + first * wanted_size(l, b->tensor), n);
    return DCP_OK;
}

static int deliver_group(const narrowing *w, dcp_error *err) {
    int status = DCP_OK;
    for (size_t i = 0; i < w->n && !status; i++) {
        const slice *s = &w->slices[i];
        status = deliver(w->load, s->of, s->first, s->box.data, s->elems, err);
    }
    return status;
}

static int move_group(narrowing *w, dcp_error *err) {
    load_job *l = w->load;
    size_t most = 0, n = 0;
    for (size_t i = 0; i < w->n; i++)
        most += load_pieces_of(l, w->slices[i].of, &w->slices[i].box, NULL);
    move_piece *pieces = calloc(most + 1, sizeof *pieces);
    for (size_t i = 0; i < w->n && pieces; i++)
        n += load_pieces_of(l, w->slices[i].of, &w->slices[i].box, pieces + n);
    int complete = pieces && move_pieces_have_copies(pieces, n);
    int status = complete ? move_progress_ask(&l->progress, err)
                          : core_fail_memory(err, most * sizeof *pieces);
    status = comm_agree(l->comm, status, err);
    if (!status) status = load_pieces_move(l, pieces, n, err);
    if (!status) status = comm_agree(l->comm, deliver_group(w, err), err);
    move_pieces_free(pieces, n);
    return status;
}

int load_cast_narrow(load_job *l, dcp_error *err) {
    narrowing w = {.load = l};
    if (!l->cast.narrows) return DCP_OK;
    w.slices = calloc(l->boxes.n + 1, sizeof *w.slices);
    int no_memory = skip_others(&w) && posix_memalign((void **)&w.scratch, 4096, SCRATCH_BYTES);
    int status = comm_agree(
        l->comm, no_memory || !w.slices ? core_fail_memory(err, SCRATCH_BYTES) : DCP_OK, err);
    while (!status) {
        uint64_t more = (uint64_t)skip_others(&w);
        status = comm_allreduce(l->comm, &more, 1, DCP_REDUCE_MAX, err);
        if (status || !more) break;
        fill_group(&w);
        status = move_group(&w, err);
    }
    if (!status) status = comm_agree(l->comm, move_device_flush(&l->device, err), err);
    free(w.scratch);
    free(w.slices);
    return status;
}

int load_cast_read(load_job *l, const plan_box *b, dcp_error *err) {
    const dcp_tensor *stored = &l->chosen.stored[b->tensor]->tensor;
    const int in_place = is_dense(b->box) && !load_cast_is_narrow(l, b->tensor);
    uint32_t dims = core_box_dims(stored->ndim);
    uint64_t size = stored_size(l, b->tensor), elems = dcp_box_elems(&b->box->box, dims), n;
    unsigned char *scratch = in_place ? NULL : malloc(READ_BYTES);
    int status = in_place || scratch ? DCP_OK : core_fail_memory(err, READ_BYTES);
    for (uint64_t first = 0; first < elems && !status; first += n) {
        dcp_box part;
        n = dcp_box_slice(dims, &b->box->box, first, READ_BYTES / size, &part);
        unsigned char *to = in_place ? (unsigned char *)b->box->data + first * size : scratch;
        status = step_read_box(l->ckpt, &l->cache, stored->path, &part, to, err);
        if (!status && !in_place) status = deliver(l, b, first, scratch, n, err);
        move_progress_written(&l->progress, n * size);
        if (!status) status = move_progress_status(&l->progress, err);
    }
    free(scratch);
    return status;
}

void load_cast_in_place(const load_job *l) {
    for (size_t i = 0; i < l->chosen.n; i++) {
        const state_tensor *want = l->chosen.wanted[i], *shadow = l->cast.tensors[i];
        for (size_t k = 0; k < want->n_boxes && shadow != want; k++)
            dcp_convert(shadow->tensor.dtype, shadow->boxes[k].data, want->tensor.dtype,
                        want->boxes[k].data, dcp_box_elems(&want->boxes[k].box, want->tensor.ndim));
    }
}
