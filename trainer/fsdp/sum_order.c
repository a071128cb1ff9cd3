#include "fsdp/sum_order.h"

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Additions that one micro-batch may go through: the square of its error. */
static uint64_t additions(fsdp_sum_order o, uint64_t n) {
    return o.small + o.large / o.small + n / o.large;
}

/* n is a power of two times `odd`. */
static fsdp_sum_order shortest_rows(uint64_t odd, uint64_t n) {
    fsdp_sum_order best = {odd, n};
    for (uint64_t large = n; large >= odd; large = large % 2 ? 0 : large / 2)
        for (uint64_t small = large; small >= odd; small = small % 2 ? 0 : small / 2) {
            const fsdp_sum_order o = {small, large};
            if (additions(o, n) < additions(best, n)) best = o;
        }
    return best;
}

fsdp_sum_order fsdp_sum_order_of(uint64_t n) {
    uint64_t odd = n, power = 1;
    if (n == 0) return (fsdp_sum_order){1, 1};
    while (odd % 2 == 0) odd /= 2;
    if (odd <= FSDP_ODD_BLOCK) return shortest_rows(odd, n);
    while (power < n) power *= 2;
    return shortest_rows(1, power);
}

fsdp_sum_order fsdp_sum_order_running(void) { return (fsdp_sum_order){UINT64_MAX, UINT64_MAX}; }

/* The block that a sum of n micro-batches is a part of. */
static uint64_t block_over(const fsdp_sum_order *o, uint64_t n) {
    if (n < o->small) return o->small;
    return n < o->large ? o->large : UINT64_MAX;
}

int fsdp_sum_order_joins(const fsdp_sum_order *o, fsdp_part older, fsdp_part newer) {
    const uint64_t block = block_over(o, newer.n);
    return older.first % block == 0 && older.first / block == newer.first / block;
}

fsdp_part fsdp_sum_order_part(const fsdp_sum_order *o, uint64_t first, uint64_t end) {
    const struct {
        uint64_t block, of;
    } rows[] = {{UINT64_MAX, o->large}, {o->large, o->small}, {o->small, 1}};
    for (int i = 0; i < 3; i++) {
        const uint64_t n = least(end - first, rows[i].block);
        if (first % rows[i].block == 0 && n >= rows[i].of)
            return (fsdp_part){first, n - n % rows[i].of};
    }
    return (fsdp_part){first, 1};
}

uint64_t fsdp_sum_order_parts(const fsdp_sum_order *o, uint64_t first, uint64_t end) {
    uint64_t n = 0;
    for (; first < end; n++) first += fsdp_sum_order_part(o, first, end).n;
    return n;
}
