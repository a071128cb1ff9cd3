/* Turns a configuration into a run that is ready for its first step, in two parts: a plan, which
 * neither reads nor writes a checkpoint, and the start. */
#pragma once

#include <mpi.h>

#include <dcp/error.h>

typedef struct config config;
typedef struct trainer trainer;

/* Collective, like all functions below. Checks the configuration, prepares everything that needs no
 * checkpoint, and reports what the run is going to do. Returns 0, or an exit status with `err`
 * filled. In either case setup_end frees everything. */
int setup_plan(trainer *t, const config *c, MPI_Comm comm, dcp_error *err);
/* Call it after setup_plan. Takes the directory's lock and loads the initial state. */
int setup_start(trainer *t, dcp_error *err);
/* Collective. Measures how fast the ranks multiply, if setup_start has postponed that. Restarted
 * ranks call it after their first step, so that they resume training sooner. */
void setup_measure_peak(trainer *t);
/* Used instead of setup_start: reports where the run would start, and reads only what that
 * requires. */
int setup_dry_run(trainer *t, dcp_error *err);
void setup_end(trainer *t);
