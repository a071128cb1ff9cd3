/* Windows that a caller keeps from one move to the next. Which windows there are, and which rank
 * sends what to which, depend on the pieces and on the ranks' hosts alone. So a save whose plan is
 * kept need not find that out again. */
#pragma once

#include "move/domain.h"

struct move_transfer;

/* Of the moves of equal pieces, one after the other. Zeroed: of none so far. */
typedef struct move_kept {
    int is_known;         /* there is something; the same on all ranks */
    uint64_t end, places; /* the addresses' end; a fingerprint of which ranks are together */
    move_windows windows;
} move_kept;

/* Not collective: whether the next move of such pieces over `comm` could use it. All ranks have to
 * agree on that (transfer.h). */
int move_kept_serves(const move_kept *kept, const dcp_comm *comm, uint64_t end);
void move_kept_free(move_kept *kept);

/* Collective, for the transfer: its windows, kept ones or new ones. */
int move_kept_take(const struct move_transfer *t, move_windows *out, dcp_error *err);
/* Not collective, at the end of the move: keeps them, where that is wanted and all ranks have found
 * theirs, or frees them. */
void move_kept_return(const struct move_transfer *t, move_windows *windows);
