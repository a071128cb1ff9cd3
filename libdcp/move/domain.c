/* Computes where domains lie, and which aggregator has which domain. */
#include "move/domain.h"

#include <assert.h>
#include <stdbool.h>

#include "core/bytes.h"

static uint64_t longest_range(const move_windows *w, int ranks) {
    uint64_t longest = 0;
    for (int r = 0; r < ranks; r++)
        if (w->reader_ranges[r + 1] - w->reader_ranges[r] > longest)
            longest = w->reader_ranges[r + 1] - w->reader_ranges[r];
    return longest;
}

void move_windows_set_width(move_windows *w, int width, uint64_t end) {
    w->width = width;
    w->window_bytes = w->domain_bytes * (uint64_t)width;
    w->last = end ? (end - 1) / w->domain_bytes : 0;
    w->last_row = w->last - w->last % (uint64_t)w->n_aggregators;
    if (!w->last_row) w->last_row = UINT64_MAX;
    w->count = w->reader_ranges ? longest_range(w, w->n_aggregators) / w->domain_bytes + 1
                                : end / w->window_bytes + 1;
}

/* In the row of the last domain the turns are shifted, so the last domain belongs to the first
 * aggregator. The domains beyond that row are shifted as well: a window that is narrower than a row
 * may begin in one row and end in the next, and must not contain an aggregator twice. */
const move_aggregator *move_windows_aggregator(const move_windows *w, uint64_t domain) {
    assert(!w->reader_ranges && w->n_aggregators > 0);
    const uint64_t n = (uint64_t)w->n_aggregators;
    const uint64_t turn = domain % n;
    if (domain < w->last_row) return &w->aggregators[turn];
    if (domain == w->last) return &w->aggregators[0];
    const bool is_shifted = domain < w->last || domain >= w->last_row + n;
    return &w->aggregators[is_shifted ? (turn + 1) % n : turn];
}

move_domain move_windows_domain(const move_windows *w, uint64_t window, int i) {
    assert(i >= 0 && i < w->width);
    if (w->reader_ranges) {
        const uint64_t start = w->reader_ranges[i] + window * w->domain_bytes;
        return (move_domain){start, core_min_u64(start + w->domain_bytes, w->reader_ranges[i + 1]),
                             &w->aggregators[i]};
    }
    const uint64_t number = window * (uint64_t)w->width + (uint64_t)i;
    return (move_domain){number * w->domain_bytes, (number + 1) * w->domain_bytes,
                         move_windows_aggregator(w, number)};
}

bool move_windows_own(const move_windows *w, uint64_t window, int rank, move_domain *out) {
    for (int i = 0; i < w->width; i++) {
        *out = move_windows_domain(w, window, i);
        if (out->aggregator->rank == rank) return true;
    }
    return false;
}
