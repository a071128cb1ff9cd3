/* Nodes of a private store, and stores of a list, that are away while the run continues without
 * them, back from a step that they have, and return with what they had. However they come and go, a
 * restart loads the step that the run saved last. Ranks are threads, each with a node of its own.
 * The place of every node and of the shared store, which is the last one, has two directories, one
 * of which is away. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dcp/dcp.h"
#include "store/directory.h"
#include "support/ranks.h"

#include <fcntl.h>

enum { ELEMENTS = 64, LIMIT_S = 120, MOST_STEPS = 64 };

static char root[64] = "/dev/shm/dcp-returned-XXXXXX"; /* some thousand syncs */

/* What is done, by all ranks alike. */
typedef struct scene {
    const char *redundancy, *script;
    uint32_t keep;
    int turns;      /* of a random script */
    unsigned seed;  /* of a random script; 0: the script is given */
    int lost;       /* the number of nodes whose loss a step survives */
    int has_shared; /* the list also has a shared store */
    ranks *r;
} scene;

typedef struct player {
    const scene *scene;
    int rank, n;
    dcp_comm *comm;
    dcp_tiers *tiers;
    dcp_tier list[2];
    char path[128], shared[128];
    dcp_state *state;
    float memory[ELEMENTS];
    unsigned random;
    /* the run: the steps that count, ascending, and their values */
    uint64_t steps[MOST_STEPS];
    float values[MOST_STEPS];
    size_t n_steps, n_left; /* n_left: how many of them once the run that goes back has saved */
    float next_value;
    int away[RANKS_MOST + 1];     /* which of the two directories of a place is away */
    int knows[RANKS_MOST + 1][2]; /* it existed at the last save */
} player;

static _Noreturn void fail(const player *p, const char *what, const char *why) {
    fprintf(stderr, "returned.c: rank %d of %d, %s%s, keep %u, seed %u, \"%s\": %s: %s\n", p->rank,
            p->n, p->scene->redundancy, p->scene->has_shared ? " and shared" : "", p->scene->keep,
            p->scene->seed, p->scene->script, what, why);
    exit(1);
}

#define SUCCEEDS(call)                                                                             \
    do {                                                                                           \
        dcp_error error, *err = &error;                                                            \
        if (call) fail(p, #call, error.message);                                                   \
    } while (0)

static void meet(const player *p) { ranks_meet(p->scene->r); }

static int count_places(const player *p) { return p->n + p->scene->has_shared; }

static void open_list(player *p) {
    const size_t n = 1 + (size_t)p->scene->has_shared;
    if (!p->tiers) SUCCEEDS(dcp_tiers_open(p->comm, p->list, n, NULL, &p->tiers, err));
}

static void close_list(player *p) {
    p->n_left = p->n_steps;
    dcp_tiers_close(p->tiers);
    p->tiers = NULL;
    meet(p);
}

static void save(player *p, uint64_t step) {
    open_list(p);
    const float value = ++p->next_value;
    for (int i = 0; i < ELEMENTS; i++) p->memory[i] = value;
    SUCCEEDS(dcp_tiers_save(p->tiers, step, p->state, "{}", NULL, 0, NULL, err));
    p->n_steps = p->n_left;
    p->steps[p->n_steps] = step;
    p->values[p->n_steps++] = value;
    p->n_left = p->n_steps;
    for (int i = 0; i < count_places(p); i++)
        p->knows[i][!p->away[i]] = 1, p->knows[i][p->away[i]] = 0;
}

static void go_back(player *p, uint64_t step) {
    open_list(p);
    SUCCEEDS(dcp_tiers_continue_from(p->tiers, step, err));
    while (p->n_left && p->steps[p->n_left - 1] > step) p->n_left--;
}

static int load_state(void *ctx, dcp_checkpoint *ckpt, dcp_error *err) {
    return dcp_load(ckpt, ((player *)ctx)->state, NULL, err);
}

static void expect_last(player *p) {
    char said[256];
    uint64_t step = 0;
    open_list(p);
    memset(p->memory, 0, sizeof p->memory);
    SUCCEEDS(dcp_tiers_load(p->tiers, load_state, p, &step, err));
    const size_t last = p->n_steps - 1;
    for (int i = 0; i < ELEMENTS; i++) {
        if (step == p->steps[last] && p->memory[i] == p->values[last]) continue;
        snprintf(said, sizeof said, "step %llu with %g, not %llu with %g", (unsigned long long)step,
                 p->memory[i], (unsigned long long)p->steps[last], p->values[last]);
        fail(p, "the load", said);
    }
}

/* Older steps may be gone, but their numbers do not name other ones. */
static void expect_older(player *p) {
    char said[256];
    for (size_t i = 0; i + 1 < p->n_steps; i++) {
        dcp_error why;
        const int status = dcp_tiers_load_step(p->tiers, p->steps[i], load_state, p, &why);
        if (status || p->memory[0] == p->values[i]) continue;
        snprintf(said, sizeof said, "step %llu with %g, not %g", (unsigned long long)p->steps[i],
                 p->memory[0], p->values[i]);
        fail(p, "the load by number", said);
    }
}

static void name_place(char *path, size_t room, int place, int n) {
    if (place == n)
        snprintf(path, room, "%s/shared", root);
    else
        snprintf(path, room, "%s/node-%d", root, place);
}

/* Gives the place its other directory. */
static void swap_place(player *p, int place) {
    char here[128], other[160], between[160];
    close_list(p);
    name_place(here, sizeof here, place, p->n);
    snprintf(other, sizeof other, "%s.other", here);
    snprintf(between, sizeof between, "%s.between", here);
    if (p->rank == 0 && (rename(here, between) || rename(other, here) || rename(between, other)))
        fail(p, here, "can't be renamed");
    p->away[place] = !p->away[place];
    meet(p);
}

/* Flips a byte in the about.json of the step, which is in the directory of the last place that is
 * away. */
static void damage_about(player *p, uint64_t step) {
    char place[128], path[256];
    name_place(place, sizeof place, p->scene->has_shared ? p->n : 0, p->n);
    snprintf(path, sizeof path, "%s.other/step-%08llu/about.json", place, (unsigned long long)step);
    FILE *file = p->rank == 0 ? fopen(path, "r+") : NULL;
    if (p->rank == 0 && !file) fail(p, path, "can't be opened");
    if (file && (fseek(file, 20, SEEK_SET) || fputc('~', file) == EOF || fclose(file)))
        fail(p, path, "can't be changed");
    meet(p);
}

/* s3: save, c1: go back, a0: node 0 becomes the other one, L: a restart loads the last, d6: the
 * about.json of step 6 is damaged in the directory of the shared place, or of node 0, that is
 * away. */
static void act(player *p, char what, uint64_t number) {
    if (what == 'd') damage_about(p, number);
    if (what == 's') save(p, number);
    if (what == 'c') go_back(p, number);
    if (what == 'a') swap_place(p, (int)number);
    if (what == 'L') close_list(p), expect_last(p);
}

static unsigned below(player *p, unsigned limit) {
    p->random = p->random * 1103515245u + 12345u;
    return (p->random >> 16) % limit;
}

/* Returns true if the last step survives this change of places. */
static int survives(const player *p) {
    int strangers = 0;
    for (int i = 0; i < p->n; i++) strangers += !p->knows[i][!p->away[i]];
    const int is_shared = p->scene->has_shared && p->knows[p->n][!p->away[p->n]];
    return strangers <= p->scene->lost || is_shared;
}

static void play_at_random(player *p) {
    p->random = p->scene->seed;
    save(p, 1);
    for (int turn = 0; turn < p->scene->turns && p->n_steps + 4 < MOST_STEPS; turn++) {
        for (int i = 0; i < count_places(p); i++) {
            if (below(p, 3)) continue;
            p->away[i] = !p->away[i];
            const int is_possible = survives(p);
            p->away[i] = !p->away[i];
            if (is_possible) swap_place(p, i);
        }
        act(p, 'L', 0);
        expect_older(p);
        expect_last(p);
        const unsigned goes_back = below(p, 2);
        go_back(p, p->steps[goes_back ? below(p, (unsigned)p->n_steps) : p->n_steps - 1]);
        for (unsigned saves = below(p, 4); saves > 0; saves--)
            save(p, p->steps[p->n_left - 1] + 1 + below(p, 2));
    }
}

static void play(int rank, dcp_comm *comm, void *ctx) {
    const scene *s = ctx;
    player own = {.scene = s, .rank = rank, .comm = comm, .n = dcp_comm_size(comm)}, *p = &own;
    const dcp_tensor t = {"/model/w", DCP_F32, 1, {(uint64_t)ELEMENTS * (uint64_t)p->n}};
    const dcp_box box = dcp_box_chunk(&t, rank, p->n);
    for (int i = 0; i <= p->n; i++) p->away[i] = 1;
    SUCCEEDS(dcp_state_create(&p->state, err));
    SUCCEEDS(dcp_state_add(p->state, &t, &box, p->memory, err));
    name_place(p->path, sizeof p->path, rank, p->n);
    name_place(p->shared, sizeof p->shared, p->n, p->n);
    p->list[0] = (dcp_tier){.size = sizeof(dcp_tier),
                            .path = p->path,
                            .every = 1,
                            .keep = s->keep,
                            .is_private = 1,
                            .redundancy = s->redundancy};
    p->list[1] =
        (dcp_tier){.size = sizeof(dcp_tier), .path = p->shared, .every = 1, .keep = s->keep};
    for (const char *at = s->script; *at; at += strcspn(at, " ") + (strchr(at, ' ') != NULL))
        act(p, *at, strtoull(at + 1, NULL, 10));
    if (s->seed) play_at_random(p);
    close_list(p);
    dcp_state_destroy(p->state);
}

static void run(int n, scene s) {
    char dir[128];
    s.r = ranks_make(n, 0);
    if (mkdir(root, 0700)) abort();
    for (int i = 0; i <= n; i++) {
        name_place(dir, sizeof dir, i, n);
        if (mkdir(dir, 0700)) abort();
        strcat(dir, ".other");
        if (mkdir(dir, 0700)) abort();
    }
    alarm(LIMIT_S);
    ranks_run_threads(s.r, play, &s);
    alarm(0);
    ranks_free(s.r);
    if (store_directory_remove(AT_FDCWD, root)) abort();
}

static const struct {
    int n, lost;
    const char *redundancy;
    int has_shared;
} kinds[] = {{2, 1, "partner", 0}, {2, 1, "rs(1)", 0},   {4, 2, "rs(2)", 0}, {3, 1, "rs(1)", 0},
             {3, 1, "partner", 0}, {2, 1, "partner", 1}, {1, 0, "none", 1}};

static const char *const scripts[] = {
    "s3 a0 L c1 s3 a0 L L",            /* saved again */
    "s1 s3 a0 L c1 s2 a0 L",           /* set aside, not saved again */
    "s1 s3 a0 L c1 s2 L c2 a1 L a0 L", /* and by a node that is away itself */
    "s1 s3 a0 L c1 s3 a0 L c1 s3 L",
    "s3 a0 a1 c0 s1 a0 L", /* no node is left that knows the first save's number */
};

/* Most nodes return with the steps of an earlier run, but the later one is whole without them. */
static const char *const earlier_run = "s3 a0 a1 a2 c0 s1 a0 a1 L";

/* A place returns with steps from which the run went back, and the newest one's about.json is
 * damaged; then with one step only; then with a step of the run, which stays, also if it is the
 * first one after a restart. */
static const struct {
    size_t kind; /* of `kinds` */
    const char *script;
} damages[] = {{6, "s1 s2 s3 s4 s5 s6 a1 c2 s3 s4 d6 a1 L"},
               {6, "s6 a1 c2 s3 s4 d6 a1 L"},
               {0, "s1 s2 s3 s4 s5 s6 a0 c2 s3 s4 d6 a0 L"},
               {1, "s6 a0 c2 s3 s4 d6 a0 L"},
               {6, "s1 s4 c2 s3 s4 a1 s5 a1 a1 d4 a1 L"},
               {0, "s1 s4 c2 s3 s4 a0 d4 a0 L"},
               {6, "s1 s2 c2 s3 a1 d3 a1 L a0 L"}};

/* returned [FIRST COUNT]: runs random scripts of those seeds for each kind and each `keep`. Without
 * arguments, runs each script for every other kind and a short random one for each, with one `keep`
 * of the three. */
int main(int argc, char **argv) {
    const int is_whole = argc > 2;
    const unsigned first = is_whole ? (unsigned)strtoul(argv[1], NULL, 10) : 1;
    const unsigned count = is_whole ? (unsigned)strtoul(argv[2], NULL, 10) : 1;
    if (!mkdtemp(root) || rmdir(root)) return 1;
    for (size_t i = 0; !is_whole && i < sizeof damages / sizeof *damages; i++)
        run(kinds[damages[i].kind].n, (scene){.redundancy = kinds[damages[i].kind].redundancy,
                                              .lost = kinds[damages[i].kind].lost,
                                              .has_shared = kinds[damages[i].kind].has_shared,
                                              .script = damages[i].script});
    if (!is_whole) run(3, (scene){.redundancy = "rs(2)", .lost = 2, .script = earlier_run});
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        scene s = {.redundancy = kinds[k].redundancy,
                   .lost = kinds[k].lost,
                   .turns = is_whole ? 24 : 6,
                   .has_shared = kinds[k].has_shared};
        for (size_t i = 0; !is_whole && s.lost > 0 && i < sizeof scripts / sizeof *scripts; i++) {
            if ((k + i) % 2) continue;
            s.script = scripts[i];
            s.keep = (uint32_t)((k + i) % 3);
            run(kinds[k].n, s);
        }
        s.script = "";
        for (s.keep = 0; s.keep < 3; s.keep++) {
            if (!is_whole && s.keep != k % 3) continue;
            for (s.seed = first; s.seed < first + count; s.seed++) run(kinds[k].n, s);
        }
    }
    return 0;
}
