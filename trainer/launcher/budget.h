/* The budget of restarts: how often a run may be restarted depends on the steps that it
 * publishes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* The directories in which a run publishes steps. */

typedef struct launcher_watched {
    char **at; /* [0]: checkpoint.dir, if it is known; then the stores */
    size_t n;
    bool has_redundancy; /* some store has redundancy: it survives the loss of a host */
} launcher_watched;

/* Finds the directories that `dcp-train CONFIG.json [key.path=value ...]` would use, even if
 * another program, such as env or numactl, starts dcp-train. `watch` (--watch), unless NULL,
 * replaces checkpoint.dir. Without `watch`, finds no directory if `program` does not contain
 * dcp-train, or if dcp-train would not accept the file. */
void launcher_watched_find(launcher_watched *dirs, const char *watch, char *const *program);
/* Returns true for dcp-train, which reports its progress to dcp-run. */
bool launcher_watched_is_train(const char *program);
/* Returns the first word that is dcp-train; NULL: none. */
char *const *launcher_watched_find_train(char *const *program);
void launcher_watched_free(launcher_watched *dirs);

/* The count of restarts returns to 0 whenever the run publishes a step newer than its earlier ones.
 * So a run that makes progress may fail any number of times, while a run that makes none ends after
 * `max` restarts, even if it starts from the beginning each time. Steps of earlier runs do not
 * count. This run may set them aside and publish steps with the same numbers, so a step is
 * identified by its folder, not by its number. */
typedef struct launcher_budget {
    const launcher_watched
        *dirs; /* the stores; if none is known, only the reports of ranks count */
    int max;
    int used;                          /* restarts since `published` last changed */
    struct launcher_published *before; /* complete steps that existed before the first start */
    size_t n_before;
    int64_t published; /* the newest step that this run has published; -1: none */
} launcher_budget;

/* Records which steps exist before the first start. */
void launcher_budget_begin(launcher_budget *budget, const launcher_watched *dirs, int max);
void launcher_budget_end(launcher_budget *budget);

/* Records that ranks have published this step. Returns true if it is newer than the run's earlier
 * steps. */
bool launcher_budget_record(launcher_budget *budget, int64_t step);
/* To be called after a failure. Returns true if another start is allowed, and counts it. */
bool launcher_budget_allows(launcher_budget *budget);
/* Checks the stores for new steps. Returns true if this run has published a step, from which the
 * next start resumes. */
bool launcher_budget_has_published(launcher_budget *budget);
/* Returns the newest complete step of the stores that this host can see; -1: none. */
int64_t launcher_budget_newest(const launcher_budget *budget);
