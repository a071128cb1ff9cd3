#include "report/spent.h"

#include <inttypes.h>

#include "common/say.h"

enum { OTHER = TIMELINE_SPENT, ROWS };

static const char *const names[ROWS] = {
    [TIMELINE_FORWARD] = "forward",
    [TIMELINE_BACKWARD] = "backward",
    [TIMELINE_WAIT] = "waiting for gathers",
    [TIMELINE_REDUCE] = "reductions",
    [TIMELINE_OPTIMIZER] = "norm and optimizer",
    [TIMELINE_STALL] = "waiting for saves",
    [TIMELINE_DATA] = "data",
    [TIMELINE_EVALUATE] = "evaluation",
    [OTHER] = "other",
};
static const int order[ROWS] = {TIMELINE_FORWARD, TIMELINE_BACKWARD,  TIMELINE_WAIT,
                                TIMELINE_REDUCE,  TIMELINE_OPTIMIZER, TIMELINE_STALL,
                                TIMELINE_DATA,    TIMELINE_EVALUATE,  OTHER};

typedef struct most { /* MPI_DOUBLE_INT */
    double seconds;
    int rank;
} most;

void spent_tell(const trainer *t, uint64_t steps, double seconds) {
    if (steps == 0) return;
    double sum[ROWS];
    most most_of[ROWS];
    sum[OTHER] = seconds;
    for (int i = 0; i < TIMELINE_SPENT; i++) {
        sum[i] = t->tl.spent[i];
        sum[OTHER] -= sum[i];
    }
    for (int i = 0; i < ROWS; i++) most_of[i] = (most){sum[i], t->rank};
    const int root = t->rank == 0;
    MPI_Reduce(root ? MPI_IN_PLACE : sum, sum, ROWS, MPI_DOUBLE, MPI_SUM, 0, t->comm);
    MPI_Reduce(root ? MPI_IN_PLACE : most_of, most_of, ROWS, MPI_DOUBLE_INT, MPI_MAXLOC, 0,
               t->comm);
    say(t->rank, "%" PRIu64 " %s in %.3f s; where the time of %d %s went:", steps,
        steps == 1 ? "step" : "steps", seconds, t->world, t->world == 1 ? "rank" : "ranks");
    say(t->rank, "%-20s %10s %7s %10s", "", "mean s", "share", "most s");
    for (int i = 0; i < ROWS; i++) {
        const int row = order[i];
        const double mean = sum[row] / t->world;
        say(t->rank, "%-20s %10.3f %5.1f %% %10.3f  rank %d", names[row], mean,
            100 * mean / seconds, most_of[row].seconds, most_of[row].rank);
    }
}
