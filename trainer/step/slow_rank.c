#include "step/slow_rank.h"

int step_slow_note(step_slow *s, const dcp_report *report) {
    if (!(report->slow_ratio > 0)) {
        s->saves = 0;
        if (++s->quiet >= STEP_SLOW_QUIET) s->told = 0;
        return 0;
    }
    if (report->slow_rank != s->rank) *s = (step_slow){.rank = report->slow_rank};
    s->quiet = 0;
    if (++s->saves < STEP_SLOW_SAVES || s->told) return 0;
    s->told = 1;
    return 1;
}
