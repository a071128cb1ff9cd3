/* Windows that a caller keeps from one move to the next. The list of windows and the routes
 * (routes.h) depend only on the pieces and on the ranks' hosts. So a save that reuses its plan need
 * not determine windows and routes again. */
#pragma once

#include <stdbool.h>

#include "move/domain.h"

struct move_transfer;

/* The windows of consecutive moves of equal pieces. Initially zeroed. */
typedef struct move_window_cache {
    bool is_known;        /* the windows are set; the same on all ranks */
    uint64_t end, places; /* end of the addresses; fingerprint of sharing groups and hosts */
    move_windows windows;
} move_window_cache;

/* Returns true if the next move of equal pieces over `comm` could use the windows. Not collective,
 * so the ranks still have to agree whether to use them (transfer.h). */
bool move_window_cache_matches(const move_window_cache *cache, const dcp_comm *comm, uint64_t end);
void move_window_cache_free(move_window_cache *cache);

/* Sets *out to the kept windows if the transfer uses them, otherwise finds new ones. Collective. */
int move_window_cache_acquire(const struct move_transfer *t, move_windows *out, dcp_error *err);
/* Called at the end of a move. Keeps the windows if that is requested and all ranks have found
 * their windows, otherwise frees them. Not collective. */
void move_window_cache_release(const struct move_transfer *t, move_windows *windows);
