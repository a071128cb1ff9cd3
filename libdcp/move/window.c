/* Chooses windows. Ranks read independently if each of them finds that it has few enough fragments.
 * Otherwise, if there is only one group of ranks that share memory, each rank marks the windows
 * that its fragments touch, and all ranks skip the windows that no rank marked. With several
 * groups, the ranks agree on routes (routes.h). */
#include "move/domain.h"

#include <stdbool.h>
#include <stdlib.h>

#include "comm/comm.h"
#include "core/bytes.h"
#include "core/fail.h"
#include "move/routes.h"

/* Windows that begin at `origin` and are `unit` bytes apart. */
typedef struct marking {
    uint64_t *marks, origin, unit;
} marking;

static void mark_windows(const marking *m, uint64_t start, uint64_t end) {
    if (start >= end) return;
    uint64_t last = (end - 1 - m->origin) / m->unit;
    for (uint64_t w = (start - m->origin) / m->unit; w <= last; w++) m->marks[w] = 1;
}

/* Marks the windows of a piece without bulk. A window that one run has marked is not examined
 * again. */
static void mark_short(const move_piece *p, const marking *m) {
    for (uint64_t i = 0, a, b; i < p->copy->runs;) {
        core_box_copy_run(p->copy, i, &a, &b);
        uint64_t start = p->file_offset + a, end = start + p->copy->run_bytes;
        mark_windows(m, start, end);
        uint64_t next = m->origin + ((end - 1 - m->origin) / m->unit + 1) * m->unit;
        uint64_t after = core_box_copy_find(p->copy, next - p->file_offset);
        i = after > i ? after : i + 1;
    }
}

static void mark_edges(const move_piece *p, const marking *m) {
    for (uint64_t i = 0, a, b, from, to; i < p->copy->runs; i++) {
        core_box_copy_run(p->copy, i, &a, &b);
        move_piece_interior(p, i, &from, &to);
        mark_windows(m, p->file_offset + a, from);
        mark_windows(m, to, p->file_offset + a + p->copy->run_bytes);
    }
}

/* Clears the marks of windows inside spans that all ranks skip. */
static void unmark_skipped(const move_span_list *skip, uint64_t *marks, uint64_t window_bytes) {
    for (size_t i = 0; i < skip->n; i++)
        for (uint64_t w = (skip->list[i].from + window_bytes - 1) / window_bytes;
             (w + 1) * window_bytes <= skip->list[i].to; w++)
            marks[w] = 0;
}

/* Returns the beginning of the reader range that contains the address. */
static uint64_t range_start(const uint64_t *ranges, int ranks, uint64_t address) {
    return ranges[core_lower_bound(ranges, (size_t)ranks, sizeof *ranges, address + 1) - 1];
}

static void mark_piece(const move_windows *w, const move_piece *p, int ranks) {
    marking m = {.marks = w->list, .unit = w->window_bytes};
    if (w->reader_ranges) {
        m.origin = range_start(w->reader_ranges, ranks, p->file_offset);
        m.unit = w->domain_bytes;
    }
    (p->bulk ? mark_edges : mark_short)(p, &m);
}

static int aggregators_of_host(const comm_groups *hosts) {
    return hosts->n == 1 ? MOVE_HOST_AGGREGATORS : MOVE_HOSTS_AGGREGATORS;
}

static int take_turn(const comm_groups *hosts, int host, int turn) {
    const int ranks = comm_groups_size(hosts, host), wanted = aggregators_of_host(hosts);
    const int most = ranks < wanted ? ranks : wanted;
    return turn < most ? comm_groups_rank(hosts, host, (int)((int64_t)turn * ranks / most)) : -1;
}

/* Chooses some ranks of each host as aggregators. Their numbers are far apart, because such ranks
 * probably run on different processors. */
static void choose_aggregators(move_windows *w, const comm_groups *hosts) {
    for (int turn = 0; turn < aggregators_of_host(hosts); turn++)
        for (int host = 0; host < hosts->n; host++) {
            const int rank = take_turn(hosts, host, turn);
            if (rank >= 0) w->aggregators[w->n_aggregators++].rank = rank;
        }
}

/* Limits the number of aggregators to about half of the number of domains. */
static void spare_aggregators(move_windows *w, uint64_t end) {
    const uint64_t pairs = end / (2 * w->domain_bytes) + 1;
    if ((uint64_t)w->n_aggregators > pairs) w->n_aggregators = (int)pairs;
}

/* Numbers the areas of each group; `used` contains a 0 for each group. */
static void number_areas(move_windows *w, int *used) {
    for (int i = 0; i < w->n_aggregators; i++) {
        move_aggregator *a = &w->aggregators[i];
        a->group = w->groups->of[a->rank];
        a->area = used[a->group]++;
        if (used[a->group] > w->areas) w->areas = used[a->group];
    }
}

/* Returns the size of a domain, which fits into a slot of the queue. With reader ranges, it is a
 * multiple of the largest page size of any kernel, so all ranks cut the file in the same way,
 * whatever their own page size is. */
static uint64_t choose_domain(const move_windows *w, uint64_t ranks) {
    if (!w->reader_ranges) return IO_SLOT_BYTES;
    uint64_t bytes = MOVE_WINDOW_BYTES / ranks / LARGEST_PAGE_BYTES * LARGEST_PAGE_BYTES;
    if (bytes > IO_SLOT_BYTES) bytes = IO_SLOT_BYTES;
    return bytes < LARGEST_PAGE_BYTES ? LARGEST_PAGE_BYTES : bytes;
}

/* Cuts the addresses into windows with one domain per aggregator. */
static int cut_addresses(const dcp_comm *comm, const comm_groups *hosts, uint64_t end,
                         move_windows *w, dcp_error *err) {
    const size_t ranks = (size_t)comm->size;
    w->groups = comm->local.groups;
    w->domain_bytes = choose_domain(w, ranks);
    w->aggregators = calloc(ranks, sizeof *w->aggregators);
    int *used = calloc((size_t)w->groups->n, sizeof *used);
    const bool ok = w->aggregators && used;
    if (ok && w->reader_ranges)
        for (int r = 0; r < comm->size; r++) w->aggregators[w->n_aggregators++].rank = r;
    else if (ok)
        choose_aggregators(w, hosts);
    if (ok && !w->reader_ranges && hosts->n > 1) spare_aggregators(w, end);
    if (ok) number_areas(w, used);
    free(used);
    if (!ok) return core_fail_memory(err, ranks * sizeof *w->aggregators);
    move_windows_set_width(w, w->n_aggregators, end);
    return DCP_OK;
}

/* Ranks read independently if, for each rank, the pages that its fragments touch amount to at most
 * 1 / APART of the bytes that it reads. */
#define APART 64

/* Returns an upper bound on the size of the pages that the piece's fragments touch. */
static uint64_t bytes_of_fragments(const move_piece *p) {
    const uint64_t runs = p->copy->runs,
                   each = core_round_to_pages(p->copy->run_bytes) + PAGE_BYTES;
    if (!p->bulk) return core_min_u64(runs * each, core_round_to_pages(p->bytes) + PAGE_BYTES);
    uint64_t bytes = 0;
    for (uint64_t i = 0, a, b, from, to; i < runs; i++) {
        core_box_copy_run(p->copy, i, &a, &b);
        move_piece_interior(p, i, &from, &to);
        bytes += core_round_to_pages(from - (p->file_offset + a)) +
                 core_round_to_pages(p->file_offset + a + p->copy->run_bytes - to);
    }
    return bytes;
}

static bool suits_independent_reads(const move_piece *pieces, size_t n) {
    uint64_t all = 0, of_fragments = 0;
    for (size_t i = 0; i < n; i++) {
        all += pieces[i].copy->runs * pieces[i].copy->run_bytes;
        of_fragments += bytes_of_fragments(&pieces[i]);
    }
    return of_fragments <= all / APART;
}

static void list_marked(move_windows *w) {
    for (uint64_t i = 0; i < w->count; i++)
        if (w->list[i]) w->list[w->n++] = i;
    w->is_known = true;
}

static int make_list(move_windows *w, dcp_error *err) {
    w->list = calloc(w->count, sizeof *w->list);
    return w->list ? DCP_OK : core_fail_memory(err, w->count * sizeof *w->list);
}

/* Makes windows of a single domain, and lists the windows that contain fragments of this rank. Not
 * collective. */
static int find_independent(const dcp_comm *comm, const move_piece *pieces, size_t n, uint64_t end,
                            move_windows *w, dcp_error *err) {
    w->is_independent = w->areas = w->n_aggregators = 1;
    w->aggregators[0] = (move_aggregator){.rank = comm->rank, .group = w->groups->own};
    move_windows_set_width(w, 1, end);
    move_routes_free(w->routes);
    w->routes = NULL;
    free(w->list);
    int status = make_list(w, err);
    if (status) return status;
    for (size_t i = 0; i < n; i++) mark_piece(w, &pieces[i], comm->size);
    list_marked(w);
    return DCP_OK;
}

/* Makes all ranks mark their windows, unless all can read independently. Collective. `status` is
 * this rank's status so far. */
static int find_marked(dcp_comm *comm, int status, const move_piece *pieces, size_t n,
                       int *independent, move_windows *w, dcp_error *err) {
    uint64_t all = (uint64_t)*independent;
    if (!status) status = make_list(w, err);
    status = comm_agree_min(comm, status, &all, 1, err);
    *independent = !status && all;
    if (status || *independent) return status;
    for (size_t i = 0; i < n; i++) mark_piece(w, &pieces[i], comm->size);
    if (n && pieces[0].skip && !w->reader_ranges)
        unmark_skipped(pieces[0].skip, w->list, w->window_bytes);
    status = comm_allreduce(comm, w->list, w->count, DCP_REDUCE_MAX, err);
    if (!status) list_marked(w);
    return status;
}

int move_windows_find(dcp_comm *comm, const move_piece *pieces, size_t n, uint64_t end,
                      const uint64_t *reader_ranges, int to_file, move_windows *out,
                      dcp_error *err) {
    move_windows w = {.reader_ranges = reader_ranges};
    int independent = !to_file && !reader_ranges && suits_independent_reads(pieces, n);
    const comm_groups *hosts;
    int status = comm_hosts(comm, &hosts, err);
    if (status) return status;
    const int own = cut_addresses(comm, hosts, end, &w, err);
    status = w.groups->n == 1
                 ? find_marked(comm, own, pieces, n, &independent, &w, err)
                 : move_routes_agree(comm, own, pieces, n, end, to_file, &independent, &w, err);
    if (!status && independent) status = find_independent(comm, pieces, n, end, &w, err);
    *out = w;
    if (status) move_windows_free(out);
    return status;
}

void move_windows_free(move_windows *w) {
    move_routes_free(w->routes);
    free(w->aggregators);
    free(w->list);
    *w = (move_windows){0};
}
