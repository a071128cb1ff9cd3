/* The loss on data that are not trained on. */
#pragma once

#include <stdint.h>

#include "models/sample.h"
#include <dcp/error.h>

typedef struct trainer trainer;

typedef struct step_evaluation {
    double loss; /* mean over all counted targets; NaN if one of them is not finite */
    double losses[SAMPLE_MOST_LOSSES]; /* of which `loss` is the weighted sum */
    double accuracy; /* for a classifier: the share of samples whose class was found likeliest */
    int done;        /* 0: SIGTERM came before the end */
} step_evaluation;

/* Opens data.eval_path if it is given. Not collective. */
int step_evaluate_open(trainer *t, dcp_error *err);

/* Collective. Reads all of the evaluation's data, so errors in it, or that nothing in it counts,
 * are reported before the first step. DCP_ERR_ARG; DCP_ERR_IO. */
int step_evaluate_check(const trainer *t, dcp_error *err);

/* Allocates the memory that evaluations need besides the training's. Not collective. */
int step_evaluate_prepare(trainer *t, dcp_error *err);

/* The number of micro-batches of an evaluation; 0 if there is none. */
uint64_t step_evaluate_micro_batches(const trainer *t);

/* Returns true if the state's step ends with an evaluation: every eval_every steps, and the last
 * step. */
int step_evaluate_is_due(const trainer *t);

/* Collective. Evaluates each sample of the evaluation's data once. Gives the same bits on any
 * number of ranks, and changes nothing that the next step depends on. */
int step_evaluate(trainer *t, step_evaluation *out, dcp_error *err);
