/* Walks over fragments, the pages of this rank's domains, and the messages of carriers. */
#include "move/carrier.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/fail.h"
#include "move/piece.h"
#include "move/transfer.h"
#include "move/window_cache.h"

#define JOIN_PAGES 16 /* wanted pages that are at most this far apart are read together */

/* Returns the position of a walk through the domains of `rank`. */
static size_t *cursor_of(const move_exchange *x, int walk, int rank) {
    return &x->cursors[walk * x->comm->size + (x->windows.reader_ranges ? rank : 0)];
}

int move_exchange_open(move_exchange *x, const move_transfer *t, dcp_error *err) {
    *x = (move_exchange){.transfer = t, .comm = t->comm, .queue = t->queue, .error = {.rank = -1}};
    int status = move_window_cache_acquire(t, &x->windows, err);
    if (status) return status;
    if (t->failure) {
        x->status = t->failure->status;
        x->error = *t->failure;
    }
    x->cursors = calloc(MOVE_WALKS * (size_t)x->comm->size, sizeof *x->cursors);
    for (int rank = 0; t->reader_ranges && x->cursors && rank < x->comm->size; rank++) {
        size_t first = move_pieces_find(t->pieces, t->n_pieces, t->reader_ranges[rank]);
        for (int walk = 0; walk < MOVE_WALKS; walk++) *cursor_of(x, walk, rank) = first;
    } /* walks start at the beginning of each range */
    return DCP_OK;
}

void move_exchange_close(move_exchange *x) {
    free(x->cursors);
    move_window_cache_release(x->transfer, &x->windows);
}

void move_exchange_poll(move_exchange *x) {
    move_progress *progress = x->transfer->progress;
    if (x->status) return;
    x->status = move_progress_poll(progress, &x->error);
    if (x->status) move_progress_release(progress);
}

void move_exchange_walk(const move_exchange *x, int walk, const move_domain *domain,
                        move_fragment_fn fn, void *ctx) {
    const move_transfer *t = x->transfer;
    move_fragments(t->pieces, t->n_pieces, cursor_of(x, walk, domain->aggregator->rank),
                   domain->start, domain->end, fn, ctx);
}

void move_exchange_fetch(move_exchange *x, const move_fragment *f, unsigned char *to) {
    if (!x->status)
        x->status = move_box_fetch_summed(f->piece, f->dataset_offset, f->box_offset, f->bytes, to,
                                          &x->error);
    if (x->status) {
        memset(to, 0, f->bytes);
        return;
    }
    if (f->piece->box) move_progress_written(x->transfer->progress, f->bytes);
}

void move_exchange_put(move_exchange *x, const move_fragment *f, const unsigned char *from) {
    if (x->status) return;
    x->status =
        move_box_put_summed(f->piece, f->dataset_offset, f->box_offset, from, f->bytes, &x->error);
    if (f->piece->box) move_progress_written(x->transfer->progress, f->bytes);
}

/* Starts reading or writing pages [first, end) of the domain that starts at `start`; these pages
 * may belong to several files. */
static void start_pages(const move_transfer *t, uint64_t start, size_t first, size_t end,
                        unsigned slot, unsigned char *buffer) {
    uint64_t at = start + first * PAGE_BYTES, stop = start + end * PAGE_BYTES;
    while (at < stop) {
        uint64_t to = core_min_u64(move_transfer_file(t, at)->end, stop);
        move_transfer_start(t, slot, buffer + (at - start), to - at, at);
        at = to;
    }
}

void move_exchange_start(const move_exchange *x, const move_domain *domain,
                         const unsigned char *pages, unsigned slot, unsigned char *buffer) {
    const size_t n = x->windows.domain_bytes / PAGE_BYTES;
    if (x->status) return;
    const size_t reach = x->transfer->direction == MOVE_TO_FILE ? 1 : JOIN_PAGES;
    for (size_t page = 0; page < n;) {
        if (!pages[page]) {
            page++;
            continue;
        }
        size_t first = page, last = page;
        for (; page < n && page - last <= reach; page++)
            if (pages[page]) last = page;
        start_pages(x->transfer, domain->start, first, last + 1, slot, buffer);
        page = last + 1;
    }
    io_queue_send(x->queue);
}

void move_exchange_wait(move_exchange *x, unsigned slot) {
    io_queue_wait(x->queue, slot);
    if (!x->status) x->status = io_queue_status(x->queue, &x->error);
}

/* The fragments of a save do not overlap, so a mark never exceeds the size of a page. */
void move_half_count(_Atomic uint16_t *marks, uint64_t offset, uint64_t bytes) {
    const uint64_t end = offset + bytes;
    while (offset < end) {
        uint64_t page = offset / PAGE_BYTES, to = core_min_u64(end, (page + 1) * PAGE_BYTES);
        atomic_fetch_add_explicit(&marks[page], (uint16_t)(to - offset), memory_order_relaxed);
        offset = to;
    }
}

/* The messages of carriers. */

/* The maximum number of windows that are requested at once, and the maximum size of their bits. */
enum { MOST_ASKED = 64, MOST_ASKED_BYTES = 1 << 20 };

/* Returns how far the group is from this one in the ring of groups, at least 1. */
static int distance_to(const move_carriers *c, int group) {
    const comm_groups *g = c->w->groups;
    return (group - g->own + g->n) % g->n;
}

/* Returns the memory of this group's carrier to the other group. */
static unsigned char *memory_for(const move_carriers *c, int group) {
    return c->memory[(distance_to(c, group) - 1) % c->x->comm->local.size];
}

/* Returns the size of the bits for one partner's domains of a window. */
static size_t bits_bytes(const move_carriers *c) {
    return (size_t)c->w->areas * c->words * sizeof(uint64_t);
}

/* Returns the size of all bits of a window in a carrier's memory. */
static size_t set_bytes(const move_carriers *c) {
    const int others = c->w->groups->n - 1, ranks = c->x->comm->local.size;
    return (size_t)((others + ranks - 1) / ranks) * bits_bytes(c);
}

static _Atomic uint64_t *bits_for(const move_carriers *c, int group, size_t i) {
    const size_t before = (size_t)((distance_to(c, group) - 1) / c->x->comm->local.size);
    return (_Atomic uint64_t *)(memory_for(c, group) + i % c->sets * set_bytes(c) +
                                before * bits_bytes(c));
}

static size_t pages_at(const move_carriers *c) {
    return core_round_to_pages(c->sets * set_bytes(c));
}

uint64_t move_carriers_bytes(const move_carriers *c) {
    return c->routes->most_own + (c->to_file ? 0 : pages_at(c));
}

uint64_t move_carriers_table_bytes(const move_carriers *c) {
    return (uint64_t)c->w->groups->n * sizeof *c->places;
}

/* Returns the number of windows in a block. If it is greater than 1, all ranks choose the same
 * number. */
static size_t choose_block(const move_carriers *c) {
    if (!comm_exchange_is_collective(c->x->comm)) return 1;
    const size_t fitting = MOST_ASKED_BYTES / ((size_t)c->w->groups->n * bits_bytes(c));
    return fitting < 1 ? 1 : fitting < MOST_ASKED ? fitting : MOST_ASKED;
}

int move_carriers_open(move_carriers *c, move_exchange *x, dcp_error *err) {
    *c = (move_carriers){.x = x,
                         .w = &x->windows,
                         .routes = x->windows.routes,
                         .to_file = x->transfer->direction == MOVE_TO_FILE};
    c->words = (c->w->domain_bytes / PAGE_BYTES + 63) / 64;
    c->block = choose_block(c);
    c->sets = c->block + 2;
    const size_t groups = (size_t)c->w->groups->n, partners = (size_t)c->routes->n_partners;
    const uint64_t requests = c->block * partners * bits_bytes(c), bytes = c->routes->most_theirs;
    c->seen = calloc(groups, sizeof *c->seen);
    c->memory = calloc((size_t)x->comm->local.size, sizeof *c->memory);
    c->own = calloc((size_t)c->w->areas, sizeof *c->own);
    c->send = calloc(partners + 1, sizeof *c->send);
    c->receive = calloc(partners + 1, sizeof *c->receive);
    c->parts = calloc(partners + 1, sizeof *c->parts);
    c->buffer = malloc(bytes + 1);
    bool ok = c->seen && c->memory && c->own && c->send && c->receive && c->parts && c->buffer;
    if (ok && !c->to_file) {
        c->requested = calloc(c->sets * partners + 1, bits_bytes(c));
        c->requests = malloc(2 * requests + 1);
        ok = c->requested && c->requests;
    }
    if (!ok) return core_fail_memory(err, bytes + 4 * requests);
    return comm_exchange_reserve(x->comm, c->routes->most_own + c->routes->most_theirs + requests,
                                 c->routes->most_own + c->routes->most_theirs + requests, err);
}

void move_carriers_use(move_carriers *c, unsigned char *table, unsigned char *const *memory) {
    c->places = (_Atomic uint64_t *)table;
    for (int r = 0; r < c->x->comm->local.size; r++) c->memory[r] = memory[r];
}

void move_carriers_close(move_carriers *c) {
    free(c->seen);
    free(c->memory);
    free(c->own);
    free(c->send);
    free(c->receive);
    free(c->parts);
    free(c->buffer);
    free(c->requested);
    free(c->requests);
    *c = (move_carriers){0};
}

void move_carriers_rewind(move_carriers *c) {
    memset(c->seen, 0, (size_t)c->w->groups->n * sizeof *c->seen);
}

uint32_t move_carriers_number(move_carriers *c, const move_domain *d) {
    return c->seen[d->aggregator->group]++;
}

/* Finds this group's domains of the window. */
static void find_own(move_carriers *c, uint64_t window) {
    c->n_own = 0;
    for (int k = 0; k < c->w->width; k++) {
        const move_domain d = move_windows_domain(c->w, window, k);
        if (d.aggregator->group == c->w->groups->own) c->own[c->n_own++] = d;
    }
}

/* Returns the domain's offset in each half. */
static size_t area_start(const move_carriers *c, const move_domain *d) {
    return (size_t)d->aggregator->area * c->w->domain_bytes;
}

/* Returns the entry for that window, with 0 bytes if there is none. */
static move_flow find_flow(const move_flows *flows, uint64_t window) {
    const size_t i =
        flows->n ? core_lower_bound(&flows->list->window, flows->n, sizeof *flows->list, window)
                 : 0;
    const bool is_there = i < flows->n && flows->list[i].window == window;
    return is_there ? flows->list[i] : (move_flow){.window = window};
}

static uint64_t flow_bytes(const move_flows *flows, uint64_t window) {
    return find_flow(flows, window).bytes;
}

/* Returns the size of the message that carries the window's bytes. */
static uint64_t message_bytes(const move_carriers *c, const move_flows *flows, uint64_t window) {
    if (!c->routes->is_one_message) return flow_bytes(flows, window);
    return flows->n ? flows->list[flows->n - 1].before + flows->list[flows->n - 1].bytes : 0;
}

static void add_send(move_carriers *c, const move_partner *p, void *data, uint64_t bytes) {
    c->send[c->sends++] = (dcp_comm_message){.data = data, .bytes = bytes, .peer = p->rank};
}

static void add_receive(move_carriers *c, const move_partner *p, void *data, uint64_t bytes) {
    c->receive[c->receives++] = (dcp_comm_message){.data = data, .bytes = bytes, .peer = p->rank};
}

/* Exchanges the messages of windows [i, end) of the list. If an exchange requires all ranks, they
 * all know whether some rank exchanges anything in these windows, so either all of them call
 * comm_exchange_run, or none does. */
static int exchange_messages(move_carriers *c, size_t i, size_t end, dcp_error *err) {
    bool flow = false;
    for (; i < end; i++) flow |= c->routes->has_own[i] || c->routes->has_theirs[i];
    if (!flow) return DCP_OK;
    if (!c->sends && !c->receives && !comm_exchange_is_collective(c->x->comm)) return DCP_OK;
    return comm_exchange_run(c->x->comm, c->send, c->sends, c->receive, c->receives, err);
}

void move_carriers_empty(move_carriers *c, uint64_t window) {
    uint64_t at = 0;
    for (int i = 0; i < c->routes->n_partners; i++) {
        const move_partner *p = &c->routes->partners[i];
        atomic_store(&c->places[p->group], at + find_flow(&p->own, window).before);
        at += message_bytes(c, &p->own, window);
    }
}

/* A walk over one rank's fragments in one domain. */
typedef struct carrier_walk {
    move_carriers *c;
    uint64_t bytes;        /* size of these fragments in the message */
    unsigned char *at;     /* position in the message, or beginning of the partner's pages */
    uint64_t domain_start; /* address of the domain */
    uint64_t before;       /* size of the group's domains before this one */
    _Atomic uint64_t *bits;
    uint64_t pages_before; /* number of wanted pages before the domain */
} carrier_walk;

static int count_fragment(void *ctx, const move_fragment *f) {
    carrier_walk *k = ctx;
    k->bytes += MOVE_HEAD_BYTES + f->bytes;
    return 0;
}

static int put_fragment(void *ctx, const move_fragment *f) {
    carrier_walk *k = ctx;
    core_put_u32(k->at, (uint32_t)(k->before + f->file_offset - k->domain_start));
    core_put_u32(k->at + 4, (uint32_t)f->bytes);
    move_exchange_fetch(k->c->x, f, k->at + MOVE_HEAD_BYTES);
    k->at += MOVE_HEAD_BYTES + f->bytes;
    return 0;
}

void move_carriers_put(move_carriers *c, const move_domain *d, uint32_t number, int count_walk,
                       int put_walk) {
    carrier_walk k = {.c = c, .domain_start = d->start, .before = number * c->w->domain_bytes};
    move_exchange_walk(c->x, count_walk, d, count_fragment, &k);
    if (!k.bytes) return;
    k.at = memory_for(c, d->aggregator->group) +
           atomic_fetch_add(&c->places[d->aggregator->group], k.bytes);
    move_exchange_walk(c->x, put_walk, d, put_fragment, &k);
}

/* A fragment of a partner's message. Its sender cut it at the ends of domains; the receiver checks
 * that. */
typedef struct sent_fragment {
    const move_domain *domain;
    uint64_t offset, bytes; /* offset in the domain */
    const unsigned char *data;
} sent_fragment;

/* Reads the next fragment of [*at, end). Returns false at the end. If the fragment is invalid, this
 * rank fails, and false is returned as well. */
static bool next_fragment(move_carriers *c, const unsigned char **at, const unsigned char *end,
                          sent_fragment *f) {
    if (*at == end) return false;
    uint64_t left = (uint64_t)(end - *at);
    if (left > MOVE_HEAD_BYTES) {
        const uint64_t offset = core_get_u32(*at), number = offset / c->w->domain_bytes;
        f->offset = offset % c->w->domain_bytes;
        f->bytes = core_get_u32(*at + 4);
        f->data = *at + MOVE_HEAD_BYTES;
        left -= MOVE_HEAD_BYTES;
        *at = f->data + f->bytes;
        f->domain = &c->own[number];
        if (number < (uint64_t)c->n_own && f->bytes && f->bytes <= left &&
            f->bytes <= c->w->domain_bytes - f->offset)
            return true;
    }
    if (!c->x->status)
        c->x->status = core_fail(&c->x->error, DCP_ERR_COMM, "a message between hosts is damaged");
    return false;
}

static void count_message(move_carriers *c, const dcp_comm_message *m, const move_half *half) {
    const unsigned char *at = m->data, *end = at + m->bytes;
    sent_fragment f;
    while (next_fragment(c, &at, end, &f)) {
        _Atomic uint16_t *marks = half->marks + area_start(c, f.domain) / PAGE_BYTES;
        move_half_count(marks, f.offset, f.bytes);
    }
}

int move_carriers_send(move_carriers *c, size_t i, size_t end, dcp_error *err) {
    const uint64_t window = c->w->list[i];
    unsigned char *from = c->memory[c->x->comm->local.rank], *to = c->buffer;
    c->sends = c->receives = 0;
    for (int k = 0; k < c->routes->n_partners; k++) {
        const move_partner *p = &c->routes->partners[k];
        const uint64_t out = message_bytes(c, &p->own, window),
                       in = message_bytes(c, &p->theirs, window);
        if (out) add_send(c, p, from, out);
        if (in) add_receive(c, p, to, in);
        from += out;
        to += in;
    }
    return exchange_messages(c, i, end, err);
}

void move_carriers_count(move_carriers *c, size_t i, const move_half *half) {
    const uint64_t window = c->w->list[i];
    unsigned char *message = c->buffer;
    c->n_parts = 0;
    for (int k = 0; k < c->routes->n_partners; k++) {
        const move_flows *theirs = &c->routes->partners[k].theirs;
        const move_flow flow = find_flow(theirs, window);
        if (flow.bytes)
            c->parts[c->n_parts++] =
                (dcp_comm_message){.data = message + flow.before, .bytes = flow.bytes};
        message += message_bytes(c, theirs, window);
    }
    if (c->n_parts) find_own(c, window);
    for (size_t k = 0; k < c->n_parts; k++) count_message(c, &c->parts[k], half);
}

void move_carriers_copy_out(move_carriers *c, const move_half *half) {
    for (size_t i = 0; i < c->n_parts; i++) {
        const unsigned char *at = c->parts[i].data, *end = at + c->parts[i].bytes;
        sent_fragment f;
        while (next_fragment(c, &at, end, &f))
            memcpy(half->data + area_start(c, f.domain) + f.offset, f.data, f.bytes);
    }
}

void move_carriers_clear(move_carriers *c, size_t i) {
    unsigned char *memory = c->memory[c->x->comm->local.rank];
    memset(memory + i % c->sets * set_bytes(c), 0, set_bytes(c));
}

static int want_fragment(void *ctx, const move_fragment *f) {
    const carrier_walk *k = ctx;
    const uint64_t offset = f->file_offset - k->domain_start,
                   last = (offset + f->bytes - 1) / PAGE_BYTES;
    for (uint64_t page = offset / PAGE_BYTES; page <= last; page++) {
        const uint64_t bit = (uint64_t)1 << page % 64;
        if (!(atomic_load_explicit(&k->bits[page / 64], memory_order_relaxed) & bit))
            atomic_fetch_or_explicit(&k->bits[page / 64], bit, memory_order_relaxed);
    }
    return 0;
}

void move_carriers_request(move_carriers *c, size_t i, const move_domain *d, uint32_t number,
                           int walk) {
    carrier_walk k = {.domain_start = d->start,
                      .bits = bits_for(c, d->aggregator->group, i) + number * c->words};
    move_exchange_walk(c->x, walk, d, want_fragment, &k);
}

/* Returns the number of set bits. */
static uint64_t count_bits(const _Atomic uint64_t *bits, size_t words) {
    uint64_t n = 0;
    for (size_t i = 0; i < words; i++)
        n += (uint64_t)__builtin_popcountll(atomic_load_explicit(&bits[i], memory_order_relaxed));
    return n;
}

/* Returns the bits of window i that a partner has sent to this rank. */
static uint64_t *requested_by(const move_carriers *c, int partner, size_t i) {
    const size_t before = i % c->sets * (size_t)c->routes->n_partners + (size_t)partner;
    return c->requested + before * bits_bytes(c) / sizeof(uint64_t);
}

/* Marks the requested pages of this group's domains. */
static void mark_requested(const move_carriers *c, const uint64_t *bits, const move_half *half) {
    for (int d = 0; d < c->n_own; d++) {
        _Atomic uint16_t *marks = half->marks + area_start(c, &c->own[d]) / PAGE_BYTES;
        for (size_t word = 0; word < c->words; word++)
            for (uint64_t left = bits[(size_t)d * c->words + word]; left; left &= left - 1)
                atomic_store_explicit(&marks[64 * word + (size_t)__builtin_ctzll(left)], 1,
                                      memory_order_relaxed);
    }
}

/* Returns the size of the bits for the group's domains of a window. */
static uint64_t bits_of(const move_carriers *c, int group, uint64_t window) {
    uint64_t n = 0;
    for (int k = 0; k < c->w->width; k++)
        n += move_windows_domain(c->w, window, k).aggregator->group == group;
    return n * c->words * sizeof(uint64_t);
}

/* Composes the request to a partner: the bits for its domains of windows [i, end). Returns the end
 * of what it wrote. */
static unsigned char *put_requests(const move_carriers *c, const move_partner *p, size_t i,
                                   size_t end, unsigned char *to) {
    for (; i < end; i++) {
        const uint64_t window = c->w->list[i];
        if (!flow_bytes(&p->own, window)) continue;
        const uint64_t bytes = bits_of(c, p->group, window);
        memcpy(to, (const void *)bits_for(c, p->group, i), bytes);
        to += bytes;
    }
    return to;
}

/* Stores the bits of the request of partner number k, which begins at `from`, and returns the end
 * of the request. If `take` is 0, only returns the end. */
static unsigned char *take_requests(const move_carriers *c, int k, size_t i, size_t end,
                                    unsigned char *from, bool take) {
    for (; i < end; i++) {
        const uint64_t window = c->w->list[i];
        if (!flow_bytes(&c->routes->partners[k].theirs, window)) continue;
        const uint64_t bytes = bits_of(c, c->w->groups->own, window);
        if (take) memcpy(requested_by(c, k, i), from, bytes);
        from += bytes;
    }
    return from;
}

int move_carriers_exchange_requests(move_carriers *c, size_t i, size_t end, dcp_error *err) {
    const int n = c->routes->n_partners;
    unsigned char *out = c->requests, *in = out + c->block * (size_t)n * bits_bytes(c), *at;
    c->sends = c->receives = 0;
    for (int k = 0; k < n; k++) {
        const move_partner *p = &c->routes->partners[k];
        at = put_requests(c, p, i, end, out);
        if (at > out) add_send(c, p, out, (uint64_t)(at - out));
        out = at;
        at = take_requests(c, k, i, end, in, false);
        if (at > in) add_receive(c, p, in, (uint64_t)(at - in));
        in = at;
    }
    int status = exchange_messages(c, i, end, err);
    in = c->requests + c->block * (size_t)n * bits_bytes(c);
    for (int k = 0; k < n && !status; k++) in = take_requests(c, k, i, end, in, true);
    return status;
}

void move_carriers_mark(move_carriers *c, size_t i, const move_half *half) {
    find_own(c, c->w->list[i]);
    for (int k = 0; k < c->routes->n_partners; k++)
        if (flow_bytes(&c->routes->partners[k].theirs, c->w->list[i]))
            mark_requested(c, requested_by(c, k, i), half);
}

/* Copies to `to` the pages whose bits are set. Returns the end of what it wrote. */
static unsigned char *copy_requested(const move_carriers *c, const uint64_t *bits,
                                     const move_half *half, unsigned char *to) {
    for (int d = 0; d < c->n_own; d++)
        for (size_t word = 0; word < c->words; word++)
            for (uint64_t left = bits[(size_t)d * c->words + word]; left; left &= left - 1) {
                const size_t page = 64 * word + (size_t)__builtin_ctzll(left);
                memcpy(to, half->data + area_start(c, &c->own[d]) + page * PAGE_BYTES, PAGE_BYTES);
                to += PAGE_BYTES;
            }
    return to;
}

/* Returns the address of the requested pages if they are contiguous in the half, otherwise NULL. */
static unsigned char *find_row(const move_carriers *c, const uint64_t *bits, const move_half *half,
                               uint64_t pages) {
    for (int d = 0; d < c->n_own; d++)
        for (size_t page = 0; page < 64 * c->words; page++) {
            const uint64_t *of = bits + (size_t)d * c->words;
            if (!(of[page / 64] >> page % 64 & 1)) continue;
            for (size_t k = page; k < page + pages; k++)
                if (k == 64 * c->words || !(of[k / 64] >> k % 64 & 1)) return NULL;
            return half->data + area_start(c, &c->own[d]) + page * PAGE_BYTES;
        }
    return NULL;
}

int move_carriers_answer(move_carriers *c, size_t i, const move_half *half, dcp_error *err) {
    const uint64_t window = c->w->list[i];
    unsigned char *out = c->buffer, *memory = c->memory[c->x->comm->local.rank];
    uint64_t at = pages_at(c);
    c->sends = c->receives = 0;
    find_own(c, window);
    for (int k = 0; k < c->routes->n_partners; k++) {
        const move_partner *p = &c->routes->partners[k];
        if (flow_bytes(&p->own, window)) {
            const uint64_t pages =
                count_bits(bits_for(c, p->group, i), bits_bytes(c) / sizeof(uint64_t));
            atomic_store(&c->places[p->group], at);
            add_receive(c, p, memory + at, pages * PAGE_BYTES);
            at += pages * PAGE_BYTES;
        }
        if (flow_bytes(&p->theirs, window)) {
            const uint64_t *bits = requested_by(c, k, i);
            const uint64_t pages =
                count_bits((const _Atomic uint64_t *)bits, (size_t)c->n_own * c->words);
            unsigned char *row = find_row(c, bits, half, pages);
            add_send(c, p, row ? row : out, pages * PAGE_BYTES);
            if (!row) out = copy_requested(c, bits, half, out);
        }
    }
    return exchange_messages(c, i, i + 1, err);
}

static int take_fragment(void *ctx, const move_fragment *f) {
    const carrier_walk *k = ctx;
    const uint64_t offset = f->file_offset - k->domain_start, page = offset / PAGE_BYTES;
    uint64_t before = k->pages_before + count_bits(k->bits, page / 64);
    if (page % 64)
        before += (uint64_t)__builtin_popcountll(
            atomic_load_explicit(&k->bits[page / 64], memory_order_relaxed) << (64 - page % 64));
    move_exchange_put(k->c->x, f, k->at + before * PAGE_BYTES + offset % PAGE_BYTES);
    return 0;
}

void move_carriers_read(move_carriers *c, size_t i, const move_domain *d, uint32_t number,
                        int walk) {
    const int group = d->aggregator->group;
    _Atomic uint64_t *all = bits_for(c, group, i);
    carrier_walk k = {.c = c,
                      .domain_start = d->start,
                      .at = memory_for(c, group) + atomic_load(&c->places[group]),
                      .bits = all + number * c->words,
                      .pages_before = count_bits(all, number * c->words)};
    move_exchange_walk(c->x, walk, d, take_fragment, &k);
}
