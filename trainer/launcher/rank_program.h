/* A rank of a program that is not dcp-train. Such programs are told who they are as torchrun tells
 * them, so that torch.distributed's init_process_group() finds the others. And any rank of an
 * mpirun that has it begin with signals blocked. */
#pragma once

#include "launcher/hosts/cluster.h"

#define LAUNCHER_RANK "rank" /* dcp-run's life between mpirun and the program */

/* In mpirun's environment, for all ranks: where they meet (MASTER_ADDR and MASTER_PORT, unless they
 * are given), and which ranks are on which host. */
void launcher_rank_set_environment(const launcher_placement *placement);

/* Sets a variable of the environment to a number. */
void launcher_set_number(const char *name, long value);

/* `dcp-run rank PROGRAM [ARGS]`: gives the rank its own variables, and becomes the program. The
 * exit status where that fails. */
int launcher_rank_main(int argc, char **argv);
