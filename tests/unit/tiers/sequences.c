/* Random sequences of events for a list of stores, beside a model of it in memory: synchronous and
 * asynchronous saves, loads, going back, damage, lost directories, kills, restarts. After each
 * event, and after each restart, every store holds what the model predicts.
 *   tiers_sequences [SEQUENCES [SEED [DIR]]]
 * With DCP_RANKS=threads ranks are threads of this process, and none is killed. A failure prints
 * the seed and what was done; the seed gives the same sequence again, except for the moment of a
 * kill. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/directory.h"
#include "tiers/world.h"

static const char *const act_names[] = {"open",   "wait",   "async", "now", "again",
                                        "newest", "step",   "peek",  "ask", "damage",
                                        "lose",   "settle", "close"};

/* ---- what is done next, on rank 0 */

static int is_there_after_all(const world *w, unsigned i, unsigned step) {
    model later = w->m;
    model_wait(&later);
    model_settle(&later);
    return model_is_whole(&later.t[i].copies[step]);
}

/* Chooses a complete copy, as it will be when everything in progress has ended. Returns 0 if none
 * is found. */
static int choose_copy(world *w, order *o) {
    for (int i = 0; i < 20; i++) {
        o->tier = world_below(w, (unsigned)w->m.tiers);
        o->step = 1 + world_below(w, MODEL_STEPS);
        const model_copy *c = &w->m.t[o->tier].copies[o->step];
        o->value = c->value;
        if (model_is_whole(c) && c->value != MODEL_ANY && is_there_after_all(w, o->tier, o->step))
            return 1;
    }
    return 0;
}

static void choose_save(world *w, order *o) {
    if (o->what == AGAIN) {
        o->step = w->step, o->value = w->value;
    } else {
        o->step = w->step += 1 + (unsigned)world_chance(w, 15);
        o->value = w->value = ++w->values;
    }
    o->also_last = o->what != ASYNC && world_chance(w, 60);
    w->may_repeat = 1;
}

/* Applies the order to the model; `o` is complete only afterwards. */
static void apply(world *w, model *m, order *o) {
    const unsigned bit = m->t[o->tier].is_private ? 1u << o->node : 1;
    switch (o->what) {
    case WAIT:
        o->fails = model_wait(m);
        break;
    case ASYNC:
        o->fails = model_save_async(m, o->step, o->value);
        break;
    case NOW:
    case AGAIN:
        o->fails = model_save(m, o->step, o->value, o->also_last);
        break;
    case NEWEST:
        o->step = model_load(m, &o->tier, &o->value);
        model_continue_from(m, o->step);
        break;
    case STEP:
        model_continue_from(m, o->step); /* fall through */
    case PEEK:
        if (o->marks) model_mark(m, (int)o->tier, o->step);
        break;
    case ASK:
        m->t[o->tier].asked = 1;
        break;
    case DAMAGE:
        m->t[o->tier].copies[o->step].bad |= bit;
        break;
    case LOSE:
        model_lose(m, (int)o->tier, -1, 1);
        break;
    case SETTLE:
        model_end_fillings(m);
        break;
    case CLOSE:
        model_close(m);
        break;
    case OPEN:
    case ACTS:
        break;
    }
    (void)w;
}

/* Records, before anything is done, all states that a kill may leave. */
static void note_bounds(world *w) {
    const int which = !atomic_load(&w->which);
    model m = w->m;
    order o = w->o;
    w->before[which].m = m;
    model_begin_bounds(&m, &w->before[which].bounds);
    apply(w, &m, &o);
    model_wait(&m);
    model_settle(&m);
    model_end_bounds();
    atomic_store(&w->which, which);
}

/* Returns true if a filling fails: once it has, its store is due for the next save, whichever that
 * is. */
static int has_gone(const model *m) {
    int any = 0;
    for (int i = 0; i < m->tiers; i++) any |= m->t[i].gone;
    return any;
}

static int needs_quiet(const world *w, act what) {
    if (what == NEWEST || what == DAMAGE || what == LOSE || what == SETTLE) return 1;
    if (what == ASYNC && has_gone(&w->m)) return 1;
    return w->is_calm && (what == ASYNC || what == NOW || what == AGAIN || what == STEP);
}

static int is_filled(const model *m) {
    int any = 0;
    for (int i = 0; i < m->tiers; i++) any |= m->t[i].filled && !m->t[i].has_ended;
    return any;
}

static int has_doubt(const model *m) {
    for (int i = 0; i < m->tiers; i++)
        for (int s = 1; s <= MODEL_STEPS; s++)
            if (m->t[i].copies[s].is == MODEL_MAYBE) return 1;
    return 0;
}

static act choose_act(world *w) {
    static const struct {
        act what;
        unsigned weight;
    } odds[] = {{ASYNC, 36}, {WAIT, 14}, {NOW, 10},   {AGAIN, 7}, {STEP, 10},  {PEEK, 3},
                {NEWEST, 4}, {ASK, 4},   {DAMAGE, 4}, {LOSE, 2},  {SETTLE, 6}, {CLOSE, 0}};
    if (--w->acts <= 0 || w->step + 2 > MODEL_STEPS) return CLOSE;
    unsigned at = world_below(w, 100), i = 0;
    while (at >= odds[i].weight) at -= odds[i++].weight;
    return odds[i].what;
}

/* Returns true if there is anything of that kind to do. */
static int complete_order(world *w, order *o) {
    o->tier = world_below(w, (unsigned)w->m.tiers);
    switch (o->what) {
    case AGAIN:
        if (!w->step || !w->may_repeat) return 0; /* fall through */
    case ASYNC:
    case NOW:
        choose_save(w, o);
        return 1;
    case STEP:
    case PEEK:
        if (!choose_copy(w, o)) return 0;
        o->marks = world_chance(w, 60);
        if (o->what == PEEK) w->may_repeat &= !o->marks;
        if (o->what == STEP) w->step = o->step, w->value = o->value, w->may_repeat = 1;
        return 1;
    case DAMAGE:
        o->node = world_below(w, (unsigned)w->m.ranks);
        if (!choose_copy(w, o)) return 0;
        if (!w->m.t[o->tier].is_private && !w->m.t[o->tier].is_sharded) o->node = 0;
        return 1;
    case LOSE:
        return w->m.tiers > 1 && !w->m.t[o->tier].gone;
    default:
        return 1;
    }
}

static void next_order(world *w) {
    order *o = &w->o;
    for (int found = 0; !found;) {
        if (w->next == ACTS) w->next = choose_act(w);
        *o = (order){.what = w->next};
        if (needs_quiet(w, o->what) && w->m.flies)
            o->what = WAIT;
        else if (needs_quiet(w, o->what) && (is_filled(&w->m) || has_doubt(&w->m)))
            o->what = SETTLE;
        else
            w->next = ACTS;
        found = complete_order(w, o);
    }
    note_bounds(w);
    apply(w, &w->m, o);
    world_tell(w, "%s step %u value %u store %u node %u last %d marks %d -> %d\n",
               act_names[o->what], o->step, o->value, o->tier, o->node, o->also_last, o->marks,
               o->fails);
    if (o->what == NEWEST) w->may_repeat = 1;
}

/* ---- comparing what is found with the model, on rank 0 */

static void compare(world *w) {
    for (int i = 0; i < w->m.tiers; i++)
        for (unsigned s = 1; s <= MODEL_STEPS; s++) {
            model_copy *c = &w->m.t[i].copies[s];
            const int seen = w->observed[i][s];
            if (c->is == MODEL_MAYBE) c->is = seen ? MODEL_THERE : MODEL_ABSENT;
            if (c->is == MODEL_ABSENT) *c = (model_copy){MODEL_ABSENT, 0, 0, 0};
            if (model_is_whole(c) && c->value == MODEL_ANY && seen > 0)
                c->value = (unsigned)seen - 1;
            const int expected = c->is == MODEL_ABSENT ? 0
                                 : model_is_whole(c)   ? (int)c->value + 1
                                                       : -1;
            if (seen != expected)
                world_fail(w, "store %d, step %u: %d, not %d (value + 1; 0: none, -1: damaged)", i,
                           s, seen, expected);
        }
}

/* The nodes that have no folder of the step. */
static unsigned find_lost(const world *w, int i, unsigned step) {
    char path[512], folder[600];
    struct stat st;
    unsigned lost = 0;
    for (int r = 0; r < (w->m.t[i].is_private ? w->m.ranks : 1); r++) {
        world_name_tier(w, (unsigned)i, r, path, sizeof path);
        snprintf(folder, sizeof folder, "%s/step-%08u", path, step);
        if (stat(folder, &st)) lost |= 1u << r;
    }
    return lost;
}

static int is_among(const uint16_t *values, unsigned value) {
    for (int k = 0; k < MODEL_VALUES; k++)
        if (values[k] == value || values[k] == MODEL_ANY) return 1;
    return 0;
}

/* After a kill the model adopts what exists, if that is possible. */
static void adopt(world *w) {
    const model_bounds *b = &w->before[atomic_load(&w->which)].bounds;
    const model *before = &w->before[atomic_load(&w->which)].m;
    model_free_described(&w->m);
    for (int i = 0; i < w->m.tiers; i++)
        for (unsigned s = 1; s <= MODEL_STEPS; s++) {
            const model_copy *old = &before->t[i].copies[s];
            const uint16_t *values = b->values[i][s];
            const int seen = w->observed[i][s];
            model_copy *c = &w->m.t[i].copies[s];
            const unsigned bad = old->bad | c->bad;
            *c = (model_copy){MODEL_ABSENT, 0, 0, 0};
            if (!seen && b->stays[i][s])
                world_fail(w, "store %d, step %u is gone after a kill", i, s);
            if (!seen) continue;
            if (!values[0]) world_fail(w, "store %d, step %u is there after a kill", i, s);
            if (seen > 0 && !is_among(values, (unsigned)seen - 1))
                world_fail(w, "store %d, step %u has value %d after a kill", i, s, seen - 1);
            c->is = MODEL_THERE;
            c->value = seen > 0 ? (unsigned)seen - 1 : values[1] ? MODEL_ANY : values[0];
            if (seen > 0) continue;
            c->lost = find_lost(w, i, s);
            c->bad = (bad | old->lost) & ~c->lost;
            if (!c->lost && !c->bad) world_fail(w, "store %d, step %u is damaged by a kill", i, s);
        }
}

/* The file that was loaded shows what the model could not know. */
static void learn(world *w, const player *p) {
    if (w->o.what != NEWEST) return;
    w->step = w->o.step;
    if (w->o.step && w->o.value == MODEL_ANY)
        w->m.t[w->o.tier].copies[w->o.step].value = (unsigned)p->own[0] / 1000;
    w->value = w->o.step ? w->m.t[w->o.tier].copies[w->o.step].value : 0;
}

static void look(player *p) {
    world *w = p->w;
    player_observe(p);
    ranks_meet(w->r);
    if (p->rank == 0 && w->was_killed)
        adopt(w);
    else if (p->rank == 0)
        compare(w);
    if (p->rank == 0) w->was_killed = 0;
    ranks_meet(w->r);
}

static void play(int rank, dcp_comm *comm, void *ctx) {
    world *w = ctx;
    player p = {.w = w, .rank = rank, .comm = comm};
    act what;
    player_begin(&p);
    if (rank == 0) w->next = NEWEST;
    do {
        ranks_meet(w->r);
        what = w->o.what;
        const int status = player_act(&p);
        if ((status != DCP_OK) != w->o.fails)
            world_fail(w, "rank %d: status %d: %s", rank, status, status ? p.err.message : "");
        if (what == NOW || what == AGAIN) player_check_has(&p);
        ranks_meet(w->r);
        if (rank == 0) learn(w, &p);
        if (what == OPEN || what == SETTLE) look(&p);
        if (rank == 0 && what != CLOSE) next_order(w);
    } while (what != CLOSE);
    player_end(&p);
}

/* ---- a sequence */

static void choose_tier(world *w, model_tier *t) {
    t->every = world_below(w, 4);
    t->keep = world_below(w, 4);
    t->is_private = world_chance(w, 60);
    t->is_sharded = t->is_private || world_chance(w, 40);
    if (!t->is_private || w->m.ranks < 2 || world_chance(w, 25)) return;
    t->redundancy = (model_redundancy)(1 + world_below(w, w->m.ranks > 2 ? 3 : 2));
}

/* Removes directories between two starts; those of a single node only if the result can be
 * predicted. */
static void lose_closed(world *w) {
    const unsigned i = world_below(w, (unsigned)w->m.tiers);
    const model_tier *t = &w->m.t[i];
    int node =
        t->is_private && world_chance(w, 70) ? (int)world_below(w, (unsigned)w->m.ranks) : -1;
    for (int s = 1; s <= MODEL_STEPS; s++)
        if (t->redundancy == MODEL_PARTNER && (t->copies[s].lost | t->copies[s].bad)) node = -1;
    world_lose(w, i, node);
    model_lose(&w->m, (int)i, node, 0);
    world_tell(w, "lost: store %u node %d\n", i, node);
}

static void start(world *w, int acts, int by_threads) {
    w->acts = acts;
    w->kills = !by_threads && acts && world_chance(w, 50);
    w->kill_rank = (int)world_below(w, (unsigned)w->m.ranks);
    w->kill_act = acts - (int)world_below(w, (unsigned)acts + 1);
    w->kill_after = (int)world_below(w, 24);
    world_tell(w, "start: %d acts, kills %d\n", acts, w->kills);
    w->o = (order){.what = OPEN};
    if (!w->was_killed) note_bounds(w);
    if (by_threads)
        ranks_run_threads(w->r, play, w);
    else
        w->was_killed |= ranks_run_processes(w->r, play, w);
    if (!w->was_killed && acts && world_chance(w, 30)) lose_closed(w);
}

static void run_sequence(uint64_t seed, const char *root, int by_threads) {
    const int n = 1 + (int)(seed % RANKS_MOST);
    ranks *r = ranks_make(n, sizeof(world));
    world *w = ranks_shared(r);
    w->r = r, w->seed = seed, w->random = (seed + 1) * 0x9e3779b97f4a7c15u, w->next = ACTS;
    for (int i = 0; i < 8; i++) world_below(w, 2);
    snprintf(w->root, sizeof w->root, "%s/tiers-%ld", root, (long)getpid());
    store_directory_remove(AT_FDCWD, w->root);
    mkdir(w->root, 0700);
    w->m.ranks = n;
    w->m.tiers = 1 + (int)world_below(w, 3) % MODEL_TIERS;
    w->is_calm = world_chance(w, 50);
    world_tell(w, "%d ranks, %s\n", n, w->is_calm ? "calm" : "busy");
    for (int i = 0; i < w->m.tiers; i++) {
        model_tier *t = &w->m.t[i];
        choose_tier(w, t);
        world_tell(w, "store %d: every %u keep %u private %d sharded %d redundancy %d\n", i,
                   t->every, t->keep, t->is_private, t->is_sharded, (int)t->redundancy);
    }
    const int starts = 1 + (int)world_below(w, 3);
    for (int i = 0; i < starts; i++) start(w, 4 + (int)world_below(w, 20), by_threads);
    start(w, 0, by_threads);
    store_directory_remove(AT_FDCWD, w->root);
    ranks_free(r);
}

int main(int argc, char **argv) {
    const int n = argc > 1 ? atoi(argv[1]) : 20;
    const uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    const char *way = getenv("DCP_RANKS"), *root = argc > 3 ? argv[3] : "/dev/shm";
    const int by_threads = way && !strcmp(way, "threads");
    for (int i = 0; i < n; i++) run_sequence(first + (uint64_t)i, root, by_threads);
    printf("%d sequences from seed %llu, by %s: no difference\n", n, (unsigned long long)first,
           by_threads ? "threads" : "processes");
    return 0;
}
