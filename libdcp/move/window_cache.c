#include "move/window_cache.h"

#include <stdbool.h>

#include "core/crc64.h"
#include "move/domain.h"
#include "move/transfer.h"

/* Returns a fingerprint of the sharing groups and the hosts of all ranks. Both must have been found
 * already. */
static uint64_t places_of(const dcp_comm *comm) {
    const size_t bytes = (size_t)comm->size * sizeof(int);
    const uint64_t raw = core_crc64_raw(~0ULL, comm->local.groups->of, bytes);
    return core_crc64_raw(raw, comm->hosts->of, bytes);
}

static uint64_t end_of(const move_transfer *t) { return t->files[t->n_files - 1].end; }

bool move_window_cache_matches(const move_window_cache *cache, const dcp_comm *comm, uint64_t end) {
    return cache->is_known && comm->hosts && cache->end == end && cache->places == places_of(comm);
}

void move_window_cache_free(move_window_cache *cache) {
    move_windows_free(&cache->windows);
    cache->is_known = false;
}

int move_window_cache_acquire(const move_transfer *t, move_windows *out, dcp_error *err) {
    if (!t->window_cache || !t->uses_window_cache)
        return move_windows_find(t->comm, t->pieces, t->n_pieces, end_of(t), t->reader_ranges,
                                 t->direction == MOVE_TO_FILE, out, err);
    *out = t->window_cache->windows;
    out->groups = t->comm->local.groups; /* equal groups, possibly of another communicator */
    return DCP_OK;
}

void move_window_cache_release(const move_transfer *t, move_windows *windows) {
    if (t && t->window_cache && t->uses_window_cache) return;
    if (!t || !t->window_cache || !windows->is_known) {
        move_windows_free(windows);
        return;
    }
    move_window_cache_free(t->window_cache);
    *t->window_cache = (move_window_cache){true, end_of(t), places_of(t->comm), *windows};
}
