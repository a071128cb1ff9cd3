#include "launcher/hosts/placing.h"

static int at_most(int value, int limit) { return value < limit ? value : limit; }
static int at_least(int value, int limit) { return value > limit ? value : limit; }

int launcher_placing_lowest(const launcher_cluster *c) { return at_least(c->options.min, 1); }
int launcher_placing_shrinks(const launcher_cluster *c) {
    return c->options.on_failure == LAUNCHER_ON_FAILURE_SHRINK;
}

int launcher_placing_slots(const launcher_cluster *c) {
    int slots = 0;
    for (size_t i = 0; i < c->n; i++) slots += c->at[i].slots;
    return slots;
}

/* Slots of a host that may be used at a level. */
int launcher_placing_usable_at(const launcher_cluster *c, const cluster_host *h, slot_level level) {
    if (level < h->level) return 0;
    const int taken = launcher_placing_shrinks(c) && level < LEVEL_TAKEN ? h->taken : 0;
    return at_least(h->slots - taken, 0);
}

int launcher_placing_usable(const launcher_cluster *c, slot_level level) {
    int slots = 0;
    for (size_t i = 0; i < c->n; i++) slots += launcher_placing_usable_at(c, &c->at[i], level);
    return slots;
}

/* One rank after the other, each to the first of the hosts that have least. */
static int add_evenly(launcher_cluster *c, slot_level level, int left) {
    for (; left > 0; left--) {
        cluster_host *least = NULL;
        for (size_t i = 0; i < c->n; i++) {
            cluster_host *h = &c->at[i];
            if (h->planned >= launcher_placing_usable_at(c, h, level)) continue;
            if (!least || h->planned < least->planned) least = h;
        }
        if (!least) break;
        least->planned++;
    }
    return left;
}

static int spread_ranks(launcher_cluster *c, slot_level level, int left) {
    for (size_t i = 0; i < c->n; i++) c->at[i].planned = 0;
    return add_evenly(c, level, left);
}

/* Every host keeps what it has, but those that have most where there are too many; the rest goes to
 * those that have least. */
static int keep_evenly(launcher_cluster *c, slot_level level, int left) {
    for (size_t i = 0; i < c->n; i++) {
        c->at[i].planned = at_most(c->at[i].used, launcher_placing_usable_at(c, &c->at[i], level));
        left -= c->at[i].planned;
    }
    for (; left < 0; left++) {
        cluster_host *most = &c->at[0];
        for (size_t i = 1; i < c->n; i++)
            if (c->at[i].planned > most->planned) most = &c->at[i];
        most->planned--;
    }
    return add_evenly(c, level, left);
}

/* Every host keeps what it has, so that a change of some hosts moves no rank of others without
 * need; then the rest goes where there is room, in the order of the list. */
static int keep_ranks(launcher_cluster *c, slot_level level, int left) {
    for (size_t i = 0; i < c->n; i++) {
        cluster_host *h = &c->at[i];
        h->planned = at_most(at_most(h->used, launcher_placing_usable_at(c, h, level)), left);
        left -= h->planned;
    }
    for (size_t i = 0; i < c->n; i++) {
        cluster_host *h = &c->at[i];
        const int more = at_most(launcher_placing_usable_at(c, h, level) - h->planned, left);
        h->planned += more;
        left -= more;
    }
    return left;
}

/* Fills in `planned`. Returns how many ranks there are. */
int launcher_placing_ranks(launcher_cluster *c) {
    const int goal = at_most(c->goal, launcher_placing_slots(c));
    const int need = launcher_placing_shrinks(c) ? at_most(launcher_placing_lowest(c), goal) : goal;
    const int most = at_least(launcher_placing_shrinks(c) ? at_most(goal, c->most) : goal, need);
    const int want = at_most(most, c->refused_from - 1);
    slot_level level = LEVEL_SOUND;
    while (level < LEVEL_NO_ANSWER && launcher_placing_usable(c, level) < need) level++;
    int (*const distribute)(launcher_cluster *, slot_level, int) = c->spreads ? spread_ranks
                                                                   : c->options.evenly ? keep_evenly
                                                                                       : keep_ranks;
    return want - distribute(c, level, want);
}

int launcher_placing_differs(const launcher_cluster *c) {
    for (size_t i = 0; i < c->n; i++)
        if (c->at[i].planned != c->at[i].used) return 1;
    return 0;
}
