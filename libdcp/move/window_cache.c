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

bool move_kept_serves(const move_kept *kept, const dcp_comm *comm, uint64_t end) {
    return kept->is_known && comm->hosts && kept->end == end && kept->places == places_of(comm);
}

void move_kept_free(move_kept *kept) {
    move_windows_free(&kept->windows);
    kept->is_known = false;
}

int move_kept_take(const move_transfer *t, move_windows *out, dcp_error *err) {
    if (!t->kept || !t->uses_kept)
        return move_windows_find(t->comm, t->pieces, t->n_pieces, end_of(t), t->reader_ranges,
                                 t->direction == MOVE_TO_FILE, out, err);
    *out = t->kept->windows;
    out->groups = t->comm->local.groups; /* equal groups, possibly of another communicator */
    return DCP_OK;
}

void move_kept_return(const move_transfer *t, move_windows *windows) {
    if (t && t->kept && t->uses_kept) return;
    if (!t || !t->kept || !windows->is_known) {
        move_windows_free(windows);
        return;
    }
    move_kept_free(t->kept);
    *t->kept = (move_kept){true, end_of(t), places_of(t->comm), *windows};
}
