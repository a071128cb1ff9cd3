/* What about.json says of a run beside its state: what computed it, since equal bits are promised
 * only by equal kernels on the same kind of processor; what it was evaluated on; and which run it
 * is, by which it knows its metrics. */
#pragma once

#include <jansson.h>
#include <mpi.h>

#include "ranks/launcher.h"
#include <dcp/error.h>

/* Members of about.json that whoever saves adds. */
#define STATE_RUN "run"             /* the run's name */
#define STATE_LAUNCH "launch"       /* the name of the dcp-run whose ranks saved it */
#define STATE_CONFIG "config"       /* the checksum of the configuration, as it was given */
#define STATE_DATA_TYPE "data_type" /* data.type */
#define STATE_EVAL_DATA "eval_data" /* the checksum of what data.eval_path names */

#define STATE_INIT "init" /* the `init` that the run's weights began with */

enum { STATE_RUN_BYTES = RANKS_NAME_BYTES }; /* of a run's name */
enum { STATE_INIT_BYTES = 4096 };

/* Collective: the members `kernels` and `processor` for all ranks, a string each, or where ranks
 * differ the list of what they have, sorted. Differences are told in a warning on rank 0. The same
 * object on all ranks, the caller's. kernels: what this rank's kernels.describe says. */
int state_provenance_gather(MPI_Comm comm, const char *kernels, json_t **out, dcp_error *err);

/* Warns, of rank 0, where the step's about.json names other kernels, another processor or other
 * evaluation data than `here`, or is missing or damaged. */
void state_provenance_compare(const char *step_path, const json_t *here);

/* The run that saved the step, by its about.json, or, where that tells none, by those of other
 * steps in its directory, the newest first; "" where none does. */
void state_provenance_run(const char *step_path, char name[STATE_RUN_BYTES]);

/* What the step's about.json has under STATE_INIT; "" where there is none, or it can't be read. */
void state_provenance_init(const char *step_path, char init[STATE_INIT_BYTES]);

/* What the step's about.json has under STATE_RUN, STATE_LAUNCH or STATE_CONFIG; "" where that is no
 * name, or the file is missing or damaged. DCP_ERR_IO, DCP_ERR_NO_MEMORY: it could not be read,
 * "". */
int state_provenance_name(const char *step_path, const char *key, char name[STATE_RUN_BYTES],
                          dcp_error *err);
