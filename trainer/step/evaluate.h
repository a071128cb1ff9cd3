/* The loss on data that the run does not train on. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "models/sample.h"
#include <dcp/error.h>

typedef struct trainer trainer;

typedef struct step_evaluation {
    double loss; /* mean over all counted targets; NaN if the loss of a target is not finite */
    double losses[SAMPLE_MAX_LOSSES]; /* `loss` is their weighted sum */
    double accuracy; /* for a classifier: the share of samples that it classifies correctly */
    bool done;       /* false: a request to stop came before the end */
} step_evaluation;

/* Opens data.eval_path if it is given. Not collective. */
int step_evaluate_open(trainer *t, dcp_error *err);

/* Collective. Reads all of the evaluation's data, to report errors before the first step.
 * DCP_ERR_ARG: the data are invalid, or nothing in them counts. DCP_ERR_IO: they cannot be read. */
int step_evaluate_check(const trainer *t, dcp_error *err);

/* Allocates the memory that evaluations need in addition to the memory that training needs. Not
 * collective. */
int step_evaluate_prepare(trainer *t, dcp_error *err);

/* Returns the number of micro-batches of an evaluation, or 0 if the run does not evaluate. */
uint64_t step_evaluate_micro_batches(const trainer *t);

/* Returns true if an evaluation follows the state's step: after every eval_every steps, and after
 * the last one. */
bool step_evaluate_is_due(const trainer *t);

/* Collective. Evaluates each sample of the evaluation's data once. The result has the same bits on
 * any number of ranks. An evaluation changes nothing on which the next step depends. */
int step_evaluate(trainer *t, step_evaluation *out, dcp_error *err);
