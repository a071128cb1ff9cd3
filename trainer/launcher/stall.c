#include "launcher/stall.h"

#include <string.h>

static const double LEAST_S = 300, TIMES_SLOWEST = 10;

void launcher_stall_begin(launcher_stall *stall, double given_s, int ranks) {
    *stall = (launcher_stall){.given_s = given_s, .ranks = ranks};
}

void launcher_stall_beat(launcher_stall *stall, int rank, const launcher_beat *beat, double now) {
    launcher_beat *last = &stall->beats[rank];
    if (beat->slowest_s > stall->slowest_s) stall->slowest_s = beat->slowest_s;
    if (!stall->has_reported[rank] || beat->progress != last->progress ||
        beat->step != last->step || beat->micro_batch != last->micro_batch ||
        beat->phase != last->phase) {
        stall->moved_at = now;
        stall->has_moved = true;
    }
    stall->has_reported[rank] = 1;
    *last = *beat;
}

/* Returns the limit; 0: none yet. */
static double limit_of(const launcher_stall *stall) {
    const double limit = TIMES_SLOWEST * stall->slowest_s;
    if (stall->given_s > 0) return stall->given_s;
    if (stall->slowest_s <= 0) return 0;
    return limit > LEAST_S ? limit : LEAST_S;
}

double launcher_stall_deadline(const launcher_stall *stall) {
    const double limit = limit_of(stall);
    return stall->has_moved && limit > 0 ? stall->moved_at + limit : 0;
}

/* Returns less than 0 if `a` is behind `b`. */
static int compare_beats(const launcher_beat *a, const launcher_beat *b) {
    if (a->step != b->step) return a->step < b->step ? -1 : 1;
    if (a->micro_batch != b->micro_batch) return a->micro_batch < b->micro_batch ? -1 : 1;
    if (a->progress != b->progress) return a->progress < b->progress ? -1 : 1;
    return 0;
}

int launcher_stall_behind(const launcher_stall *stall) {
    int least = 0;
    bool differ = stall->ranks == 1;
    for (int r = 1; r < stall->ranks; r++) {
        const int order = compare_beats(&stall->beats[r], &stall->beats[least]);
        if (order < 0) least = r;
        differ |= order != 0;
    }
    return differ ? least : -1;
}
