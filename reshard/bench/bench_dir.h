/* The folder that dcp-bench saves into or loads from: a directory of steps, or one step's. */
#ifndef RESHARD_BENCH_DIR_H
#define RESHARD_BENCH_DIR_H

#include <stdint.h>

#include "common/launch.h"
#include "programs/program.h"

#define BENCH_TOOL "dcp-bench" /* in about.json of what it saved */

/* Collective. PROGRAM_USAGE, with a message, where another program's steps lie there: those of a
 * training run are not to be hidden behind newer ones. */
int bench_dir_check(const launch *job, const char *dir);

/* Collective. The number of the newest complete step; 0 where there is none. */
uint64_t bench_dir_newest(const launch *job, const char *dir);

/* Rank 0 removes the steps before `step`, but only those that dcp-bench wrote. */
void bench_dir_remove_before(const launch *job, const char *dir, uint64_t step);

/* Collective. Drops the pages of a step's files, which are the machine's, from the page cache. */
void bench_dir_drop_cache(const launch *job, const char *folder);

#endif
