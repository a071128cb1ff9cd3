/* In the copy, boxes have the same positions within pages as in the file, so bulk parts can be
 * written directly from the copy. If the holders of a box share its writing, only this rank's turns
 * are copied. Address space is reserved for the whole box, but only the turns use memory. */
#include "save/copy.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/box.h"
#include "core/bytes.h"
#include "core/crc64.h"
#include "core/strides.h"
#include "device/staging.h"
#include "io/buffers.h"
#include "io/threads.h"
#include "move/engine.h"
#include "move/piece.h"
#include "move/transfer.h"
#include "save/plan.h"

#define HUGE_BYTES ((uint64_t)2 << 20)
#define SMALL_ALIGN 64
#define NOWHERE UINT64_MAX
#define PART_BYTES ((uint64_t)16 << 20) /* maximum size of a part */
#define TEAM_BYTES ((uint64_t)64 << 20) /* copies of at least this size use several threads */
#define TEAM_MOST 4
#define TURNS 16 /* about how many times each thread fetches parts */

/* A part of a box, and its destination. */
typedef struct copy_part {
    const unsigned char *data; /* the box's memory if it is dense; set before threads start */
    const state_box *box;
    const char *path;
    uint64_t offset, bytes, to;
} copy_part;

struct save_copy {
    unsigned char *memory;
    uint64_t bytes;
    uint64_t sparse; /* sparse_key of the layout that the memory is for */
    device_pinned *pinned;
    uint64_t used;    /* bytes that are used in `memory` and `pinned` */
    state_box *boxes; /* of the current save */
    uint64_t *sums;   /* checksums of replicas, computed during the copy; NULL: none */
    size_t n_sums;
    /* Kept from a copy made ahead, for the next copy of the same state. `parts` is NULL if there is
     * none. */
    copy_part *parts;
    size_t n_parts;
    uint64_t touched;
    const dcp_state *of;
    double changed; /* `changed` of that state */
};

/* A copy that is being made. */
typedef struct copying {
    save_request *r;
    const save_plan *plan;
    save_replicas *replicas; /* to be compared; NULL: none */
    move_device device;
    save_copy *copy;
    uint64_t *at;       /* per box of the plan: its offset in `memory` or `pinned` */
    move_piece *shared; /* per box of the plan: its piece, if its writing is shared */
    copy_part *parts;
    size_t n, room;
    uint64_t span, device_span; /* bytes of address space in `memory` and in `pinned` */
    uint64_t used;              /* how many bytes of `memory` and `pinned` are used */
    uint64_t touched;           /* bytes of the parts that are not on a device */
    size_t device_parts;
    bool is_sparse;
    const dcp_state *of; /* for a copy made ahead, which has all boxes: its state; else NULL */
    unsigned team;       /* number of threads */
    atomic_size_t next;
    atomic_int is_over;     /* the copy was stopped */
    move_progress progress; /* used by the caller's thread only, which calls `stop` */
} copying;

static const dcp_tensor *tensor_of(const copying *c, const plan_box *b) {
    return &c->r->sorted[b->tensor]->tensor;
}

static uint64_t box_size(const copying *c, const plan_box *b) {
    const dcp_tensor *t = tensor_of(c, b);
    return dcp_box_elems(&b->box->box, t->ndim) * dcp_dtype_bytes(t->dtype);
}

static bool takes_turns(const copying *c, const plan_box *b) {
    return b->replicated && save_request_shares(c->r) && !c->of;
}

static bool is_copied(const copying *c, const plan_box *b) {
    return b->keeper || c->of || takes_turns(c, b);
}

/* Describes in *copy how the box lies in its dataset. Returns the offset of the box's first byte in
 * the file; 0 in layout sharded. */
static uint64_t place_in_file(const copying *c, const plan_box *b, box_copy *copy) {
    const dcp_tensor *t = tensor_of(c, b);
    if (c->r->layout == DCP_LAYOUT_SHARDED) { /* a dataset of its own, which begins on a page */
        *copy = (box_copy){.run_bytes = box_size(c, b), .runs = 1};
        return 0;
    }
    const dcp_box whole = dcp_box_whole(t);
    core_box_copy_between(copy, t->ndim, dcp_dtype_bytes(t->dtype), &whole, &b->box->box);
    return c->plan->file.rows[b->tensor].offset + copy->base_a;
}

/* Finds the lowest place at or after *used that is congruent to `phase` modulo `align`. Returns
 * this place, and sets *used to the end of `bytes` bytes that begin there. */
static uint64_t next_place(uint64_t *used, uint64_t bytes, uint64_t phase, uint64_t align) {
    const uint64_t at = *used + (phase % align + align - *used % align) % align;
    *used = at + bytes;
    return at;
}

/* Adds the given bytes of box k, divided into parts. */
static int add_bytes_of(copying *c, size_t k, uint64_t offset, uint64_t bytes) {
    const plan_box *b = &c->plan->boxes.boxes[k];
    const bool on_device = b->box->device != NULL;
    const unsigned char *dense = b->box->strides ? NULL : b->box->data;
    for (uint64_t end = offset + bytes, part; offset < end; offset += part) {
        part = core_min_u64(PART_BYTES, end - offset);
        if (c->n == c->room) {
            const size_t room = 2 * c->room + 64;
            copy_part *parts = core_array_grow(c->parts, room, sizeof *parts);
            if (!parts) return DCP_ERR_NO_MEMORY;
            c->parts = parts;
            c->room = room;
        }
        c->parts[c->n++] =
            (copy_part){dense, b->box, tensor_of(c, b)->path, offset, part, c->at[k] + offset};
        c->device_parts += on_device != 0;
        c->touched += on_device ? 0 : part;
    }
    return DCP_OK;
}

static int add_turn(void *ctx, const move_piece *p, uint64_t offset, uint64_t bytes) {
    copying *c = ctx;
    return add_bytes_of(c, (size_t)(p - c->shared), offset, bytes);
}

/* Adds this rank's turns of box k, whose holders share its writing. */
static int add_turns(copying *c, size_t k, const box_copy *copy) {
    const plan_box *b = &c->plan->boxes.boxes[k];
    const format_row *row = &c->plan->file.rows[b->tensor];
    move_piece *p = &c->shared[k];
    *p = (move_piece){.file_offset = row->offset,
                      .bytes = row->bytes,
                      .row = row,
                      .box = b->box,
                      .turn = b->turn,
                      .holders = b->holders,
                      .own = save_replicas_own(c->replicas, k),
                      .device = b->box->device ? &c->device : NULL};
    move_piece_set_copy(p, copy);
    if (!p->copy) return DCP_ERR_NO_MEMORY;
    return move_piece_walk_supplied(p, add_turn, c);
}

/* Chooses the place of box k in the copy, and adds the parts of the box that are copied. Does
 * nothing if another rank writes the whole box. Turns of a large box begin and end at boundaries of
 * huge pages, so no rank uses memory for the other ranks' turns. */
static int lay_out_box(copying *c, size_t k) {
    const plan_box *b = &c->plan->boxes.boxes[k];
    const bool shared = takes_turns(c, b), on_device = b->box->device != NULL;
    const uint64_t bytes = box_size(c, b), touched = c->touched;
    const bool is_sparse = shared && !on_device && bytes > MOVE_TURN_BYTES;
    uint64_t align = SMALL_ALIGN, *span = on_device ? &c->device_span : &c->span;
    const size_t n = c->n;
    box_copy copy;
    if (!is_copied(c, b)) return DCP_OK;
    const uint64_t phase = place_in_file(c, b, &copy), before = *span;
    if (copy.run_bytes >= MOVE_BULK_BYTES) align = PAGE_BYTES;
    if (is_sparse) align = HUGE_BYTES;
    c->at[k] = next_place(span, bytes, align == SMALL_ALIGN ? 0 : phase, align);
    const int status = shared ? add_turns(c, k, &copy) : add_bytes_of(c, k, 0, bytes);
    if (c->n == n) { /* this rank has no turn */
        c->at[k] = NOWHERE;
        *span = before;
    } else if (is_sparse) {
        c->is_sparse = true;
        c->used += c->touched - touched + 2 * HUGE_BYTES;
    } else {
        c->used += *span - before;
    }
    return status;
}

static bool lay_out(copying *c) {
    const size_t n = c->plan->boxes.n;
    int status = DCP_OK;
    c->at = calloc(n + 1, sizeof *c->at);
    if (!c->of) c->shared = calloc(n + 1, sizeof *c->shared); /* a copy made ahead has none */
    if (!c->at || (!c->of && !c->shared)) return false;
    for (size_t k = 0; k < n && !status; k++) status = lay_out_box(c, k);
    return !status;
}

/* The memory of a copy. */

static void drop_memory(save_copy *copy) {
    io_buffers_free(copy->memory, copy->bytes);
    device_pinned_free(copy->pinned);
    copy->memory = NULL;
    copy->pinned = NULL;
    copy->bytes = copy->used = 0;
}

/* Frees the boxes, checksums and parts of an earlier copy. */
static void drop_boxes(save_copy *copy) {
    free(copy->boxes);
    free(copy->sums);
    free(copy->parts);
    copy->boxes = NULL;
    copy->sums = NULL;
    copy->parts = NULL;
    if (copy->pinned) device_pinned_clear(copy->pinned);
}

void save_copy_free(save_copy *copy) {
    if (!copy) return;
    drop_memory(copy);
    drop_boxes(copy);
    free(copy);
}

static int ranks_here(const dcp_store *store) {
    const comm_groups *hosts = store->comm->hosts;
    return hosts ? comm_groups_size(hosts, hosts->own) : store->comm->size;
}

/* Returns how much memory this rank may use for the copy. The default is half of the sum of two
 * amounts: this rank's share of the host's available memory, and `held`, the memory of its earlier
 * copy. */
static uint64_t limit_of(const dcp_store *store, const save_request *r, uint64_t held) {
    if (r->copy_bytes != DCP_COPY_DEFAULT) return r->copy_bytes;
    return (io_available_memory() / (uint64_t)ranks_here(store) + held) / 2;
}

/* If the layout has parts that are never accessed, returns a number that identifies the layout;
 * otherwise returns 0. */
static uint64_t sparse_key(const copying *c) {
    const uint64_t words[] = {c->plan->key, c->span, c->touched, c->r->replicas};
    return c->is_sparse ? core_crc64_raw(~0ULL, words, sizeof words) | 1 : 0;
}

static bool is_enough(const copying *c) {
    const save_copy *copy = c->copy;
    if (c->span > copy->bytes || sparse_key(c) != copy->sparse) return false;
    if (copy->used > c->r->copy_bytes) return false;
    return !c->device_parts ||
           device_pinned_holds(copy->pinned, c->device.staging, c->device_span, c->device_parts);
}

/* Allocates memory for the copy unless the old memory suffices. Returns false if there is not
 * enough; then the old memory is freed. */
static bool hold_memory(copying *c, const dcp_store *store) {
    save_copy *copy = c->copy;
    if (is_enough(c)) return true;
    const uint64_t limit = limit_of(store, c->r, copy->used);
    drop_memory(copy);
    if (c->used > limit) {
        if (c->r->progress.staging_bytes < limit) c->r->progress.staging_bytes = limit;
        return false;
    }
    if (c->span && !(copy->memory = io_buffers_create(c->span))) return false;
    copy->bytes = c->span;
    copy->used = c->used;
    copy->sparse = sparse_key(c);
    /* Forked children don't need this memory, and without MADV_DONTFORK this process would have to
     * copy each page that it writes after a fork. */
    if (c->span) madvise(copy->memory, copy->bytes, MADV_DONTFORK);
    if (!c->device_parts) return true;
    copy->pinned = device_pinned_open(c->device.staging, c->device_span, c->device_parts);
    return copy->pinned != NULL;
}

/* Copying the bytes. */

static void copy_part_to(const copy_part *p, unsigned char *to) {
    if (p->data)
        core_nontemporal_copy(to, p->data + p->offset, p->bytes);
    else if (p->box->data)
        core_strides_get(p->box->data, p->box->strides, p->offset, p->bytes, to);
}

/* Returns whether to continue after `bytes` more bytes were copied. Called on the caller's thread
 * only. */
static bool keeps_copying(copying *c, uint64_t bytes) {
    move_progress_read(&c->progress, bytes);
    if (move_progress_status(&c->progress, NULL)) atomic_store(&c->is_over, 1);
    return !atomic_load(&c->is_over);
}

/* Copies parts that are in memory, on one thread of the team. A thread fetches several parts at a
 * time, since each access to `next` waits until all pending stores that bypass the cache are
 * done. */
static void copy_parts(void *ctx, unsigned number) {
    copying *c = ctx;
    const size_t some = c->team > 1 ? c->n / (c->team * TURNS) + 1 : c->n;
    for (size_t i; (i = atomic_fetch_add(&c->next, some)) < c->n;)
        for (size_t end = i + some; i < end && i < c->n && !atomic_load(&c->is_over); i++) {
            copy_part_to(&c->parts[i], c->copy->memory + c->parts[i].to);
            if (!number) keeps_copying(c, c->parts[i].bytes);
        }
    core_nontemporal_fence();
}

/* On the caller's thread, copies the parts that a function of the caller supplies, and the parts on
 * a device. */
static bool copy_others(copying *c) {
    device_pinned *pinned = c->copy->pinned;
    int status = DCP_OK;
    dcp_error err;
    for (size_t i = 0; i < c->n && !status; i++) {
        const copy_part *p = &c->parts[i];
        if (!p->data && !p->box->data && !keeps_copying(c, p->bytes)) return false;
        const move_piece source = {.box = p->box};
        if (p->box->device)
            device_pinned_add(pinned,
                              &(staging_range){p->box, p->path, p->offset, p->bytes, p->to});
        else if (!p->box->data)
            status = move_box_fetch(&source, p->offset, p->bytes, c->copy->memory + p->to, &err);
    }
    if (!status && c->device_parts) status = device_pinned_copy(pinned, c->device.staging, &err);
    return !status;
}

/* Computes the checksums of the parts of replicas that are not copied, because this rank does not
 * write them. */
static bool sum_others(copying *c) {
    save_replicas *replicas = c->replicas;
    dcp_error err;
    if (!replicas) return true;
    int status = move_sums(replicas->pieces, replicas->n, &c->progress, &err);
    for (size_t k = 0; k < c->plan->boxes.n && !status; k++)
        if (c->shared[k].copy) status = move_sums_of_others(&c->shared[k], 1, &c->progress, &err);
    if (status) return false;
    c->copy->n_sums = replicas->sums.first[c->plan->boxes.n];
    c->copy->sums = replicas->sums.blocks;
    replicas->sums.blocks = NULL;
    return true;
}

/* Replaces the plan's boxes with the copy's boxes. Boxes that are not copied are no longer read. */
static bool replace_boxes(copying *c, save_plan *plan) {
    static const unsigned char nothing; /* a valid address for boxes that are not read */
    save_copy *copy = c->copy;
    copy->boxes = calloc(plan->boxes.n + 1, sizeof *copy->boxes);
    if (!copy->boxes) return false;
    for (size_t k = 0; k < plan->boxes.n; k++) {
        plan_box *b = &plan->boxes.boxes[k];
        if (!is_copied(c, b)) continue;
        void *data = (void *)&nothing;
        if (c->at[k] != NOWHERE && b->box->device)
            data = device_pinned_memory(copy->pinned) + c->at[k];
        else if (c->at[k] != NOWHERE)
            data = copy->memory + c->at[k];
        copy->boxes[k] = (state_box){.box = b->box->box, .data = data, .rank = b->box->rank};
        b->box = &copy->boxes[k];
    }
    return true;
}

static bool run_parts(copying *c, const dcp_store *store) {
    c->team = io_threads_cores(ranks_here(store), TEAM_MOST);
    if (c->touched < TEAM_BYTES) c->team = 1;
    io_threads_run(c->team, copy_parts, c);
    return !atomic_load(&c->is_over) && copy_others(c);
}

static bool make_copy(copying *c, const dcp_store *store, save_plan *plan) {
    const save_request *r = c->r;
    dcp_error err;
    if (r->replicas != DCP_REPLICAS_TRUST && plan->boxes.has_replicas && !c->of &&
        save_replicas_make(r->sorted, &plan->boxes, save_request_shares(r), c->device.staging,
                           &c->replicas, &err))
        return false;
    if (!lay_out(c) || !hold_memory(c, store)) return false;
    return run_parts(c, store) && sum_others(c) && replace_boxes(c, plan);
}

/* Keeps the parts: the next copy of the state has the same parts at the same places, unless the
 * state changes. */
static void keep_parts(copying *c) {
    save_copy *copy = c->copy;
    copy->parts = c->parts;
    copy->n_parts = c->n;
    copy->touched = c->touched;
    copy->of = c->of;
    copy->changed = c->of->changed;
    c->parts = NULL;
}

static bool run_copying(copying *c, const dcp_store *store, save_plan *plan, comm_stop *stop,
                        save_copy **copy) {
    c->progress.stop = *stop;
    if (!*copy) *copy = calloc(1, sizeof **copy);
    if (!(c->copy = *copy)) return false;
    drop_boxes(c->copy);
    const bool made = make_copy(c, store, plan);
    *stop = c->progress.stop;
    for (size_t k = 0; c->shared && k < plan->boxes.n; k++) free((void *)c->shared[k].copy);
    free(c->shared);
    if (made && c->of) keep_parts(c);
    free(c->at);
    free(c->parts);
    save_replicas_free(c->replicas);
    return made;
}

bool save_copy_make(const dcp_store *store, save_request *r, save_plan *plan,
                    struct staging *device, comm_stop *stop, save_copy **copy) {
    copying c = {.r = r, .plan = plan, .device = {.staging = device}, .progress.total = 1};
    return run_copying(&c, store, plan, stop, copy);
}

/* Returns true if all boxes are in memory and few are replicated. A copy made ahead contains whole
 * replicas, not only this rank's turns. */
static bool is_mostly_own(const copying *c) {
    enum { MOST_SURPLUS = 8 }; /* at most an eighth of the copy may be replicas */
    uint64_t all = 0, replicated = 0;
    for (size_t k = 0; k < c->plan->boxes.n; k++) {
        const plan_box *b = &c->plan->boxes.boxes[k];
        if (!b->box->data) return false;
        const uint64_t bytes = box_size(c, b);
        all += bytes;
        replicated += b->replicated ? bytes : 0;
    }
    return replicated <= all / MOST_SURPLUS;
}

bool save_copy_make_ahead(const dcp_store *store, save_request *r, const dcp_state *state,
                          save_plan *plan, comm_stop *stop, save_copy **copy) {
    copying c = {.r = r, .plan = plan, .of = state, .progress.total = 1};
    return is_mostly_own(&c) && run_copying(&c, store, plan, stop, copy);
}

bool save_copy_repeat(const dcp_store *store, const dcp_state *state, uint64_t limit,
                      comm_stop *stop, save_copy *copy) {
    if (!copy || !copy->parts || copy->of != state || copy->changed != state->changed) return false;
    if (copy->used > limit) return false;
    copying c = {.copy = copy,
                 .of = state,
                 .parts = copy->parts,
                 .n = copy->n_parts,
                 .touched = copy->touched,
                 .progress = {.total = 1, .stop = *stop}};
    const bool made = run_parts(&c, store);
    *stop = c.progress.stop;
    return made;
}

void save_copy_use(save_copy *copy, save_plan *plan) {
    assert(copy->boxes);
    for (size_t k = 0; k < plan->boxes.n; k++) plan->boxes.boxes[k].box = &copy->boxes[k];
}

int save_copy_prove(const save_copy *copy, const struct staging *device, dcp_error *err) {
    return copy->pinned ? device_pinned_prove(copy->pinned, device, err) : DCP_OK;
}

void save_copy_add_sums(const save_copy *copy, struct save_replicas *to) {
    if (!copy->sums) return;
    for (size_t i = 0; i < copy->n_sums; i++) to->sums.blocks[i] ^= copy->sums[i];
    to->others_are_summed = true;
}
