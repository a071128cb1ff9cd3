/* When to start again: how many restarts are left, and what counts as progress. */
#ifndef DCP_RUN_RESTART_H
#define DCP_RUN_RESTART_H

#include <stdint.h>

typedef struct restart_budget {
    const char *dir; /* the checkpoint directory; NULL: not known, nothing counts as progress */
    int max;
    int used;         /* since the last newer step */
    int64_t at_start; /* newest complete step when the job started; -1: none */
} restart_budget;

/* The newest complete step of the directory; -1 where there is none. */
int64_t restart_newest_step(const restart_budget *budget);

/* Called before each start. */
void restart_note_start(restart_budget *budget);

/* Called after a failure: whether another start is due, which is then counted. */
int restart_allowed(restart_budget *budget);

/* The checkpoint directory that `dcp-train CONFIG.json [key.path=value ...]` would use, freed by
 * the caller; NULL where `program` is another one, or the file is none that dcp-train would take.
 */
char *restart_dir_of(char *const *program);

#endif
