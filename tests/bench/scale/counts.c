#include "counts.h"

#include <string.h>

#include "world.h"

#define MIB ((uint64_t)1 << 20)

/* Returns the number of words of a rank's bits in `peers`. */
static size_t peer_words(const counts *c) { return ((size_t)c->ranks + 63) / 64; }
static size_t peers_bytes(const counts *c) { return (size_t)c->ranks * peer_words(c) * 8; }

void counts_make(counts *c, int ranks, int ranks_a_host) {
    *c = (counts){.ranks = ranks, .ranks_a_host = ranks_a_host};
    c->data.peers = calloc(peers_bytes(c), 1);
    c->other.peers = calloc(peers_bytes(c), 1);
    NEED(c->data.peers && c->other.peers);
}

void counts_free(counts *c) {
    free(c->data.peers);
    free(c->other.peers);
    free(c->requests);
}

static void clear_messages(const counts *c, counts_messages *m) {
    memset(m->peers, 0, peers_bytes(c));
    *m = (counts_messages){.peers = m->peers};
}

void counts_clear(counts *c) {
    counts now = *c;
    clear_messages(c, &now.data);
    clear_messages(c, &now.other);
    *c = (counts){.ranks = now.ranks,
                  .ranks_a_host = now.ranks_a_host,
                  .requests = now.requests,
                  .capacity = now.capacity,
                  .data = now.data,
                  .other = now.other};
}

void counts_add_request(counts *c, const counts_request *request) {
    if (c->n_requests == c->capacity) {
        c->capacity = 2 * c->capacity + 1024;
        c->requests = realloc(c->requests, c->capacity * sizeof *c->requests);
        NEED(c->requests);
    }
    c->requests[c->n_requests++] = *request;
}

static void note_peer(const counts *c, const counts_messages *m, int rank, int peer) {
    m->peers[(size_t)rank * peer_words(c) + (size_t)peer / 64] |= 1ULL << peer % 64;
}

void counts_add_message(counts *c, counts_messages *to, int from, int peer, uint64_t bytes) {
    const int size = 63 - __builtin_clzll(bytes);
    if (from == peer) return;
    to->n++;
    to->bytes += bytes;
    to->sizes[size]++;
    to->bytes_of_size[size] += bytes;
    note_peer(c, to, from, peer);
    note_peer(c, to, peer, from);
    if (from / c->ranks_a_host != peer / c->ranks_a_host) to->between += bytes;
}

static int by_place(const void *a, const void *b) {
    const counts_request *x = a, *y = b;
    if (x->file != y->file) return x->file < y->file ? -1 : 1;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->rank - y->rank;
}

void counts_sort(counts *c) { qsort(c->requests, c->n_requests, sizeof *c->requests, by_place); }

void counts_print_requests(const counts *c, FILE *to) {
    for (size_t i = 0; i < c->n_requests; i++) {
        const counts_request *r = &c->requests[i];
        fprintf(to, "%d %c %u %llu %llu\n", r->rank, r->is_write ? 'W' : 'R', r->file,
                (unsigned long long)r->offset, (unsigned long long)r->bytes);
    }
}

/* The ranks that have a part in one MiB. */
typedef struct sharers {
    unsigned file;
    uint64_t mib;
    int *ranks, n;
} sharers;

static int add_sharer(sharers *s, unsigned file, uint64_t mib, int rank) {
    if (s->file != file || s->mib != mib) *s = (sharers){file, mib, s->ranks, 0};
    for (int i = 0; i < s->n; i++)
        if (s->ranks[i] == rank) return s->n;
    s->ranks[s->n++] = rank;
    return s->n;
}

/* Requests ascend, so those of a MiB come together, but for the one that another MiB began. */
static int count_sharers(const counts *c, int writes) {
    sharers s = {.file = ~0u, .ranks = calloc((size_t)c->ranks, sizeof(int))};
    int most = 0;
    NEED(s.ranks);
    for (size_t i = 0; i < c->n_requests; i++) {
        const counts_request *r = &c->requests[i];
        if (r->is_write != writes) continue;
        for (uint64_t m = r->offset / MIB; m <= (r->offset + r->bytes - 1) / MIB; m++) {
            int n = add_sharer(&s, r->file, m, r->rank);
            if (n > most) most = n;
        }
    }
    free(s.ranks);
    return most;
}

static int by_size(const void *a, const void *b) {
    const counts_request *x = a, *y = b;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static void spread(const counts *c, int writes, counts_summary *out) {
    double *bytes = calloc((size_t)c->ranks, sizeof *bytes), most = 0;
    NEED(bytes);
    for (size_t i = 0; i < c->n_requests; i++)
        if (c->requests[i].is_write == writes)
            bytes[c->requests[i].rank] += (double)c->requests[i].bytes;
    for (int r = 0; r < c->ranks; r++) {
        out->ranks += bytes[r] > 0;
        if (bytes[r] > most) most = bytes[r];
    }
    if (out->ranks) out->most_over_mean = most * out->ranks / (double)out->bytes;
    free(bytes);
}

/* The requests in one direction, by size; `n` gets their number. */
static counts_request *select_requests(const counts *c, int writes, size_t *n) {
    counts_request *list = malloc((c->n_requests + 1) * sizeof *list);
    NEED(list);
    for (size_t i = *n = 0; i < c->n_requests; i++)
        if (c->requests[i].is_write == writes) list[(*n)++] = c->requests[i];
    qsort(list, *n, sizeof *list, by_size);
    return list;
}

void counts_summarize(const counts *c, int writes, counts_summary *out) {
    size_t n;
    counts_request *list = select_requests(c, writes, &n);
    uint64_t large = 0, aligned = 0;
    *out = (counts_summary){.n = n, .median = n ? list[(n - 1) / 2].bytes : 0};
    for (size_t i = 0; i < n; i++) {
        out->bytes += list[i].bytes;
        if (list[i].bytes >= MIB) large += list[i].bytes;
        if (list[i].bytes >= MIB && list[i].offset % MIB == 0) aligned += list[i].bytes;
    }
    if (n) out->in_large = (double)large / (double)out->bytes;
    if (n) out->in_aligned = (double)aligned / (double)out->bytes;
    out->most_ranks_of_mib = count_sharers(c, writes);
    spread(c, writes, out);
    free(list);
}

int counts_most_peers(const counts *c, const counts_messages *m) {
    const size_t words = peer_words(c);
    int most = 0;
    for (size_t r = 0; r < (size_t)c->ranks; r++) {
        int n = 0;
        for (size_t i = 0; i < words; i++) n += __builtin_popcountll(m->peers[r * words + i]);
        if (n > most) most = n;
    }
    return most;
}

uint64_t counts_usual_message(const counts_messages *m) {
    uint64_t bytes = 0;
    for (int size = COUNTS_SIZES - 1; size >= 0; size--)
        if (m->n && 2 * (bytes += m->bytes_of_size[size]) >= m->bytes) return (uint64_t)1 << size;
    return 0;
}
