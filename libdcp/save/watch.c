/* Progress and release of a save. */
#include "save/watch.h"

#include <stddef.h>

#define TELL_BYTES ((uint64_t)4 << 20)
/* A part counts as so many at least: where memory is mapped from a file, the kernel brings the
 * pages around a small one as well, and whoever is told may let go of them. */
#define PART_BYTES ((uint64_t)256 << 10)

void watch_read(save_watch *watch, uint64_t bytes) {
    watch->untold += bytes < PART_BYTES ? PART_BYTES : bytes;
    if (!watch->on_progress) return;
    if (watch->untold < TELL_BYTES && watch->done < watch->total) return;
    watch->untold = 0;
    watch->on_progress(watch->progress_ctx, watch->done, watch->total);
}

void watch_progress(save_watch *watch, uint64_t bytes) {
    watch->done += bytes;
    watch_read(watch, bytes);
}

double watch_phase(const save_watch *watch, dcp_phase phase, double begin, double end) {
    if (watch->on_phase) watch->on_phase(watch->phase_ctx, phase, begin, end);
    return end - begin;
}

void watch_release(const save_watch *watch) {
    if (watch->released) watch->released(watch->ctx);
}

int watch_is_awaited(const save_watch *watch) {
    return watch->is_awaited && watch->is_awaited(watch->ctx);
}

int watch_wants_staging(const save_watch *watch, uint64_t left) {
    return left <= watch->staging_bytes && watch_is_awaited(watch);
}
