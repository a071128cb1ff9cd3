/* The members that a run adds to about.json. They record the kernels and the processor, because
 * equal bits are promised only for the same kernels on the same kind of processor. They also record
 * the data of the evaluation, and the run's name, by which a run recognizes its own metrics. */
#pragma once

#include <jansson.h>
#include <mpi.h>

#include "ranks/launcher.h"
#include <dcp/error.h>

/* Members of about.json that dcp-train adds when it saves. */
#define STATE_RUN "run"             /* the run's name */
#define STATE_LAUNCH "launch"       /* the name of the dcp-run whose ranks saved the step */
#define STATE_CONFIG "config"       /* the checksum of the configuration as given by the user */
#define STATE_DATA_TYPE "data_type" /* data.type */
#define STATE_EVAL_DATA "eval_data" /* the checksum of the data at data.eval_path */

/* Members of about.json with the values of the step, for checkpoint.keep_metric. */
#define STATE_LOSS "loss"                   /* as in the metrics */
#define STATE_EVAL_LOSS "eval_loss"         /* only if the step was evaluated */
#define STATE_EVAL_ACCURACY "eval_accuracy" /* the same; only for a classifier */

#define STATE_INIT "init" /* the value of `init` from which the run's weights came */

enum { STATE_RUN_BYTES = RANKS_NAME_BYTES }; /* the size of a run's name */
enum { STATE_INIT_BYTES = 4096 };

/* Collective. Makes the members `kernels` and `processor`. Each is a string, or a sorted list of
 * strings if ranks differ. Rank 0 warns about differences. All ranks get the same object, which the
 * caller owns. kernels: the result of this rank's kernels.describe. */
int state_provenance_gather(MPI_Comm comm, const char *kernels, json_t **out, dcp_error *err);

/* Rank 0 only. Warns if the step's about.json names other kernels, another processor or other
 * evaluation data than `here`. Also warns if about.json is missing or damaged. */
void state_provenance_compare(const char *step_path, const json_t *here);

/* Reads the name of the run that saved the step from the step's about.json. If that file has no
 * name, reads the about.json of the directory's other steps, newest first, until one has a name. ""
 * if none has. */
void state_provenance_run(const char *step_path, char name[STATE_RUN_BYTES]);

/* Collective. Copies the step's values, which rank 0 reads from the step's about.json, to `here`,
 * so that they remain if the step is saved again before the next one. Values of an evaluation are
 * copied only if `here` has the same evaluation data. Members that are not copied are removed. */
void state_provenance_copy_results(MPI_Comm comm, const char *step_path, json_t *here);

/* Reads the value of STATE_INIT from the step's about.json; "" if there is none, or the file cannot
 * be read. */
void state_provenance_init(const char *step_path, char init[STATE_INIT_BYTES]);

/* Reads the value of STATE_RUN, STATE_LAUNCH or STATE_CONFIG from the step's about.json; "" if the
 * value is not a name, or the file cannot be read. DCP_ERR_IO, DCP_ERR_NO_MEMORY: the file could
 * not be read. Other errors: it is missing or damaged. */
int state_provenance_name(const char *step_path, const char *key, char name[STATE_RUN_BYTES],
                          dcp_error *err);
