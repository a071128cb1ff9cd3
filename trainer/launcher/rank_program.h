/* Ranks of programs other than dcp-train. They get the variables that torchrun sets, so
 * init_process_group() of torch.distributed works. Ranks of dcp-train are started in the same way
 * if their mpirun starts ranks with blocked signals. */
#pragma once

#include "launcher/hosts/cluster.h"

#define LAUNCHER_RANK "rank" /* the first argument of the dcp-run that becomes a rank */

/* Sets mpirun's environment for all ranks: where they meet (MASTER_ADDR and MASTER_PORT, unless the
 * user has set them), and which ranks are on which host. */
void launcher_rank_set_environment(const launcher_placement *placement);

/* Sets an environment variable to a number. */
void launcher_set_number(const char *name, long value);

/* `dcp-run rank PROGRAM [ARGS]`: sets the variables of the rank, and becomes the program. Returns
 * the exit status if that fails. */
int launcher_rank_main(int argc, char **argv);
