/* How often a run may be started again. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "launcher/watched.h"

/* Restarts are counted until the run has published a step newer than those that it published
 * before: one that makes progress may fail any number of times, one that does not ends after `max`,
 * also where it starts over each time. Steps of earlier runs, which a run may set aside and publish
 * again under the same numbers, do not count: a step is its folder, not its number. */
typedef struct launcher_budget {
    const launcher_watched *dirs; /* the stores; none known: only what ranks tell counts */
    int max;
    int used;                          /* since the last newer step */
    struct launcher_published *before; /* complete steps that the first start found */
    size_t n_before;
    int64_t published; /* the newest step by a start of ours, -1: none */
} launcher_budget;

/* Takes note of what is there before the first start. */
void launcher_budget_begin(launcher_budget *budget, const launcher_watched *dirs, int max);
void launcher_budget_end(launcher_budget *budget);

/* Ranks have told that they published this step. 1: it is newer than those before. */
int launcher_budget_told(launcher_budget *budget, int64_t step);
/* Called after a failure: whether another start is due, which is then counted. */
int launcher_budget_allows(launcher_budget *budget);
/* Whether a start has published a step, from which the next one should go on; looks. */
int launcher_budget_goes_on(launcher_budget *budget);
/* The newest complete step of the stores that can be seen from here; -1 where there is none. */
int64_t launcher_budget_newest(const launcher_budget *budget);
