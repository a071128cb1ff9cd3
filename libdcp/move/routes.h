/* Who sends what to whom: the messages between sharing groups in each window, agreed on at once
 * before the first window.
 *
 * Of each pair of groups one rank on either side, its carrier, sends and takes for all of its
 * group. The carriers of a group are spread over its ranks. */
#pragma once

#include "move/domain.h"

/* In that window a group has so many bytes for another one's domains, or wants them. */
typedef struct move_talk {
    uint64_t window, bytes;
    uint64_t before; /* in the same message; 0 where each window has one */
} move_talk;

typedef struct move_talks {
    move_talk *list; /* ascending by window */
    size_t n;
} move_talks;

/* Another group that this rank is the carrier to. */
typedef struct move_partner {
    int group, rank;   /* rank: the carrier of the other group to this one */
    move_talks own;    /* what this group has in, or wants of, the other one's domains */
    move_talks theirs; /* the other way round */
} move_partner;

typedef struct move_routes {
    move_partner *partners; /* of this rank, by rank; only those that talk */
    int n_partners;
    int is_one_message;             /* to the file: it has what goes to a partner in all windows */
    uint64_t most_own, most_theirs; /* of a window, or of one message, together, at most */
    unsigned char *has_own,
        *has_theirs; /* of each window of the list: whether this group has any */
    uint64_t *parts; /* of each window, three: takes part, has own, has theirs; and one more. NULL
                       once the windows are listed */
    int status;      /* this rank's own; others learn of it at the end (move_routes_list) */
} move_routes;

/* A fragment in a message: a u32 where it lies in its window, a u32 how long it is; its bytes
 * follow. */
#define MOVE_HEAD_BYTES 8

/* Collective: chooses the windows' width, and fills in `routes`. `status` is this rank's so far.
 * *apart: whether this rank can read apart (domain.h); it becomes whether all do, and there are no
 * routes then. Else move_routes_list has to follow. */
int move_routes_agree(dcp_comm *comm, int status, const move_piece *pieces, size_t n, uint64_t end,
                      int to_file, int *apart, move_windows *w, dcp_error *err);
/* Collective: fills in `list`, and tells all ranks how they have fared; `status` is this rank's so
 * far, with that of its routes. */
int move_routes_list(dcp_comm *comm, move_windows *w, int status, dcp_error *err);
void move_routes_free(move_routes *t);
