/* From a configuration to a run that is ready for its first step, in two parts: a plan, which
 * neither reads nor writes a checkpoint, and the start. */
#pragma once

#include <mpi.h>

#include <dcp/error.h>

typedef struct config config;
typedef struct trainer trainer;

/* Collective, as those below: checks what the configuration asks for and prepares what needs no
 * checkpoint; tells what is going to happen. 0, or an exit status with `err` filled. In either case
 * setup_end frees what was made. */
int setup_plan(trainer *t, const config *c, MPI_Comm comm, dcp_error *err);
/* After the plan: takes the directory's lock and loads. */
int setup_start(trainer *t, dcp_error *err);
/* Collective: how fast the ranks multiply, where setup_start has put that off: ranks that are
 * started again are to train soon, and call it after their first step. */
void setup_measure_peak(trainer *t);
/* Instead of setup_start: says where the run would start, and reads no more than that takes. */
int setup_dry_run(trainer *t, dcp_error *err);
void setup_end(trainer *t);
