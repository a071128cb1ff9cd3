/* Open bins are kept by the room that they have left, in stacks, with a bit for each stack that is
 * not empty: so a thing costs some words of these bits, and a bin is never searched for. */
#include "data/bins.h"

#include <stdlib.h>
#include <string.h>

#include "programs/fail.h"

#define NONE UINT64_MAX
enum { WORD = 64 };

typedef struct open_bins {
    uint64_t n, room, bins;
    uint64_t *order;  /* [n] the things, the largest first, equal ones as they come */
    uint64_t *starts; /* [room + 1] of sizes in order, while it is made */
    uint64_t *bin;    /* [n] which one a thing is in */
    uint64_t *next;   /* [n] of a bin, the one below it in its stack */
    uint64_t *stack;  /* [room + 1] the topmost bin with so much room, or NONE */
    uint64_t *filled; /* [room / WORD + 1] bits: there is such a bin */
} open_bins;

static void end_bins(open_bins *p) {
    free(p->order);
    free(p->starts);
    free(p->bin);
    free(p->next);
    free(p->stack);
    free(p->filled);
}

static int begin_bins(open_bins *p, dcp_error *err) {
    const size_t things = p->n * sizeof(uint64_t), rooms = (p->room + 1) * sizeof(uint64_t);
    p->order = malloc(things);
    p->starts = calloc(p->room + 1, sizeof *p->starts);
    p->bin = malloc(things);
    p->next = malloc(things);
    p->stack = malloc(rooms);
    p->filled = calloc(p->room / WORD + 1, sizeof *p->filled);
    if (!p->order || !p->starts || !p->bin || !p->next || !p->stack || !p->filled)
        return core_fail_memory(err, 3 * things + 3 * rooms);
    for (uint64_t left = 0; left <= p->room; left++) p->stack[left] = NONE;
    return DCP_OK;
}

/* By counting. */
static void order_things(open_bins *p, const uint64_t *sizes) {
    uint64_t before = 0;
    for (uint64_t i = 0; i < p->n; i++) p->starts[sizes[i]]++;
    for (uint64_t size = p->room; size > 0; size--) {
        const uint64_t such = p->starts[size];
        p->starts[size] = before;
        before += such;
    }
    for (uint64_t i = 0; i < p->n; i++) p->order[p->starts[sizes[i]]++] = i;
}

static void push_bin(open_bins *p, uint64_t bin, uint64_t left) {
    p->next[bin] = p->stack[left];
    p->stack[left] = bin;
    p->filled[left / WORD] |= (uint64_t)1 << left % WORD;
}

static uint64_t take_out(open_bins *p, uint64_t left) {
    const uint64_t bin = p->stack[left];
    p->stack[left] = p->next[bin];
    if (p->stack[left] == NONE) p->filled[left / WORD] &= ~((uint64_t)1 << left % WORD);
    return bin;
}

/* The least room of at least `size` that a bin has, or NONE. */
static uint64_t least_room(const open_bins *p, uint64_t size) {
    uint64_t word = size / WORD, bits = p->filled[word] >> size % WORD << size % WORD;
    while (!bits) {
        if (++word > p->room / WORD) return NONE;
        bits = p->filled[word];
    }
    return word * WORD + (uint64_t)__builtin_ctzll(bits);
}

static void put_all(open_bins *p, const uint64_t *sizes) {
    for (uint64_t i = 0; i < p->n; i++) {
        const uint64_t thing = p->order[i], size = sizes[thing];
        const uint64_t found = least_room(p, size), room = found == NONE ? p->room : found;
        p->bin[thing] = found == NONE ? p->bins++ : take_out(p, found);
        if (room > size) push_bin(p, p->bin[thing], room - size);
    }
}

/* A bin's things in the order in which they were put. */
static int list_bins(const open_bins *p, data_bins *out, dcp_error *err) {
    out->n = p->bins;
    out->first = calloc(p->bins + 2, sizeof *out->first);
    out->things = malloc(p->n * sizeof *out->things);
    if (!out->first || !out->things) return core_fail_memory(err, 2 * p->n * sizeof *out->first);
    uint64_t *next = out->first + 1; /* that of the bin before, when all are listed */
    for (uint64_t i = 0; i < p->n; i++) next[p->bin[i] + 1]++;
    for (uint64_t bin = 0; bin < p->bins; bin++) next[bin + 1] += next[bin];
    for (uint64_t i = 0; i < p->n; i++) out->things[next[p->bin[p->order[i]]]++] = p->order[i];
    return DCP_OK;
}

int data_bins_pack(const uint64_t *sizes, uint64_t n, uint64_t room, data_bins *out,
                   dcp_error *err) {
    open_bins p = {.n = n, .room = room};
    *out = (data_bins){0};
    int status = begin_bins(&p, err);
    if (status == DCP_OK) {
        order_things(&p, sizes);
        put_all(&p, sizes);
        status = list_bins(&p, out, err);
    }
    end_bins(&p);
    if (status != DCP_OK) data_bins_free(out);
    return status;
}

void data_bins_free(data_bins *bins) {
    free(bins->first);
    free(bins->things);
    *bins = (data_bins){0};
}
