/* Lists as Slurm writes them into a job's variables. */
#pragma once

#include <stddef.h>

/* Calls `take` for each name of a list of nodes such as "login,n[1-3,07]x[0-1]", in its order. 0;
 * -1 where the list is malformed, names more than `max` nodes, or `take` returned other than 0. */
int launcher_node_list_visit(const char *list, size_t max, int (*take)(void *ctx, const char *name),
                             void *ctx);

/* "4(x2),3": number `i` of the counts 4, 4, 3; the last one repeats. -1 where that is malformed. */
long launcher_node_list_count(const char *counts, size_t i);
