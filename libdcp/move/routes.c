/* Each rank counts the bytes of its fragments in each domain. The carriers of a group add up the
 * counts of its ranks, and report them to the carriers of other groups. Before these reports, each
 * rank sends one word to each other rank: the number of entries in its report to that rank, and the
 * largest width of windows that its group allows. All ranks use the smallest width. If all ranks
 * can read independently, nothing else is exchanged. If every group can send everything to every
 * other group in a single message, every group does so. */
#include "move/routes.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "comm/messages.h"
#include "comm/sharing.h"
#include "core/bytes.h"
#include "core/fail.h"

/* The number of bytes that a rank has in a domain; the domain's number is window * width + i. */
typedef struct tally_entry {
    uint64_t domain, group, bytes; /* group: the group of the domain's aggregator */
} tally_entry;

typedef struct tally {
    tally_entry *list;
    size_t n, room;
    bool is_short; /* memory was short */
} tally;

/* The domain that is being counted. */
typedef struct domain_count {
    int to_file;
    uint64_t bytes, next_page; /* next_page: the page after the last counted one */
} domain_count;

typedef struct agreeing {
    dcp_comm *comm;
    move_windows *w;
    move_routes *t;
    int to_file;
    int independent;   /* whether this rank, and later whether all ranks, can read independently */
    bool one_message;  /* likewise, whether everything can be sent in one message */
    tally own;         /* what this rank has, ascending by domain */
    tally carried;     /* what its group has for the groups to which this rank is the carrier */
    uint64_t *foreign; /* for each domain of another group, how much this group has in it */
    uint64_t domains;  /* number of domains, if there are no reader ranges */
    uint64_t *bytes;   /* with reader ranges, two per rank: sizes of messages */
    move_flow *in;     /* what all partners report; has room for in_most */
    size_t in_most;
    dcp_comm_message *messages; /* to and from each partner */
    dcp_error *err;
} agreeing;

/* The layout of a word. The bits below WORD_WIDTH are the number of entries, and the bits from
 * WORD_WIDTH on are the width, or 0 if the rank has failed. The two highest bits say that the rank
 * can read independently, and that it can send everything in one message. */
enum { WORD_WIDTH = 32, WORD_ONE_MESSAGE = 62, WORD_INDEPENDENT = 63 };

/* Returns the rank of `group` that carries its traffic with `other`. */
static int move_routes_carrier(const comm_groups *groups, int group, int other) {
    const int distance = (other - group + groups->n) % groups->n;
    return comm_groups_rank(groups, group, (distance - 1) % comm_groups_size(groups, group));
}

static void tally_add(tally *t, tally_entry entry) {
    if (t->n == t->room) {
        const size_t room = 2 * t->room + 64;
        tally_entry *list = core_array_grow(t->list, room, sizeof *list);
        t->is_short |= !list;
        if (!list) return;
        t->list = list;
        t->room = room;
    }
    t->list[t->n++] = entry;
}

/* To a file, adds the number of bytes that the fragment occupies in a message. From a file, adds
 * the size of the pages that it needs; a page can be counted several times. */
static int count_fragment(void *ctx, const move_fragment *f) {
    domain_count *c = ctx;
    if (c->to_file) {
        c->bytes += MOVE_HEAD_BYTES + f->bytes;
        return 0;
    }
    uint64_t first = f->file_offset / PAGE_BYTES,
             end = (f->file_offset + f->bytes - 1) / PAGE_BYTES + 1;
    if (first + 1 == c->next_page) first++;
    if (first < end) c->bytes += (end - first) * PAGE_BYTES;
    c->next_page = end;
    return 0;
}

static bool count_window(agreeing *a, const move_piece *pieces, size_t n, size_t *cursors,
                         uint64_t window) {
    const move_windows *w = a->w;
    for (int i = 0; i < w->width; i++) {
        const move_domain d = move_windows_domain(w, window, i);
        domain_count c = {.to_file = a->to_file};
        move_fragments(pieces, n, &cursors[w->reader_ranges ? i : 0], d.start, d.end,
                       count_fragment, &c);
        if (c.bytes)
            tally_add(&a->own, (tally_entry){window * (uint64_t)w->width + (uint64_t)i,
                                             (uint64_t)d.aggregator->group, c.bytes});
    }
    return !a->own.is_short;
}

static int count_fragments(agreeing *a, const move_piece *pieces, size_t n) {
    const move_windows *w = a->w;
    size_t *cursors = calloc((size_t)a->comm->size, sizeof *cursors);
    bool ok = cursors != NULL;
    for (int r = 0; ok && w->reader_ranges && r < a->comm->size; r++)
        cursors[r] = move_pieces_find(pieces, n, w->reader_ranges[r]);
    for (uint64_t i = 0; ok && n && i < w->count; i++) ok = count_window(a, pieces, n, cursors, i);
    free(cursors);
    return ok ? DCP_OK : core_fail_memory(a->err, a->own.room * sizeof *a->own.list);
}

/* Returns a width with which this group has no more than MOVE_FOREIGN_BYTES in domains of other
 * groups in any window. Tries the largest width first; each further attempt is narrower by an
 * eighth. */
static int fitting_width(const agreeing *a) {
    for (int width = a->w->width;; width -= (width + 7) / 8) {
        uint64_t most = 0;
        for (uint64_t d = 0, bytes = 0; d < a->domains; d++) {
            bytes = (d % (uint64_t)width ? bytes : 0) + a->foreign[d];
            if (bytes > most) most = bytes;
        }
        if (most <= MOVE_FOREIGN_BYTES || width == 1) return width;
    }
}

/* Returns true if the group can send everything in one message to each other group. The limit is
 * lower if only a few of the ranks are aggregators, because these few receive everything that all
 * ranks send. */
static bool fits_one_message(const agreeing *a) {
    const uint64_t ranks = (uint64_t)a->comm->size,
                   most = MOVE_FOREIGN_BYTES * (uint64_t)a->w->n_aggregators / ranks;
    uint64_t bytes = 0;
    for (uint64_t d = 0; d < a->domains; d++) bytes += a->foreign[d];
    return a->to_file && bytes <= most;
}

static int order_entries(const void *a, const void *b) {
    const tally_entry *x = a, *y = b;
    if (x->group != y->group) return x->group < y->group ? -1 : 1;
    return (x->domain > y->domain) - (x->domain < y->domain);
}

/* Sorts the entries, and adds up entries with equal keys. */
static void merge_entries(tally *t) {
    size_t n = 0;
    if (t->n) qsort(t->list, t->n, sizeof *t->list, order_entries);
    for (size_t i = 0; i < t->n; i++)
        if (n && !order_entries(&t->list[n - 1], &t->list[i]))
            t->list[n - 1].bytes += t->list[i].bytes;
        else
            t->list[n++] = t->list[i];
    t->n = n;
}

/* Adds up the entries of the group's ranks. Collective in the group; `status` is this rank's status
 * so far. If one of these ranks has failed, *width becomes 0 on all of them. */
static int add_up_in_group(agreeing *a, int status, int *width) {
    const move_windows *w = a->w;
    uint64_t lacking = status != DCP_OK;
    int comm_status = comm_local_max(a->comm, &lacking, 1, a->err);
    *width = 0;
    if (comm_status || lacking) return comm_status ? comm_status : status;
    for (size_t i = 0; i < a->own.n; i++)
        if (a->own.list[i].group != (uint64_t)w->groups->own)
            a->foreign[a->own.list[i].domain] = a->own.list[i].bytes;
    comm_status = comm_local_sum(a->comm, a->foreign, a->domains, a->err);
    if (comm_status) return comm_status;
    for (uint64_t d = 0; d < a->domains; d++) {
        const int group = move_windows_aggregator(w, d)->group;
        if (!a->to_file) /* a page is read only once */
            a->foreign[d] = core_min_u64(a->foreign[d], w->domain_bytes);
        if (a->foreign[d] && move_routes_carrier(w->groups, w->groups->own, group) == a->comm->rank)
            tally_add(&a->carried, (tally_entry){d, (uint64_t)group, a->foreign[d]});
    }
    if (a->carried.is_short) return core_fail_memory(a->err, a->carried.room);
    merge_entries(&a->carried);
    *width = fitting_width(a);
    a->one_message = fits_one_message(a);
    return DCP_OK;
}

/* Appends to the message those entries of this rank that `carrier` carries. */
static int append_entries(const agreeing *a, int carrier, comm_buffer *out) {
    const comm_groups *g = a->w->groups;
    for (size_t i = 0; i < a->own.n; i++) {
        const tally_entry *e = &a->own.list[i];
        if (e->group == (uint64_t)g->own ||
            move_routes_carrier(g, g->own, (int)e->group) != carrier)
            continue;
        unsigned char *at = comm_buffer_append(out, sizeof *e);
        if (!at) return core_fail_memory(a->err, a->own.n * sizeof *e);
        memcpy(at, e, sizeof *e);
        a->bytes[carrier] += sizeof *e;
    }
    return DCP_OK;
}

static int take_entries(agreeing *a, const comm_buffer *in) {
    for (uint64_t at = 0; at < in->bytes; at += sizeof(tally_entry)) {
        tally_entry e;
        memcpy(&e, in->data + at, sizeof e);
        tally_add(&a->carried, e);
    }
    merge_entries(&a->carried);
    return a->carried.is_short ? core_fail_memory(a->err, in->bytes) : DCP_OK;
}

/* Used with reader ranges: sends this rank's entries to the carriers of its group. Collective. All
 * ranks find out whether one of them has failed; `status` is this rank's status so far. */
static int send_to_carriers(agreeing *a, int status) {
    const comm_groups *g = a->w->groups;
    comm_buffer out = {0}, in = {0};
    for (int k = 0; k < comm_groups_size(g, g->own) && !status; k++)
        status = append_entries(a, comm_groups_rank(g, g->own, k), &out);
    status = comm_agree(a->comm, status, a->err);
    if (!status)
        status =
            comm_buffer_exchange(a->comm, &out, a->bytes, &in, a->bytes + a->comm->size, a->err);
    if (!status) status = take_entries(a, &in);
    free(out.data);
    free(in.data);
    return status;
}

static int order_partners(const void *a, const void *b) {
    const move_partner *x = a, *y = b;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static void sort_partners(move_routes *t) {
    qsort(t->partners, (size_t)t->n_partners, sizeof *t->partners, order_partners);
}

static move_partner *add_partner(agreeing *a, int group) {
    const comm_groups *g = a->w->groups;
    move_routes *t = a->t;
    for (int i = 0; i < t->n_partners; i++)
        if (t->partners[i].group == group) return &t->partners[i];
    t->partners[t->n_partners] =
        (move_partner){.group = group, .rank = move_routes_carrier(g, group, g->own)};
    return &t->partners[t->n_partners++];
}

/* Lists, by domain, what this carrier's group has for, or needs from, other groups. */
static int list_own(agreeing *a) {
    const tally *carried = &a->carried;
    for (size_t i = 0, end; i < carried->n; i = end) {
        const uint64_t group = carried->list[i].group;
        for (end = i; end < carried->n && carried->list[end].group == group;) end++;
        move_partner *p = add_partner(a, (int)group);
        p->own.list = core_array(end - i, sizeof *p->own.list);
        if (!p->own.list) return core_fail_memory(a->err, (end - i) * sizeof *p->own.list);
        for (size_t k = i; k < end; k++)
            p->own.list[p->own.n++] =
                (move_flow){.window = carried->list[k].domain, .bytes = carried->list[k].bytes};
    }
    sort_partners(a->t);
    return comm_exchange_reserve(a->comm, carried->n * sizeof *a->in, a->in_most * sizeof *a->in,
                                 a->err);
}

/* Lists what the partners report. `received` contains the words from all ranks. */
static int list_theirs(agreeing *a, const uint64_t *received) {
    const move_flow *at = a->in;
    for (int r = 0; r < a->comm->size; r++) {
        const size_t n = (uint32_t)received[r];
        if (!n) continue;
        move_partner *p = add_partner(a, a->w->groups->of[r]);
        p->theirs.list = core_array(n, sizeof *at);
        if (!p->theirs.list) return core_fail_memory(a->err, n * sizeof *at);
        p->theirs.n = n;
        memcpy(p->theirs.list, at, n * sizeof *at);
        at += n;
    }
    sort_partners(a->t);
    return DCP_OK;
}

/* Exchanges the lists between carriers. `received` contains the words from all ranks. Collective.
 */
static int exchange_flows(agreeing *a, const uint64_t *received) {
    dcp_comm_message *send = a->messages, *receive = send + a->w->groups->n;
    size_t sends = 0, receives = 0;
    move_flow *at = a->in;
    for (int i = 0; i < a->t->n_partners; i++) {
        const move_partner *p = &a->t->partners[i];
        send[sends++] = (dcp_comm_message){
            .data = p->own.list, .bytes = p->own.n * sizeof *p->own.list, .peer = p->rank};
    }
    for (int r = 0; r < a->comm->size; r++) {
        const size_t n = (uint32_t)received[r];
        if (!n) continue;
        receive[receives++] = (dcp_comm_message){.data = at, .bytes = n * sizeof *at, .peer = r};
        at += n;
    }
    return comm_exchange_run(a->comm, send, sends, receive, receives, a->err);
}

/* Replaces the entries, one per domain, with their sums per window. */
static void find_flow_windows(const agreeing *a, move_flows *flows) {
    const uint64_t most = (uint64_t)a->w->areas * a->w->domain_bytes;
    size_t n = 0;
    for (size_t i = 0; i < flows->n; i++) {
        const move_flow t = {.window = flows->list[i].window / (uint64_t)a->w->width,
                             .bytes = flows->list[i].bytes};
        if (n && flows->list[n - 1].window == t.window)
            flows->list[n - 1].bytes += t.bytes;
        else
            flows->list[n++] = t;
    }
    for (size_t i = 0; i < n && !a->to_file; i++)
        flows->list[i].bytes = core_min_u64(flows->list[i].bytes, most);
    flows->n = n;
}

/* Notes the list's windows in t->parts. Adds their bytes to the windows' sums or, if one message
 * covers all windows, to sums[0]. */
static void record_flows(const agreeing *a, move_flows *flows, int part, uint64_t *sums) {
    uint64_t before = 0;
    for (size_t i = 0; i < flows->n; i++) {
        move_flow *flow = &flows->list[i];
        uint64_t *parts = &a->t->parts[3 * flow->window];
        parts[0] = parts[part] = 1;
        sums[a->one_message ? 0 : flow->window] += flow->bytes;
        if (a->one_message) flow->before = before;
        before += flow->bytes;
    }
}

static uint64_t most_of(const uint64_t *sums, uint64_t n) {
    uint64_t most = 0;
    for (uint64_t i = 0; i < n; i++)
        if (sums[i] > most) most = sums[i];
    return most;
}

static int note_partners(agreeing *a) {
    move_routes *t = a->t;
    const uint64_t n = a->w->count;
    uint64_t *sums = calloc(2 * n, sizeof *sums);
    t->is_one_message = a->one_message;
    t->has_own = calloc(2 * n, 1);
    t->has_theirs = t->has_own ? t->has_own + n : NULL;
    a->w->list = calloc(n, sizeof *a->w->list);
    const bool ok = sums && t->has_own && a->w->list;
    for (size_t i = 0; i < a->own.n; i++)
        t->parts[3 * (a->own.list[i].domain / (uint64_t)a->w->width)] = 1;
    for (int i = 0; i < t->n_partners && ok; i++) {
        find_flow_windows(a, &t->partners[i].own);
        find_flow_windows(a, &t->partners[i].theirs);
        record_flows(a, &t->partners[i].own, 1, sums);
        record_flows(a, &t->partners[i].theirs, 2, sums + n);
    }
    if (ok) t->most_own = most_of(sums, n);
    if (ok) t->most_theirs = most_of(sums + n, n);
    free(sums);
    return ok ? DCP_OK : core_fail_memory(a->err, n * 4 * sizeof *sums);
}

/* Exchanges the words. Collective. Sets *received to the words that this rank has received, and
 * *least to the smallest width, which is 0 if some rank has failed. */
static int exchange_words(agreeing *a, int width, const uint64_t **received, int *least) {
    dcp_comm *comm = a->comm;
    uint64_t *out = comm->numbers, *in = out + comm->size;
    const uint64_t own = (uint64_t)width << WORD_WIDTH |
                         (uint64_t)(width && a->one_message) << WORD_ONE_MESSAGE |
                         (uint64_t)(width && a->independent) << WORD_INDEPENDENT;
    for (int r = 0; r < comm->size; r++) out[r] = own;
    for (int i = 0; width && i < a->t->n_partners; i++)
        out[a->t->partners[i].rank] += a->t->partners[i].own.n;
    *received = in;
    *least = a->w->width;
    int status = comm_alltoall(comm, out, comm->eights, in, comm->eights, a->err);
    for (int r = 0; r < comm->size; r++) {
        a->independent &= (int)(in[r] >> WORD_INDEPENDENT);
        a->one_message &= (int)(in[r] >> WORD_ONE_MESSAGE) & 1;
        const int told_width = (int)(in[r] << 2 >> (WORD_WIDTH + 2));
        if (told_width < *least) *least = told_width;
    }
    return status;
}

/* Used with reader ranges: allocates memory for the entries that the words announce. Collective. */
static int allocate_received(agreeing *a, const uint64_t *received) {
    size_t n = 0;
    for (int r = 0; r < a->comm->size; r++) n += (uint32_t)received[r];
    free(a->in);
    a->in = core_array(n + 1, sizeof *a->in);
    int status = a->in ? comm_exchange_reserve(a->comm, 0, n * sizeof *a->in, a->err)
                       : core_fail_memory(a->err, n * sizeof *a->in);
    return comm_agree(a->comm, status, a->err);
}

/* Collective. Exchanges words and lists with other ranks, and sets the width. If memory is short on
 * a rank after the ranks have agreed on a width, only a->t->status of that rank says so. */
static int send_to_partners(agreeing *a, int status, int width, uint64_t end) {
    const uint64_t *received;
    int least;
    if (!status && width) status = list_own(a);
    int comm_status = exchange_words(a, status ? 0 : width, &received, &least);
    if (comm_status) return comm_status;
    if (!least) return comm_agree(a->comm, status, a->err);
    if (a->independent) return DCP_OK;
    status = a->w->reader_ranges ? allocate_received(a, received) : DCP_OK;
    if (!status) status = exchange_flows(a, received);
    if (status) return status;
    move_windows_set_width(a->w, least, end);
    status = list_theirs(a, received);
    if (!status) status = note_partners(a);
    a->t->status = status;
    return DCP_OK;
}

/* Returns the maximum number of entries that partners can report to this rank: for each partner,
 * one per domain of this group. With reader ranges, domains are short and this number would be too
 * large. In that case, returns 0, and allocate_received allocates memory when the number of entries
 * is known. */
static size_t most_sent(const agreeing *a) {
    const comm_groups *g = a->w->groups;
    if (a->w->reader_ranges) return 0;
    const size_t ranks = (size_t)comm_groups_size(g, g->own);
    return ((size_t)g->n - 1 + ranks - 1) / ranks * (size_t)a->w->areas * a->w->count;
}

/* Allocates enough for windows of a single domain, because narrow windows are the most numerous. */
static int make_tables(agreeing *a) {
    const move_windows *w = a->w;
    const size_t parts = 3 * w->count * (size_t)(w->reader_ranges ? 1 : w->width) + 1,
                 ranks = (size_t)a->comm->size, groups = (size_t)w->groups->n;
    a->t = a->w->routes = calloc(1, sizeof *a->t);
    a->domains = w->reader_ranges ? 0 : w->count * (uint64_t)w->width;
    a->in_most = most_sent(a);
    a->foreign = calloc(a->domains + 1, sizeof *a->foreign);
    if (w->reader_ranges) a->bytes = calloc(2 * ranks, sizeof *a->bytes);
    a->in = core_array(a->in_most + 1, sizeof *a->in);
    a->messages = calloc(2 * groups, sizeof *a->messages);
    if (a->t) a->t->partners = calloc(groups, sizeof *a->t->partners);
    if (a->t) a->t->parts = calloc(parts, sizeof *a->t->parts);
    if (a->t && a->t->partners && a->t->parts && a->foreign && (a->bytes || !w->reader_ranges) &&
        a->in && a->messages)
        return DCP_OK;
    return core_fail_memory(a->err, (parts + 2 * ranks + a->domains) * sizeof *a->t->parts +
                                        a->in_most * sizeof *a->in);
}

int move_routes_agree(dcp_comm *comm, int status, const move_piece *pieces, size_t n, uint64_t end,
                      int to_file, int *independent, move_windows *w, dcp_error *err) {
    agreeing a = {
        .comm = comm, .w = w, .to_file = to_file, .independent = *independent, .err = err};
    int width = w->width;
    if (!status) status = make_tables(&a);
    if (!status) status = count_fragments(&a, pieces, n);
    status = w->reader_ranges ? send_to_carriers(&a, status) : add_up_in_group(&a, status, &width);
    status = send_to_partners(&a, status, width, end);
    *independent = a.independent;
    free(a.own.list);
    free(a.carried.list);
    free(a.foreign);
    free(a.bytes);
    free(a.in);
    free(a.messages);
    return status;
}

/* Lists the group's windows, or the windows of all ranks if an exchange of messages requires all
 * ranks. The last element of t->parts shows whether any rank has failed. */
int move_routes_list(dcp_comm *comm, move_windows *w, int status, dcp_error *err) {
    move_routes *t = w->routes;
    const uint64_t n = 3 * w->count;
    const bool is_of_all = comm_exchange_is_collective(comm);
    t->parts[n] = status != DCP_OK;
    int failed = comm_local_max(comm, t->parts, n + 1, err);
    if (is_of_all && !failed) failed = comm_allreduce(comm, t->parts, n + 1, DCP_REDUCE_MAX, err);
    if (failed) return failed;
    if (!is_of_all || t->parts[n]) status = comm_agree(comm, status, err);
    for (uint64_t i = 0; i < w->count && !status; i++) {
        const uint64_t *parts = &t->parts[3 * i];
        t->has_own[w->n] = parts[1] != 0;
        t->has_theirs[w->n] = parts[2] != 0;
        if (parts[0]) w->list[w->n++] = i;
    }
    free(t->parts);
    t->parts = NULL;
    w->is_known = !status;
    return status;
}

void move_routes_free(move_routes *t) {
    if (!t) return;
    for (int i = 0; i < t->n_partners; i++) {
        free(t->partners[i].own.list);
        free(t->partners[i].theirs.list);
    }
    free(t->partners);
    free(t->has_own);
    free(t->parts);
    free(t);
}
