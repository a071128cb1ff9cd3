/* A sequence of events for a list of stores: what its ranks share, and what each of them has. */
#pragma once

#include <stdatomic.h>

#include "dcp/tiers.h"
#include "support/ranks.h"
#include "tiers/model.h"

enum { TEXT_BYTES = 16384, PER_RANK = 97, FROZEN = 64 };

typedef enum act {
    OPEN,
    WAIT,
    ASYNC,
    NOW,
    AGAIN, /* a synchronous save of the step that is in memory */
    NEWEST,
    STEP, /* loaded by number */
    PEEK, /* the same, but the run does not continue from it */
    ASK,
    DAMAGE,
    LOSE, /* a store's directories, while the list is open */
    SETTLE,
    CLOSE,
    ACTS
} act;

typedef struct order {
    act what;
    unsigned step, value, tier, node;
    int also_last, marks, fails;
} order;

/* Shared by all ranks, and by the process that started them. */
typedef struct world {
    model m;
    struct {
        model m; /* before the current order */
        model_bounds bounds;
    } before[2];
    atomic_int which; /* which of the two is valid */
    order o;
    act next; /* to be done once nothing is in progress; ACTS: not chosen yet */
    uint64_t seed, random;
    unsigned step, value, values; /* in the ranks' memory; the largest value ever */
    int is_calm;                  /* fillings end before the next save */
    int may_repeat;               /* the list knows which stores have the step */
    int kills, was_killed, acts;  /* acts: how many more until the close */
    int kill_rank, kill_after, kill_act;
    char root[256], text[TEXT_BYTES];
    size_t used;
    ranks *r;
    int observed[MODEL_TIERS][MODEL_STEPS + 1]; /* value + 1; 0: no such step; -1: damaged */
} world;

typedef struct player {
    world *w;
    int rank;
    dcp_comm *comm;
    dcp_state *state;
    float *own, frozen[FROZEN];
    char paths[MODEL_TIERS][512];
    dcp_tier list[MODEL_TIERS];
    dcp_tiers *tiers;
    int waited; /* what the thread that waited for a save has returned */
    dcp_error err;
} player;

/* Records a line that is printed after a failure. */
void world_tell(world *w, const char *fmt, ...);
/* Ends the process, and thereby the test. */
void world_fail(world *w, const char *fmt, ...);
/* Random: a number less than n; 1 with a probability of `percent` / 100, otherwise 0. */
unsigned world_below(world *w, unsigned n);
int world_chance(world *w, unsigned percent);
/* The first writes the path of the node's directory of store i. The second removes this directory
 * or, if node is -1, the directories of all nodes. */
void world_name_tier(const world *w, unsigned i, int node, char *path, size_t size);
void world_lose(const world *w, unsigned i, int node);

void player_begin(player *p);
void player_end(player *p);
/* Executes the world's order. Returns a status. */
int player_act(player *p);
/* Collective. Records in w->observed what can be loaded from each store, without rebuilding
 * anything. */
void player_observe(player *p);
/* Checks that, after a synchronous save, the list knows which stores have the step. */
void player_check_has(player *p);
