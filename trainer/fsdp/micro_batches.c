/* Arithmetic of micro-batches: every rank computes what every rank does. */
#include "fsdp/micro_batches.h"

static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }

static uint64_t common_divisor(uint64_t a, uint64_t b) { return b ? common_divisor(b, a % b) : a; }

/* Where all that ranks do once takes `each` micro-batches: whether a step consists of that. */
static int comes_out_even(const fsdp_micro_batches *l, uint64_t each) {
    return l->n > 0 && l->n % each == 0;
}

/* The longest block of the order that all ranks have equally many of. */
static uint64_t longest_block(const fsdp_micro_batches *l) {
    const uint64_t world = (uint64_t)l->world;
    if (comes_out_even(l, world * l->order.large)) return l->order.large;
    return comes_out_even(l, world * l->order.small) ? l->order.small : 1;
}

/* A group's runs are whole blocks of the order, each of which its ranks share, and all groups have
 * as many. Returns whether there are such runs. */
static int take_runs(fsdp_micro_batches *l, int group, uint64_t of, uint64_t block) {
    const uint64_t together = (uint64_t)group * block;
    const uint64_t blocks = together / common_divisor(of, together), run = blocks * of;
    if (blocks > FSDP_MOST_PARTS || !comes_out_even(l, (uint64_t)(l->world / group) * run))
        return 0;
    l->group = group;
    l->run = run;
    l->block = block;
    return 1;
}

static int form_groups(fsdp_micro_batches *l, fsdp_sum_strategy s) {
    const uint64_t sizes[] = {l->order.large, l->order.small, 1};
    for (int of = 0; of < 2; of++)
        for (int block = s.local ? of : 2; block < 3; block++)
            if (take_runs(l, s.group, sizes[of], sizes[block])) return 1;
    return 0;
}

fsdp_micro_batches fsdp_micro_batches_of(uint64_t n, int world, fsdp_sum_strategy s) {
    fsdp_micro_batches l = {.n = n, .world = world, .group = world, .block = 1};
    l.order = s.ring ? fsdp_sum_order_running() : fsdp_sum_order_of(n);
    if (s.group < world && !s.ring && form_groups(&l, s)) return l;
    if (s.local && world > 1)
        l.block = s.ring ? most(fsdp_micro_batches_steps(&l), 1) : longest_block(&l);
    l.run = (uint64_t)world * l.block;
    return l;
}

uint64_t fsdp_micro_batches_steps(const fsdp_micro_batches *l) {
    const uint64_t world = (uint64_t)l->world;
    return l->n / world + (l->n % world != 0);
}

static uint64_t steps_of_run(const fsdp_micro_batches *l) { return l->run / (uint64_t)l->group; }

fsdp_part fsdp_micro_batches_run(const fsdp_micro_batches *l, int rank, uint64_t micro) {
    const uint64_t groups = (uint64_t)(l->world / l->group), group = (uint64_t)(rank / l->group);
    return (fsdp_part){(micro / steps_of_run(l) * groups + group) * l->run, l->run};
}

int fsdp_micro_batches_end_run(const fsdp_micro_batches *l, uint64_t micro) {
    return (micro + 1) % steps_of_run(l) == 0;
}

uint64_t fsdp_micro_batch_of(const fsdp_micro_batches *l, int rank, uint64_t micro) {
    const uint64_t group = (uint64_t)l->group, place = (uint64_t)(rank % l->group);
    const uint64_t in_run = micro % steps_of_run(l), turn = in_run / l->block;
    const uint64_t batch = fsdp_micro_batches_run(l, rank, micro).first +
                           (turn * group + place) * l->block + in_run % l->block;
    return batch < l->n ? batch : l->n;
}

int fsdp_micro_batches_are_sent(const fsdp_micro_batches *l, uint64_t micro) {
    return (micro + 1) % l->block == 0;
}

fsdp_part fsdp_micro_batches_part(const fsdp_micro_batches *l, int rank, uint64_t micro) {
    if (!fsdp_micro_batches_are_sent(l, micro)) return (fsdp_part){l->n, 0};
    const uint64_t first = fsdp_micro_batch_of(l, rank, micro + 1 - l->block);
    return (fsdp_part){first, first < l->n ? l->block : 0};
}

uint64_t fsdp_micro_batches_senders(const fsdp_micro_batches *l, int rank, uint64_t micro) {
    const int first = rank / l->group * l->group;
    uint64_t n = 0;
    for (int r = first; r < first + l->group; r++) n += fsdp_micro_batches_part(l, r, micro).n > 0;
    return n;
}

/* Of `n` micro-batches from `first` on that come `each` at a time, before the last of them come. */
static uint64_t kept_between(const fsdp_micro_batches *l, uint64_t first, uint64_t n,
                             uint64_t each) {
    uint64_t kept = 0;
    for (uint64_t there = each; there < n; there += each)
        kept = most(kept, fsdp_sum_order_parts(&l->order, first, first + there));
    return kept;
}

/* All blocks are added up as the first one is. */
uint64_t fsdp_micro_batches_kept_local(const fsdp_micro_batches *l) {
    return kept_between(l, 0, l->block, 1);
}

uint64_t fsdp_micro_batches_kept(const fsdp_micro_batches *l) {
    const uint64_t together = (uint64_t)l->group * l->block;
    uint64_t kept = 0;
    if (l->group == l->world) return kept_between(l, 0, l->n, together);
    for (uint64_t first = 0; first < l->n; first += l->run)
        kept = most(kept, kept_between(l, first, l->run, together));
    return kept;
}

uint64_t fsdp_micro_batches_kept_across(const fsdp_micro_batches *l) {
    if (l->group == l->world) return 0;
    return kept_between(l, 0, l->n, (uint64_t)(l->world / l->group) * l->run);
}
