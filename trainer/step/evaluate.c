/* An evaluation consists of forward passes over micro-batches of the same shape as in training, and
 * uses the same memory. Rank r of N computes micro-batches r, N + r and so on. The sum of the
 * losses is exact, so it does not depend on the order of micro-batches. The last micro-batch is
 * padded with samples that do not count. */
#include "step/evaluate.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "data/data.h"
#include "fsdp/fsdp.h"
#include "models/model_run.h"
#include "optim/grad_norm.h"
#include "programs/fail.h"
#include "ranks/board.h"
#include "ranks/log.h"
#include "state/train_state.h"
#include "step/external_requests.h"
#include "step/trainer.h"

typedef struct evaluation_sums {
    exact_sum losses[SAMPLE_MAX_LOSSES];
    uint64_t counted[SAMPLE_MAX_LOSSES], right;
} evaluation_sums;

static int blame_eval_path(int status, const dcp_error *why, dcp_error *err) {
    return data_fail_for_key("data.eval_path", status, why, err);
}

int step_evaluate_open(trainer *t, dcp_error *err) {
    const data_options options = {.type = t->c->data_type,
                                  .path = t->c->eval_path,
                                  .dtype = t->c->data_dtype,
                                  .batch = DATA_ANY_BATCH,
                                  .shape = t->shape};
    dcp_error why;
    if (!options.path) return DCP_OK;
    const int status = data_open(&options, &t->eval_samples, &why);
    return status == DCP_OK ? DCP_OK : blame_eval_path(status, &why, err);
}

/* The number of samples between two signs of life to dcp-run (ranks_board_beat). */
enum { CHECKED_AT_ONCE = 256 };

/* Checks this rank's share of the samples. */
static int check_samples(const trainer *t, uint64_t *counted, dcp_error *err) {
    const uint64_t all = data_samples(t->eval_samples), world = (uint64_t)t->world;
    const uint64_t each = (all + world - 1) / world, begin = each * (uint64_t)t->rank;
    const uint64_t end = begin + each < all ? begin + each : all;
    for (uint64_t at = begin; at < end; at += CHECKED_AT_ONCE) {
        dcp_error why;
        const uint64_t n = end - at < CHECKED_AT_ONCE ? end - at : CHECKED_AT_ONCE;
        const int status = data_check(t->eval_samples, at, n, counted, &why);
        ranks_board_beat();
        if (status != DCP_OK) return blame_eval_path(status, &why, err);
    }
    return DCP_OK;
}

int step_evaluate_check(const trainer *t, dcp_error *err) {
    uint64_t counted[SAMPLE_MAX_LOSSES] = {0};
    if (!t->eval_samples) return DCP_OK;
    const int status = ranks_agree(t->comm, check_samples(t, counted, err), err);
    if (status != DCP_OK) return status;
    MPI_Allreduce(MPI_IN_PLACE, counted, SAMPLE_MAX_LOSSES, MPI_UINT64_T, MPI_SUM, t->comm);
    if (counted[0] > 0) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG,
                     "data.eval_path: nothing in it counts for the loss; unmask some targets, or "
                     "leave the key out");
}

uint64_t step_evaluate_micro_batches(const trainer *t) {
    if (!t->eval_samples) return 0;
    return (data_samples(t->eval_samples) + t->c->micro - 1) / t->c->micro;
}

int step_evaluate_prepare(trainer *t, dcp_error *err) {
    if (!t->eval_samples || t->shape.tokens) return DCP_OK;
    const uint64_t bytes = t->c->micro * t->shape.classes * sizeof *t->logits;
    t->logits = malloc(bytes);
    return t->logits ? DCP_OK : core_fail_memory(err, bytes);
}

bool step_evaluate_is_due(const trainer *t) {
    const uint64_t step = t->state->step, every = t->c->eval_every;
    return t->eval_samples && (step == t->c->max_steps || (every > 0 && step % every == 0));
}

/* Reads the samples of micro-batch `number`. The last sample is followed by the first ones again,
 * whose targets are ignored. */
static int read_micro_batch(trainer *t, uint64_t number, sample_batch *out, dcp_error *err) {
    const uint64_t micro = t->c->micro, first = number * micro, targets = t->shape.targets;
    const uint64_t left = data_samples(t->eval_samples) - first;
    uint64_t counted[SAMPLE_MAX_LOSSES];
    dcp_error why;
    *out = model_sample_batch_at(&t->inputs, &t->shape, 0);
    const int status = data_read(t->eval_samples, t->state->seed, first, micro, out, counted, &why);
    if (status != DCP_OK) return blame_eval_path(status, &why, err);
    for (uint64_t i = left * targets; i < micro * targets; i++) out->targets[i] = SAMPLE_IGNORE;
    return DCP_OK;
}

static void add_micro_batch(const trainer *t, const sample_batch *batch, evaluation_sums *s) {
    const size_t classes = t->shape.classes;
    const float *logits = t->logits;
    kernels_type type = KERNELS_F32;
    const void *from = logits ? model_run_logits(t->run, &type) : NULL;
    assert(type == KERNELS_F32); /* accuracy: of classifiers, whose logits are fp32 */
    if (logits) t->k->download(t->k, t->logits, from, t->c->micro * classes * sizeof *logits);
    double losses[SAMPLE_MAX_LOSSES];
    model_run_losses(t->run, losses);
    for (size_t i = 0; i < model_sample_losses(&t->shape); i++) /* rounding may make a loss
                                                                 * negative */
        optim_exact_add(&s->losses[i], isfinite(losses[i]) && losses[i] < 0 ? 0 : losses[i]);
    for (uint64_t i = 0; i < t->c->micro * t->shape.targets; i++) {
        if (batch->targets[i] == SAMPLE_IGNORE) continue;
        s->counted[model_sample_loss_of(&t->shape, i % t->shape.targets)]++;
        if (logits)
            s->right += model_likeliest(logits + i * classes, classes) == (size_t)batch->targets[i];
    }
}

/* Evaluates one micro-batch on each rank. */
static int evaluate_round(trainer *t, uint64_t round, evaluation_sums *s, dcp_error *err) {
    static const float scales[SAMPLE_MAX_LOSSES] = {1.0f, 1.0f};
    const uint64_t number = round * (uint64_t)t->world + (uint64_t)t->rank;
    const bool has_one = number < step_evaluate_micro_batches(t);
    sample_batch batch;
    ranks_board_beat();
    int status = has_one ? read_micro_batch(t, number, &batch, err) : DCP_OK;
    if (has_one && status == DCP_OK) status = model_run_set_batch(t->run, &batch, scales, err);
    const bool computes = has_one && status == DCP_OK;
    fsdp_evaluate(t->sharded, computes ? t->run : NULL);
    if (computes) add_micro_batch(t, &batch, s);
    return status;
}

static int add_up_ranks(const trainer *t, evaluation_sums *s, step_evaluation *out,
                        dcp_error *err) {
    uint64_t counts[SAMPLE_MAX_LOSSES + 1] = {[SAMPLE_MAX_LOSSES] = s->right};
    const char *failed = t->k->sync(t->k);
    int status = failed ? core_fail(err, DCP_ERR_NO_MEMORY, "%s", failed) : DCP_OK;
    memcpy(counts, s->counted, sizeof s->counted);
    MPI_Allreduce(MPI_IN_PLACE, counts, SAMPLE_MAX_LOSSES + 1, MPI_UINT64_T, MPI_SUM, t->comm);
    for (size_t i = 0; i < model_sample_losses(&t->shape); i++) {
        const double sum = optim_exact_sum_of_ranks(&s->losses[i], t->comm);
        out->losses[i] = counts[i] ? sum / (double)counts[i] : 0;
        out->loss += model_sample_loss(&t->shape, i).weight * out->losses[i];
    }
    out->accuracy = (double)counts[SAMPLE_MAX_LOSSES] / (double)counts[0];
    return status;
}

int step_evaluate(trainer *t, step_evaluation *out, dcp_error *err) {
    const uint64_t world = (uint64_t)t->world;
    const uint64_t rounds = (step_evaluate_micro_batches(t) + world - 1) / world;
    const double start = MPI_Wtime();
    double spent[TIMELINE_SPENT];
    memcpy(spent, t->tl.spent, sizeof spent);
    evaluation_sums s = {0};
    int status = DCP_OK;
    *out = (step_evaluation){.done = true};
    fsdp_step_begin(t->sharded);
    for (uint64_t i = 0; i < rounds && out->done; i++) {
        dcp_error why;
        const int failed = evaluate_round(t, i, &s, &why);
        if (failed && !status) status = core_fail(err, failed, "%s", why.message);
        out->done = !step_requests_has_stop(t->comm);
    }
    status = ranks_agree(t->comm, status, err);
    if (status == DCP_OK && out->done)
        status = ranks_agree(t->comm, add_up_ranks(t, &s, out, err), err);
    memcpy(t->tl.spent, spent, sizeof spent); /* the forward passes count only as evaluation */
    timeline_add(&t->tl, TIMELINE_EVALUATE, -1, start, MPI_Wtime());
    return status;
}
