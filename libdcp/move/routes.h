/* Routes: which rank sends how much to which rank of another sharing group in each window. The
 * ranks agree on the routes of all windows before the first window.
 *
 * For each pair of groups, one rank on each side, the carrier, sends and receives for its whole
 * group. The carriers of a group are spread over its ranks. */
#pragma once

#include <stdbool.h>

#include "move/domain.h"

/* The number of bytes that a group has for, or needs from, the domains of another group in one
 * window. */
typedef struct move_flow {
    uint64_t window, bytes;
    uint64_t before; /* bytes of earlier windows in the same message */
} move_flow;

typedef struct move_flows {
    move_flow *list; /* ascending by window */
    size_t n;
} move_flows;

/* Another group, to which this rank is the carrier. */
typedef struct move_partner {
    int group, rank;   /* rank: the other group's carrier to this group */
    move_flows own;    /* what this group has in, or needs from, the other group's domains */
    move_flows theirs; /* what the other group has in, or needs from, this group's domains */
} move_partner;

typedef struct move_routes {
    move_partner *partners; /* the partners with which this rank exchanges bytes, sorted by rank */
    int n_partners;
    bool is_one_message; /* if moving to a file: one message per partner for all windows */
    /* The number of bytes in all partners' `own` together, and in all partners' `theirs` together:
     * the maximum over the windows or, if is_one_message, the sum over the windows. */
    uint64_t most_own, most_theirs;
    /* per window of the list: whether a partner's `own`, or its `theirs`, includes the window */
    unsigned char *has_own, *has_theirs;
    /* Flags that move_routes_list combines over the group's ranks, or over all ranks: three for
     * each window (whether any of these ranks takes part, has_own, has_theirs), and a last one that
     * says whether any rank has failed. NULL once the windows are listed. */
    uint64_t *parts;
    int status; /* this rank's status; other ranks learn of it in move_routes_list */
} move_routes;

/* The size of the head that precedes a fragment's bytes in a message: a u32 with the fragment's
 * offset in the receiving group's domains of the window, and a u32 with its length. */
#define MOVE_HEAD_BYTES 8

/* Chooses the windows' width, and fills in `routes`. Collective. `status` is this rank's status so
 * far. Before the call, *independent says whether this rank can read independently (domain.h). The
 * call sets it to 1 if all ranks can, and to 0 otherwise. If it is then 0, move_routes_list must
 * follow; if it is 1, there are no routes. */
int move_routes_agree(dcp_comm *comm, int status, const move_piece *pieces, size_t n, uint64_t end,
                      int to_file, int *independent, move_windows *w, dcp_error *err);
/* Fills in w->list, and makes all ranks agree on the status. Collective. `status` is this rank's
 * status so far, which includes routes->status. */
int move_routes_list(dcp_comm *comm, move_windows *w, int status, dcp_error *err);
void move_routes_free(move_routes *t);
