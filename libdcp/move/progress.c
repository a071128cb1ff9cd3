/* Progress, release and the end before the end. */
#include "move/progress.h"

#include <stddef.h>

#define TELL_BYTES ((uint64_t)4 << 20)
/* A part counts as so many at least: where memory is mapped from a file, the kernel brings the
 * pages around a small one as well, and whoever is told may let go of them. */
#define PART_BYTES ((uint64_t)256 << 10)

void move_progress_read(move_progress *progress, uint64_t bytes) {
    progress->untold += bytes < PART_BYTES ? PART_BYTES : bytes;
    if (progress->untold < TELL_BYTES && progress->done < progress->total) return;
    progress->untold = 0;
    if (progress->on_progress)
        progress->on_progress(progress->progress_ctx, progress->done, progress->total);
    comm_stop_ask(&progress->stop, NULL);
}

int move_progress_status(const move_progress *progress, dcp_error *err) {
    return progress ? comm_stop_status(&progress->stop, err) : DCP_OK;
}

int move_progress_ask(move_progress *progress, dcp_error *err) {
    return progress ? comm_stop_ask(&progress->stop, err) : DCP_OK;
}

void move_progress_written(move_progress *progress, uint64_t bytes) {
    progress->done += bytes;
    move_progress_read(progress, bytes);
}

double move_progress_phase(const move_progress *progress, dcp_phase phase, double begin,
                           double end) {
    if (progress && progress->on_phase) progress->on_phase(progress->phase_ctx, phase, begin, end);
    return end - begin;
}

void move_progress_release(const move_progress *progress) {
    if (progress->released) progress->released(progress->ctx);
}

int move_progress_wants_copy(const move_progress *progress, uint64_t left) {
    return left <= progress->staging_bytes && progress->is_awaited &&
           progress->is_awaited(progress->ctx);
}
