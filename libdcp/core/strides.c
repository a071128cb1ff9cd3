/* A walk over runs keeps one index per dimension, like an odometer, and copies the rest of the
 * innermost dimension in one tight loop. If the dimensions have a different order in memory than in
 * the box, the walk follows the memory instead, some cache lines at a time. */
#include "core/strides.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/crc64.h"

#define PART_BYTES (16u << 10)    /* buffer for gathering short runs for a checksum */
#define ROWS_BYTES (1u << 20)     /* buffer for gathering blocks that share cache lines */
#define LONG_BYTES 1024           /* runs of at least this length are summed without a copy */
#define TILE_BYTES ((uint64_t)64) /* a cache line */

static uint64_t size_of_stride(int64_t stride) {
    return stride < 0 ? -(uint64_t)stride : (uint64_t)stride;
}

/* Returns true if all elements lie inside the address space. The address one step beyond the last
 * element must lie inside it, too, since walks advance to it without accessing it. */
static bool has_addresses(const box_strides *s, const void *data) {
    uint64_t before = 0, after = s->run_bytes, span;
    for (uint32_t d = 0; d < s->dims; d++) {
        uint64_t *end = s->loop[d].stride < 0 ? &before : &after;
        if (__builtin_mul_overflow(s->loop[d].count, size_of_stride(s->loop[d].stride), &span) ||
            __builtin_add_overflow(*end, span, end) || *end >> 62)
            return false;
    }
    return before <= (uintptr_t)data && after <= UINTPTR_MAX - (uintptr_t)data;
}

static int by_size(const void *a, const void *b) {
    const uint64_t x = size_of_stride(((const stride_loop *)a)->stride);
    const uint64_t y = size_of_stride(((const stride_loop *)b)->stride);
    return (x > y) - (x < y);
}

/* Elements do not overlap if each step is at least as long as everything that the loops with
 * shorter steps span. */
static bool may_overlap(const box_strides *s) {
    stride_loop sorted[DCP_MAX_DIMS];
    uint64_t span = s->run_bytes;
    memcpy(sorted, s->loop, s->dims * sizeof *sorted);
    qsort(sorted, s->dims, sizeof *sorted, by_size);
    for (uint32_t d = 0; d < s->dims; d++) {
        if (size_of_stride(sorted[d].stride) < span) return true;
        span += (sorted[d].count - 1) * size_of_stride(sorted[d].stride);
    }
    return false;
}

bool core_strides_merge(uint32_t ndim, uint64_t elem_bytes, const uint64_t *count,
                        const int64_t *strides, const void *data, box_strides *out) {
    *out = (box_strides){.run_bytes = elem_bytes};
    for (uint32_t d = ndim; d-- > 0;) {
        stride_loop *inner = out->dims ? &out->loop[out->dims - 1] : NULL;
        int64_t span;
        if (count[d] == 1) continue;
        if (!inner && strides[d] == (int64_t)out->run_bytes)
            out->run_bytes *= count[d];
        else if (inner && !__builtin_mul_overflow(inner->stride, inner->count, &span) &&
                 strides[d] == span)
            inner->count *= count[d];
        else
            out->loop[out->dims++] = (stride_loop){count[d], strides[d]};
    }
    if (!has_addresses(out, data)) return false;
    out->overlaps = may_overlap(out);
    for (uint32_t d = 1; d < out->dims; d++)
        if (size_of_stride(out->loop[d].stride) < size_of_stride(out->loop[out->near].stride))
            out->near = d;
    if (out->run_bytes > TILE_BYTES / 2) out->near = 0;
    return true;
}

/* The run that a walk has reached. */
typedef struct box_walk {
    const box_strides *strides;
    unsigned char *memory; /* the run's address */
    uint64_t index[DCP_MAX_DIMS];
    unsigned char *dense; /* the run's place in the dense buffer */
    bool to_memory;
} box_walk;

static unsigned char *set_walk(box_walk *w, const void *data, const box_strides *s, uint64_t run) {
    w->strides = s;
    w->memory = (unsigned char *)data;
    for (uint32_t d = 0; d < s->dims; d++) {
        w->index[d] = run % s->loop[d].count;
        run /= s->loop[d].count;
        w->memory += (int64_t)w->index[d] * s->loop[d].stride;
    }
    return w->memory;
}

/* Advances n steps in dimension d, at most to its end; there it carries over into the next
 * dimension. */
static void advance(box_walk *w, uint32_t d, uint64_t n) {
    const box_strides *s = w->strides;
    w->memory += (int64_t)n * s->loop[d].stride;
    w->index[d] += n;
    for (; w->index[d] == s->loop[d].count; d++) {
        w->memory -= (int64_t)s->loop[d].count * s->loop[d].stride;
        w->index[d] = 0;
        if (d + 1 == s->dims) return; /* all runs are done */
        w->memory += s->loop[d + 1].stride;
        w->index[d + 1]++;
    }
}

#define COPY_EACH(bytes)                                                                           \
    case bytes:                                                                                    \
        for (int64_t i = 0; i < n; i++) memcpy(to + i * to_stride, from + i * from_stride, bytes); \
        break

/* Copies n runs. They are from_stride apart in the source, and to_stride apart in the destination.
 */
static void copy_runs(unsigned char *to, int64_t to_stride, const unsigned char *from,
                      int64_t from_stride, uint64_t run_bytes, int64_t n) {
    switch (run_bytes) {
        COPY_EACH(1);
        COPY_EACH(2);
        COPY_EACH(4);
        COPY_EACH(8);
        COPY_EACH(16);
    default:
        for (int64_t i = 0; i < n; i++)
            memcpy(to + i * to_stride, from + i * from_stride, run_bytes);
    }
}

/* Returns the number of runs of a block: the runs of all loops inside `near`. */
static uint64_t block_of(const box_strides *s) {
    uint64_t runs = 1;
    for (uint32_t d = 0; d < s->near; d++) runs *= s->loop[d].count;
    return runs;
}

static bool is_at_block(const box_walk *w) {
    for (uint32_t d = 0; d < w->strides->near; d++)
        if (w->index[d]) return false;
    return true;
}

/* If runs are closest to each other along a loop other than the innermost, blocks share cache
 * lines. Copies as many blocks as share the same lines, so each line is fetched only once. Returns
 * the number of blocks. */
static uint64_t copy_blocks(box_walk *w, uint64_t most, uint64_t block) {
    const box_strides *s = w->strides;
    const stride_loop *near = &s->loop[s->near];
    const int64_t run = (int64_t)s->run_bytes, apart = (int64_t)block * run;
    const uint64_t n = core_min_u64(
        most, core_min_u64(near->count - w->index[s->near], TILE_BYTES / s->run_bytes));
    unsigned char *dense = w->dense;
    for (uint64_t i = 0; i < block; i++, dense += run) {
        if (w->to_memory)
            copy_runs(w->memory, near->stride, dense, apart, s->run_bytes, (int64_t)n);
        else
            copy_runs(dense, apart, w->memory, near->stride, s->run_bytes, (int64_t)n);
        advance(w, 0, 1);
    }
    advance(w, s->near, n - 1); /* the loop has advanced one step in that dimension */
    w->dense += (int64_t)n * apart;
    return n;
}

/* Copies some of the next `most` runs: the rest of the innermost loop, or some blocks. Returns the
 * number of runs. */
static uint64_t copy_some(box_walk *w, uint64_t most) {
    const box_strides *s = w->strides;
    const int64_t run = (int64_t)s->run_bytes, stride = s->loop[0].stride;
    if (s->near && is_at_block(w)) {
        const uint64_t block = block_of(s);
        if (most >= 2 * block) return block * copy_blocks(w, most / block, block);
    }
    const uint64_t n = core_min_u64(most, s->loop[0].count - w->index[0]);
    if (w->to_memory)
        copy_runs(w->memory, stride, w->dense, run, s->run_bytes, (int64_t)n);
    else
        copy_runs(w->dense, run, w->memory, stride, s->run_bytes, (int64_t)n);
    w->dense += (int64_t)n * run;
    advance(w, 0, n);
    return n;
}

/* Copies bytes [at, at + bytes) of the run. */
static void copy_within(box_walk *w, uint64_t at, uint64_t bytes) {
    if (w->to_memory)
        memcpy(w->memory + at, w->dense, bytes);
    else
        memcpy(w->dense, w->memory + at, bytes);
    w->dense += bytes;
}

static void walk(box_walk *w, const void *data, const box_strides *s, uint64_t offset,
                 uint64_t bytes) {
    const uint64_t run = s->run_bytes, at = offset % run;
    set_walk(w, data, s, offset / run);
    if (at) {
        const uint64_t head = core_min_u64(run - at, bytes);
        copy_within(w, at, head);
        advance(w, 0, 1);
        bytes -= head;
    }
    for (uint64_t runs = bytes / run; runs;) runs -= copy_some(w, runs);
    if (bytes % run) copy_within(w, 0, bytes % run);
}

unsigned char *core_strides_find(const void *data, const box_strides *strides, uint64_t offset,
                                 uint64_t *contiguous) {
    box_walk w;
    *contiguous = UINT64_MAX;
    if (!strides) return (unsigned char *)data + offset;
    const uint64_t run = strides->run_bytes, at = offset % run;
    *contiguous = run - at;
    return set_walk(&w, data, strides, offset / run) + at;
}

void core_strides_get(const void *data, const box_strides *strides, uint64_t offset, uint64_t bytes,
                      void *out) {
    box_walk w = {.dense = out};
    if (strides)
        walk(&w, data, strides, offset, bytes);
    else
        memcpy(out, (const unsigned char *)data + offset, bytes);
}

void core_strides_put(void *data, const box_strides *strides, uint64_t offset, uint64_t bytes,
                      const void *from) {
    box_walk w = {.dense = (unsigned char *)from, .to_memory = true};
    if (strides)
        walk(&w, data, strides, offset, bytes);
    else
        memcpy((unsigned char *)data + offset, from, bytes);
}

/* If blocks share cache lines, allocates a larger buffer, in which several blocks, up to `bytes`
 * bytes, are gathered together for a checksum. NULL: the caller uses its small buffer. */
static unsigned char *room_for_rows(const box_strides *s, uint64_t bytes, uint64_t *room) {
    unsigned char *rows =
        s && s->near && bytes > *room ? malloc(core_min_u64(bytes, ROWS_BYTES)) : NULL;
    if (rows) *room = ROWS_BYTES;
    return rows;
}

uint64_t core_strides_sum(uint64_t raw, const void *data, const box_strides *strides,
                          uint64_t offset, uint64_t bytes) {
    unsigned char small[PART_BYTES];
    uint64_t room = sizeof small;
    unsigned char *rows = room_for_rows(strides, bytes, &room), *gathered = rows ? rows : small;
    for (uint64_t part; bytes; offset += part, bytes -= part) {
        uint64_t contiguous;
        const unsigned char *memory = core_strides_find(data, strides, offset, &contiguous);
        part = core_min_u64(contiguous, bytes);
        if (part < LONG_BYTES && part < bytes) {
            part = core_min_u64(room, bytes);
            core_strides_get(data, strides, offset, part, gathered);
            memory = gathered;
        }
        raw = core_crc64_raw(raw, memory, part);
    }
    free(rows);
    return raw;
}
