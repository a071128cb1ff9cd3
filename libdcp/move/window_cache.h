/* Windows that a caller keeps from one move to the next. The list of windows and the routes
 * (routes.h) depend only on the pieces and on the ranks' hosts. So a save that reuses its plan need
 * not determine windows and routes again. */
#pragma once

#include <stdbool.h>

#include "move/domain.h"

struct move_transfer;

/* The windows of consecutive moves of equal pieces. Initially zeroed. */
typedef struct move_kept {
    bool is_known;        /* the windows are set; the same on all ranks */
    uint64_t end, places; /* the end of the addresses; a fingerprint of which ranks are together */
    move_windows windows;
} move_kept;

/* Returns true if the next move of equal pieces over `comm` could use the windows. Not collective;
 * all ranks have to agree on it (transfer.h). */
bool move_kept_serves(const move_kept *kept, const dcp_comm *comm, uint64_t end);
void move_kept_free(move_kept *kept);

/* Sets *out to the kept windows if the transfer uses them, otherwise finds new ones. Collective. */
int move_kept_take(const struct move_transfer *t, move_windows *out, dcp_error *err);
/* Called at the end of a move. Keeps the windows if that is requested and all ranks have found
 * their windows, otherwise frees them. Not collective. */
void move_kept_return(const struct move_transfer *t, move_windows *windows);
