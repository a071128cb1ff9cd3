/* Each aggregator has an area in the shared memory of its group. The area holds the aggregator's
 * domain of a window. The group's ranks put their fragments into the areas, or take them from
 * there. Before that, they announce in the marks of an area's pages what they will put or take.
 * Windows use the two halves of the memory in turn. A rank that is alone in its group uses a buffer
 * of its queue as its area.
 *
 * When bytes move to the file, a page's mark counts the bytes that will be put into the page. So
 * the aggregator knows which pages are touched, and which of these will not be filled completely by
 * fragments. It first fills those incomplete pages with zeros. While it writes from its area, the
 * next window is put into the other half. The group has a barrier after other groups' fragments
 * were counted; when the areas are ready; and when all ranks have put their fragments, and have
 * counted those of the next window.
 *
 * When bytes move from the file, a page's mark says that some rank needs the page. Aggregators read
 * into their areas. While ranks take their fragments of one window, the next window is being read
 * into the other half. The group has a barrier after marking; after other groups' requests were
 * marked; after the reading; and when other groups' pages have arrived. The first of these barriers
 * also shows that all ranks are done with the window that used the same half before.
 *
 * Ranks that read independently have no barriers, and each has an area like a rank that is alone in
 * its group.
 *
 * Barriers for other groups are left out if those groups neither give nor need anything. Groups
 * wait for each other only through messages, and each group exchanges its messages in the order of
 * windows. So the group that is at the earliest window can always continue.
 *
 * If there is only one group, its ranks find out in each window whether one of them has failed, and
 * if so, all stop. With several groups, a group continues to the last window, because other groups
 * wait for it, and failures become known only then. */
#include "move/carrier.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "comm/sharing.h"
#include "core/fail.h"
#include "move/transfer.h"

/* COUNT_WALK walks over the fragments for other groups before CARRY_WALK does. */
enum { MARK_WALK, COPY_WALK, CARRY_WALK, COUNT_WALK };

/* Indices of areas in the group's memory. */
enum { PLACES, HALVES, CARRIERS = HALVES + 2 };

typedef struct exchange {
    move_exchange *x;
    const move_windows *w;
    move_half halves[2];
    move_carriers carriers;
    bool has_carriers;           /* there are other groups */
    uint64_t domain_start;       /* address of the domain that is being walked */
    unsigned char *area;         /* the domain's area */
    _Atomic uint16_t *marks;     /* the marks of its pages */
    _Atomic uint16_t *own_marks; /* for a rank that is alone in its group */
} exchange;

static bool is_alone(const exchange *e) {
    return e->w->is_independent || e->x->comm->local.size == 1;
}

static int group_barrier(const exchange *e, dcp_error *err) {
    return e->w->is_independent ? DCP_OK : comm_local_barrier(e->x->comm, err);
}

static size_t area_start(const exchange *e, const move_domain *d) {
    return (size_t)d->aggregator->area * e->w->domain_bytes;
}

static int count_bytes(void *ctx, const move_fragment *f) {
    const exchange *e = ctx;
    move_half_count(e->marks, f->file_offset - e->domain_start, f->bytes);
    return 0;
}

static int mark_wanted(void *ctx, const move_fragment *f) {
    const exchange *e = ctx;
    uint64_t offset = f->file_offset - e->domain_start, last = (offset + f->bytes - 1) / PAGE_BYTES;
    for (uint64_t page = offset / PAGE_BYTES; page <= last; page++)
        atomic_store_explicit(&e->marks[page], 1, memory_order_relaxed);
    return 0;
}

static int put_fragment(void *ctx, const move_fragment *f) {
    const exchange *e = ctx;
    move_exchange_fetch(e->x, f, e->area + (f->file_offset - e->domain_start));
    return 0;
}

static int take_fragment(void *ctx, const move_fragment *f) {
    const exchange *e = ctx;
    move_exchange_put(e->x, f, e->area + (f->file_offset - e->domain_start));
    return 0;
}

/* Walks this rank's fragments in a domain of this group, whose area is in `half`. */
static void walk_area(exchange *e, int walk, const move_domain *d, const move_half *half,
                      move_fragment_fn fn) {
    e->domain_start = d->start;
    e->area = half->data + area_start(e, d);
    e->marks = half->marks + area_start(e, d) / PAGE_BYTES;
    move_exchange_walk(e->x, walk, d, fn, e);
}

static bool is_foreign(const exchange *e, const move_domain *d) {
    return d->aggregator->group != e->w->groups->own;
}

/* Walks this group's domains of window i. */
static void walk_areas(exchange *e, int walk, size_t i, const move_half *half,
                       move_fragment_fn fn) {
    for (int k = 0; k < e->w->width; k++) {
        const move_domain d = move_windows_domain(e->w, e->w->list[i], k);
        if (!is_foreign(e, &d)) walk_area(e, walk, &d, half, fn);
    }
}

/* Marks the pages into which this rank will put fragments of window i, or from which it will take
 * them. */
static void mark_window(exchange *e, size_t i, const move_half *half) {
    const bool to_file = e->x->transfer->direction == MOVE_TO_FILE;
    walk_areas(e, MARK_WALK, i, half, to_file ? count_bytes : mark_wanted);
}

/* To the file: puts this rank's fragments for other groups in window i into their carriers'
 * messages. */
static void put_foreign(exchange *e, size_t i) {
    move_carriers_rewind(&e->carriers);
    for (int k = 0; k < e->w->width; k++) {
        const move_domain d = move_windows_domain(e->w, e->w->list[i], k);
        if (!is_foreign(e, &d)) continue;
        const uint32_t number = move_carriers_number(&e->carriers, &d);
        move_carriers_put(&e->carriers, &d, number, COUNT_WALK, CARRY_WALK);
    }
}

/* Returns true if each window has its own messages to other groups. */
static bool has_messages(const exchange *e) {
    return e->has_carriers && !e->w->routes->is_one_message;
}

static void prepare_writing(exchange *e, size_t i, const move_half *half) {
    mark_window(e, i, half);
    if (has_messages(e)) put_foreign(e, i);
}

/* Sets the bits of the pages of other groups that this rank needs in windows [i, end). */
static void want_windows(exchange *e, size_t i, size_t end) {
    for (; i < end; i++) {
        move_carriers_rewind(&e->carriers);
        for (int k = 0; k < e->w->width; k++) {
            const move_domain d = move_windows_domain(e->w, e->w->list[i], k);
            if (!is_foreign(e, &d)) continue;
            const uint32_t number = move_carriers_number(&e->carriers, &d);
            move_carriers_request(&e->carriers, i, &d, number, COUNT_WALK);
        }
    }
}

static unsigned char *own_area(const exchange *e, const move_half *half) {
    return half->data + area_start(e, &half->own);
}

/* Moves the marks of this rank's area in window i to half->pages, whose elements become 1 for
 * marked pages, and clears the marks. Waits until the area is free. If `fill` is set, writes zeros
 * into the marked pages that fragments will not fill completely. */
static void take_marks(const exchange *e, size_t i, move_half *half, bool fill) {
    half->is_own = move_windows_own(e->w, e->w->list[i], e->x->comm->rank, &half->own);
    if (!half->is_own) return;
    if (is_alone(e)) {
        half->slot = io_queue_next_slot(e->x->queue);
        half->data = io_queue_buffer(e->x->queue, half->slot);
    } else if (half->is_in_use) {
        io_queue_wait(e->x->queue, half->slot);
    }
    unsigned char *area = own_area(e, half);
    _Atomic uint16_t *marks = half->marks + area_start(e, &half->own) / PAGE_BYTES;
    for (size_t page = 0; page < e->w->domain_bytes / PAGE_BYTES; page++) {
        const uint16_t mark = atomic_load_explicit(&marks[page], memory_order_relaxed);
        half->pages[page] = mark != 0;
        if (mark) atomic_store_explicit(&marks[page], 0, memory_order_relaxed);
        if (fill && mark && mark < PAGE_BYTES) memset(area + page * PAGE_BYTES, 0, PAGE_BYTES);
    }
}

/* Starts writing or reading this rank's domain. */
static void start_own(const exchange *e, move_half *half) {
    if (!half->is_own) return;
    if (!is_alone(e)) half->slot = io_queue_next_slot(e->x->queue);
    half->is_in_use = true;
    move_exchange_start(e->x, &half->own, half->pages, half->slot, own_area(e, half));
}

/* A barrier of the group. If it is the only group, its ranks also find out whether one has
 * failed. */
static int meet(exchange *e, dcp_error *err) {
    uint64_t failed = e->x->status != DCP_OK;
    if (e->w->is_independent) return DCP_OK;
    int status = comm_local_max(e->x->comm, &failed, 1, err);
    if (!e->has_carriers) e->x->is_over = failed != 0;
    return status;
}

/* Exchanges messages with other groups, and counts what was received. Collective in the group. */
static int carry_window(exchange *e, size_t i, const move_half *half, dcp_error *err) {
    if (!e->has_carriers) return DCP_OK;
    int status = has_messages(e) ? move_carriers_send(&e->carriers, i, i + 1, err) : DCP_OK;
    if (status) return status;
    move_carriers_count(&e->carriers, i, half);
    return e->w->routes->has_theirs[i] ? comm_local_barrier(e->x->comm, err) : DCP_OK;
}

static int write_window(exchange *e, size_t i, dcp_error *err) {
    move_half *half = &e->halves[i % 2], *other = &e->halves[(i + 1) % 2];
    const bool is_last = i + 1 == e->w->n;
    int status = carry_window(e, i, half, err);
    if (status) return status;
    take_marks(e, i, half, true);
    if (has_messages(e) && !is_last) move_carriers_empty(&e->carriers, e->w->list[i + 1]);
    status = comm_local_barrier(e->x->comm, err);
    if (status) return status;
    move_exchange_poll(e->x);
    walk_areas(e, COPY_WALK, i, half, put_fragment);
    if (e->has_carriers) move_carriers_copy_out(&e->carriers, half);
    if (!is_last) prepare_writing(e, i + 1, other);
    status = meet(e, err);
    if (!status && !e->x->is_over)
        start_own(e, half);
    else if (!status && !is_last)
        /* clears the marks of the window that will not be written */
        take_marks(e, i + 1, other, false);
    return status;
}

/* Puts the group's fragments of window i into the messages that cover all windows. Collective in
 * the group. */
static int put_in_turn(exchange *e, size_t i, dcp_error *err) {
    if (!e->w->routes->has_own[i]) return DCP_OK;
    move_carriers_empty(&e->carriers, e->w->list[i]);
    int status = comm_local_barrier(e->x->comm, err);
    if (status) return status;
    put_foreign(e, i);
    return comm_local_barrier(e->x->comm, err);
}

/* Exchanges the fragments of all windows with other groups. Collective in the group. */
static int carry_at_once(exchange *e, dcp_error *err) {
    int status = DCP_OK;
    move_exchange_poll(e->x);
    for (size_t i = 0; i < e->w->n && !status; i++) status = put_in_turn(e, i, err);
    return status ? status : move_carriers_send(&e->carriers, 0, e->w->n, err);
}

static int write_windows(exchange *e, dcp_error *err) {
    int status = DCP_OK;
    if (has_messages(e)) {
        move_carriers_empty(&e->carriers, e->w->list[0]);
        status = comm_local_barrier(e->x->comm, err);
    } else if (e->has_carriers) {
        status = carry_at_once(e, err);
    }
    if (status) return status;
    prepare_writing(e, 0, &e->halves[0]);
    status = comm_local_barrier(e->x->comm, err);
    for (size_t i = 0; i < e->w->n && !status && !e->x->is_over; i++)
        status = write_window(e, i, err);
    return status;
}

static int begin_reading(exchange *e, size_t i, dcp_error *err) {
    move_half *half = &e->halves[i % 2];
    const size_t block = e->has_carriers ? e->carriers.block : 1,
                 end = i + block < e->w->n ? i + block : e->w->n;
    const bool asks = e->has_carriers && i % block == 0;
    mark_window(e, i, half);
    if (asks) want_windows(e, i, end);
    int status = group_barrier(e, err);
    if (asks && !status) status = move_carriers_exchange_requests(&e->carriers, i, end, err);
    if (e->has_carriers && !status) {
        move_carriers_mark(&e->carriers, i, half);
        if (e->w->routes->has_theirs[i]) status = comm_local_barrier(e->x->comm, err);
    }
    if (status) return status;
    take_marks(e, i, half, false);
    start_own(e, half);
    return DCP_OK;
}

/* Takes this rank's fragments of window i that other groups have read. */
static int take_carried(exchange *e, size_t i, const move_half *half, dcp_error *err) {
    if (!e->has_carriers) return DCP_OK;
    move_carriers_clear(&e->carriers, i + e->carriers.block + 1);
    int status = move_carriers_answer(&e->carriers, i, half, err);
    if (!status) status = comm_local_barrier(e->x->comm, err);
    move_carriers_rewind(&e->carriers);
    for (int k = 0; k < e->w->width && !status; k++) {
        const move_domain d = move_windows_domain(e->w, e->w->list[i], k);
        if (is_foreign(e, &d))
            move_carriers_read(&e->carriers, i, &d, move_carriers_number(&e->carriers, &d),
                               CARRY_WALK);
    }
    return status;
}

/* Returns true if window i + 1 is read before the ranks take their fragments of window i. All
 * groups send requests and answers in the same order: the requests for window i + 1 come after the
 * answers for window i - 1, and before the answers for window i. So there is no cycle of waiting
 * groups. */
static bool is_ahead(const exchange *e, size_t i) {
    return i + 1 < e->w->n && (!e->has_carriers || e->w->list[i + 1] == e->w->list[i] + 1);
}

static int read_windows(exchange *e, dcp_error *err) {
    int status = DCP_OK;
    bool is_begun = false;
    if (e->has_carriers) {
        for (size_t i = 0; i <= e->carriers.block; i++) move_carriers_clear(&e->carriers, i);
        status = comm_local_barrier(e->x->comm, err);
    }
    for (size_t i = 0; i < e->w->n && !status && !e->x->is_over; i++) {
        const move_half *half = &e->halves[i % 2];
        if (!is_begun) status = begin_reading(e, i, err);
        is_begun = is_ahead(e, i);
        if (is_begun && !status) status = begin_reading(e, i + 1, err);
        if (status) break;
        if (half->is_own) move_exchange_wait(e->x, half->slot);
        move_exchange_poll(e->x);
        status = meet(e, err);
        if (!status) walk_areas(e, COPY_WALK, i, half, take_fragment);
        if (!status) status = take_carried(e, i, half, err);
    }
    return status;
}

/* The sizes of all areas, and memory for agreeing on them. */
typedef struct area_sizes {
    size_t *bytes;
    uint64_t *carriers; /* for each rank of the group */
} area_sizes;

/* Makes the group's memory. Collective in the group. */
static int use_areas(exchange *e, area_sizes *sizes, dcp_error *err) {
    dcp_comm *comm = e->x->comm;
    const size_t ranks = (size_t)comm->local.size;
    const comm_areas *areas;
    const size_t n = CARRIERS + (e->has_carriers ? ranks : 0);
    int status = DCP_OK;
    if (!e->has_carriers && is_alone(e)) return DCP_OK;
    if (e->has_carriers) {
        sizes->carriers[comm->local.rank] = move_carriers_bytes(&e->carriers);
        status = comm_local_max(comm, sizes->carriers, ranks, err);
        sizes->bytes[PLACES] = move_carriers_table_bytes(&e->carriers);
        for (size_t r = 0; r < ranks; r++) sizes->bytes[CARRIERS + r] = sizes->carriers[r];
    }
    for (int i = 0; i < 2 && !is_alone(e); i++)
        sizes->bytes[HALVES + i] = (size_t)e->w->areas * e->w->domain_bytes;
    if (!status) status = comm_local_areas(comm, n, sizes->bytes, &areas, err);
    for (int i = 0; i < 2 && !status && !is_alone(e); i++) {
        e->halves[i].data = areas->data[HALVES + i];
        e->halves[i].marks = areas->marks[HALVES + i];
    }
    if (e->has_carriers && !status)
        move_carriers_use(&e->carriers, areas->data[PLACES], areas->data + CARRIERS);
    return status;
}

/* Allocates the marks of a rank that is alone in its group. */
static int make_own_marks(exchange *e, dcp_error *err) {
    const size_t n = 2 * MOVE_DOMAIN_PAGES;
    e->own_marks = calloc(n, sizeof *e->own_marks);
    for (unsigned i = 0; i < 2 && e->own_marks; i++)
        e->halves[i].marks = e->own_marks + i * MOVE_DOMAIN_PAGES;
    return e->own_marks && e->x->cursors ? DCP_OK : core_fail_memory(err, n * sizeof *e->own_marks);
}

/* Allocates this rank's own memory. */
static int make_own(exchange *e, area_sizes *sizes, dcp_error *err) {
    const size_t n = CARRIERS + (size_t)e->x->comm->local.size;
    sizes->bytes = calloc(n, sizeof *sizes->bytes);
    sizes->carriers = calloc(n, sizeof *sizes->carriers);
    if (!sizes->bytes || !sizes->carriers || !e->x->cursors)
        return core_fail_memory(err, n * sizeof *sizes->carriers);
    int status = is_alone(e) ? make_own_marks(e, err) : DCP_OK;
    if (status) return status;
    return e->has_carriers ? move_carriers_open(&e->carriers, e->x, err) : DCP_OK;
}

/* Collective. The ranks of a group first find out whether all of them could allocate their own
 * memory. If there are other groups, all ranks then agree on their status and, unless the windows
 * are known already, list the windows. */
static int make_memory(exchange *e, dcp_error *err) {
    area_sizes sizes = {0};
    int status = e->has_carriers ? e->w->routes->status : DCP_OK;
    if (!status) status = make_own(e, &sizes, err);
    uint64_t lacking = status != DCP_OK;
    int comm_status = comm_local_max(e->x->comm, &lacking, 1, err);
    if (!comm_status && !lacking) comm_status = use_areas(e, &sizes, err);
    free(sizes.bytes);
    free(sizes.carriers);
    if (!status) status = comm_status;
    if (e->has_carriers && !e->w->is_known)
        return move_routes_list(e->x->comm, &e->x->windows, status, err);
    return lacking || e->has_carriers ? comm_agree(e->x->comm, status, err) : status;
}

int move_exchange_run(move_exchange *x, dcp_error *err) {
    exchange e = {.x = x,
                  .w = &x->windows,
                  .halves = {{.number = 0}, {.number = 1}},
                  .has_carriers = x->windows.routes != NULL};
    if (!x->windows.n && !e.has_carriers) return DCP_OK;
    int status = x->windows.is_independent ? make_own_marks(&e, err) : make_memory(&e, err);
    if (!status && x->windows.n)
        status = (x->transfer->direction == MOVE_TO_FILE ? write_windows : read_windows)(&e, err);
    if (e.has_carriers) move_carriers_close(&e.carriers);
    free(e.own_marks);
    return status;
}
