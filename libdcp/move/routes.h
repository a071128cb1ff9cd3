/* Which rank sends what to which: the messages between sharing groups in each window, agreed on
 * together before the first window.
 *
 * For each pair of groups, one rank on each side, the carrier, sends and receives for its whole
 * group. The carriers of a group are spread over its ranks. */
#pragma once

#include "move/domain.h"

/* How many bytes a group has for, or needs from, the domains of another group in one window. */
typedef struct move_talk {
    uint64_t window, bytes;
    uint64_t before; /* in the same message; 0 if each window has its own */
} move_talk;

typedef struct move_talks {
    move_talk *list; /* ascending by window */
    size_t n;
} move_talks;

/* Another group, to which this rank is the carrier. */
typedef struct move_partner {
    int group, rank;   /* rank: the carrier of the other group to this one */
    move_talks own;    /* what this group has in, or needs from, the other group's domains */
    move_talks theirs; /* the opposite */
} move_partner;

typedef struct move_routes {
    move_partner *partners; /* this rank's, sorted by rank; only those with traffic */
    int n_partners;
    int is_one_message;             /* to the file: a single message per partner for all windows */
    uint64_t most_own, most_theirs; /* maximum total per window, or of the single messages */
    unsigned char *has_own, *has_theirs; /* per window of the list: whether there are any */
    /* three per window: takes part, has own, has theirs; and one more. NULL once the windows are
     * listed */
    uint64_t *parts;
    int status; /* this rank's status; others find out at the end (move_routes_list) */
} move_routes;

/* The head of a fragment in a message: a u32 with its place in its window, a u32 with its length;
 * its bytes follow. */
#define MOVE_HEAD_BYTES 8

/* Chooses the windows' width, and fills in `routes`. Collective. `status` is this rank's so far.
 * *apart says whether this rank can read apart (domain.h), and afterwards whether all can; then
 * there are no routes. Otherwise move_routes_list must follow. */
int move_routes_agree(dcp_comm *comm, int status, const move_piece *pieces, size_t n, uint64_t end,
                      int to_file, int *apart, move_windows *w, dcp_error *err);
/* Fills in `list`, and lets all ranks agree on the status. Collective. `status` is this rank's so
 * far, including that of its routes. */
int move_routes_list(dcp_comm *comm, move_windows *w, int status, dcp_error *err);
void move_routes_free(move_routes *t);
