/* When to start again: how many restarts are left, and what counts as progress. */
#ifndef TRAINER_LAUNCHER_RESTART_H
#define TRAINER_LAUNCHER_RESTART_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

/* A complete step, told from others that had or will have its number. */
typedef struct launcher_step {
    int64_t step; /* -1: none */
    ino_t inode;
    struct timespec made;
} launcher_step;

typedef struct launcher_budget {
    const char *dir; /* the checkpoint directory; NULL: not known, nothing counts as progress */
    int max;
    int used;              /* since the last newer step */
    launcher_step *before; /* complete steps that the first start found */
    size_t n_before;
    int64_t published; /* the newest step by a start of ours, -1: none */
} launcher_budget;

/* Takes note of what is there before the first start. */
void launcher_restart_begin(launcher_budget *budget, const char *dir, int max);
void launcher_restart_end(launcher_budget *budget);

/* The newest complete step of the directory; -1 where there is none. */
int64_t launcher_restart_newest_step(const launcher_budget *budget);

/* Called after a failure: whether another start is due, which is then counted. */
int launcher_restart_allowed(launcher_budget *budget);

/* Whether a start has published a step, from which the next one should go on. */
int launcher_restart_goes_on(const launcher_budget *budget);

/* The checkpoint directory that `dcp-train CONFIG.json [key.path=value ...]` would use, freed by
 * the caller; NULL where `program` is another one, or the file is none that dcp-train would take.
 */
char *launcher_restart_dir_of(char *const *program);

#endif
