/* How often a run may be started again, which depends on the steps that it publishes. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* Directories in which a run publishes steps. */

typedef struct launcher_watched {
    char **at; /* [0]: checkpoint.dir, where one is known; then the stores */
    size_t n;
    int has_redundancy; /* a store's parts are on several hosts, so that one may be lost */
} launcher_watched;

/* --watch's directory, or those that `dcp-train CONFIG.json [key.path=value ...]` would use, also
 * after words of a program that starts it, as env and numactl are; none where there is no such
 * word, or the file is none that dcp-train would take. */
void launcher_watched_find(launcher_watched *dirs, const char *watch, char *const *program);
/* Whether it is dcp-train, which tells dcp-run how far it is. */
int launcher_watched_is_train(const char *program);
/* The first of the words that is; NULL: none. */
char *const *launcher_watched_find_train(char *const *program);
void launcher_watched_free(launcher_watched *dirs);

/* How often a run may be started again. */

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
