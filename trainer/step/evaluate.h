/* The loss on data that is not trained on. */
#pragma once

#include <stdint.h>

#include "models/sample.h"
#include <dcp/error.h>

typedef struct trainer trainer;

typedef struct step_evaluation {
    double loss; /* mean over all counted targets; NaN where one of them is not finite */
    double losses[SAMPLE_MOST_LOSSES]; /* of which that is the weighted sum */
    double accuracy; /* of a classifier: the share of samples whose class was thought likeliest */
    int done;        /* 0: SIGTERM came before its end */
} step_evaluation;

/* Opens data.eval_path, where it is given. Not collective. */
int step_evaluate_open(trainer *t, dcp_error *err);

/* Collective: reads all of the evaluation's data, so that what is wrong with it, or that nothing in
 * it counts, is told before the first step. DCP_ERR_ARG; DCP_ERR_IO. */
int step_evaluate_check(const trainer *t, dcp_error *err);

/* Memory that evaluations take beside training's. Not collective. */
int step_evaluate_prepare(trainer *t, dcp_error *err);

/* Micro-batches of an evaluation; 0: there is none. */
uint64_t step_evaluate_micro_batches(const trainer *t);

/* Whether the step that the state is at ends with an evaluation: every eval_every steps, and at the
 * last. */
int step_evaluate_is_due(const trainer *t);

/* Collective: each sample of the evaluation's data once. Same bits on any number of ranks; changes
 * nothing that the next step depends on. */
int step_evaluate(trainer *t, step_evaluation *out, dcp_error *err);
