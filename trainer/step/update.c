/* Reads a step's micro-batches, computes their gradients, and updates the state. Every result is
 * the same on all ranks, and for any number of ranks: a loss is the sum of one value per
 * micro-batch, in the order of micro-batches, and the norm is an exact sum. */
#include "step/update.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "config/config.h"
#include "data/data.h"
#include "fsdp/fsdp.h"
#include "models/model_run.h"
#include "optim/grad_norm.h"
#include "optim/optim.h"
#include "programs/fail.h"
#include "ranks/board.h"
#include "ranks/log.h"
#include "state/train_state.h"
#include "step/trainer.h"
#include <dcp/tiers.h>

/* Returns the number of the micro-batch that this rank computes in a micro-step. If it computes
 * none, returns a number that no micro-batch has. */
static uint64_t micro_batch_of(const trainer *t, uint64_t micro) {
    return fsdp_own_micro_batch(t->sharded, micro);
}

/* Reads this rank's part of the batch that begins at sample `begin`. counted[SAMPLE_MAX_LOSSES]:
 * for each loss, how many targets in that part count. */
static int read_inputs(trainer *t, uint64_t begin, uint64_t *counted, dcp_error *err) {
    const uint64_t micro_batches = config_micro_batches(t->c);
    memset(counted, 0, SAMPLE_MAX_LOSSES * sizeof *counted);
    for (uint64_t i = 0; micro_batch_of(t, i) < micro_batches; i++) {
        const uint64_t first = begin + micro_batch_of(t, i) * t->c->micro;
        const sample_batch inputs = model_sample_batch_at(&t->inputs, &t->shape, i * t->c->micro);
        uint64_t n[SAMPLE_MAX_LOSSES] = {0};
        const int status =
            data_read(t->samples, t->state->seed, first, t->c->micro, &inputs, n, err);
        if (status != DCP_OK) return status;
        for (size_t loss = 0; loss < SAMPLE_MAX_LOSSES; loss++) counted[loss] += n[loss];
    }
    return DCP_OK;
}

/* Collective. Reads this rank's part of a batch. counted[SAMPLE_MAX_LOSSES]: for each loss, how
 * many targets in the whole batch count. */
static int read_batch(trainer *t, uint64_t begin, uint64_t *counted, dcp_error *err) {
    const int status = ranks_agree(t->comm, read_inputs(t, begin, counted, err), err);
    if (status != DCP_OK) return status;
    MPI_Allreduce(MPI_IN_PLACE, counted, SAMPLE_MAX_LOSSES, MPI_UINT64_T, MPI_SUM, t->comm);
    return DCP_OK;
}

/* Reads the next batch in which a target counts. *skipped: the number of batches before it, in
 * which no target counts. */
static int read_step(trainer *t, uint64_t *counted, uint64_t *skipped, dcp_error *err) {
    const uint64_t epoch = data_samples(t->samples);
    for (*skipped = 0; *skipped * t->c->batch < epoch; ++*skipped) {
        const uint64_t begin = t->state->samples + *skipped * t->c->batch;
        const int status = read_batch(t, begin, counted, err);
        if (status != DCP_OK || counted[0] > 0) return status;
    }
    return core_fail(err, DCP_ERR_ARG,
                     "data.path: no %s of a whole epoch, %" PRIu64
                     " samples, counts for the loss; unmask some",
                     t->shape.tokens ? "token" : "label", epoch);
}

static int compute_micro_batch(trainer *t, uint64_t micro, const float *scales, dcp_error *err) {
    const uint64_t number = micro_batch_of(t, micro);
    ranks_board_micro_batch(micro + 1);
    if (number >= config_micro_batches(t->c)) {
        fsdp_micro_step(t->sharded, micro, NULL);
        return DCP_OK;
    }
    const sample_batch batch = model_sample_batch_at(&t->inputs, &t->shape, micro * t->c->micro);
    const int status = model_run_set_batch(t->run, &batch, scales, err);
    fsdp_micro_step(t->sharded, micro, status == DCP_OK ? t->run : NULL);
    double losses[SAMPLE_MAX_LOSSES];
    model_run_losses(t->run, losses);
    for (size_t i = 0; i < model_sample_losses(&t->shape); i++)
        t->losses[i * config_micro_batches(t->c) + number] = losses[i];
    return status;
}

/* Computes a factor for each loss and its gradients: the loss becomes the mean over the targets
 * that count, times the loss's weight. */
static void scale_losses(const trainer *t, const uint64_t *counted, float *scales) {
    for (size_t i = 0; i < model_sample_losses(&t->shape); i++)
        scales[i] = counted[i]
                        ? (float)(model_sample_loss(&t->shape, i).weight / (double)counted[i])
                        : 0.0f;
}

/* Adds up the losses of all micro-batches, in the order of micro-batches. */
static void add_losses(const trainer *t, step_result *out) {
    const uint64_t micro_batches = config_micro_batches(t->c);
    out->loss = 0;
    for (size_t i = 0; i < model_sample_losses(&t->shape); i++) {
        double sum = 0;
        for (uint64_t number = 0; number < micro_batches; number++)
            sum += t->losses[i * micro_batches + number];
        out->losses[i] = sum / model_sample_loss(&t->shape, i).weight;
        out->loss += sum;
    }
}

/* Computes the step's loss and gradients. The gradients of all micro-batches are added up in the
 * shards. */
static int compute(trainer *t, const uint64_t *counted, step_result *out, dcp_error *err) {
    const size_t losses = config_micro_batches(t->c) * model_sample_losses(&t->shape);
    float scales[SAMPLE_MAX_LOSSES];
    int status = DCP_OK;
    scale_losses(t, counted, scales);
    memset(t->losses, 0, losses * sizeof *t->losses);
    fsdp_step_begin(t->sharded);
    for (uint64_t i = 0; i < fsdp_micro_steps(t->sharded); i++) {
        dcp_error why;
        const int failed = compute_micro_batch(t, i, scales, &why);
        if (failed && !status) status = core_fail(err, failed, "%s", why.message);
    }
    const double computed = MPI_Wtime();
    status = ranks_agree(t->comm, status, err);
    if (status != DCP_OK) return status;
    MPI_Allreduce(MPI_IN_PLACE, t->losses, (int)losses, MPI_DOUBLE, MPI_SUM, t->comm);
    add_losses(t, out);
    timeline_add(&t->tl, TIMELINE_REDUCE, -1, computed, MPI_Wtime());
    return DCP_OK;
}

static int check_finite(const trainer *t, const step_result *r, dcp_error *err) {
    const char *failed = t->k->sync(t->k);
    if (failed) return core_fail(err, DCP_ERR_NO_MEMORY, "%s", failed);
    if (isfinite(r->loss) && isfinite(r->grad_norm)) return DCP_OK;
    if (t->state->step == 0)
        return core_fail(err, DCP_ERR_STATE,
                         "step 1: loss %g, gradient norm %g before any update was made: the "
                         "weights that the run starts with, or the samples, hold values that are "
                         "not numbers, or too large; look for them in %s",
                         r->loss, r->grad_norm,
                         strcmp(t->c->init, "random") ? t->c->init : "the data");
    return core_fail(err, DCP_ERR_STATE,
                     "step %" PRIu64 ": loss %g, gradient norm %g: the run has diverged; lower "
                     "optimizer.params.lr, or go back to an older step",
                     t->state->step + 1, r->loss, r->grad_norm);
}

/* Updates the state. A save may read the state as soon as this function returns, so the function
 * waits for the device if the state is in the host's memory. */
static int update(trainer *t, const step_result *r, dcp_error *err) {
    train_state *s = t->state;
    const double limit = t->c->clipping;
    const double scale = limit > 0 ? fmin(1.0, limit / (r->grad_norm + 1e-6)) : 1.0;
    state_update(s, t->optimizer, r->lr, scale);
    const char *failed = s->host_memory ? t->k->sync(t->k) : NULL;
    const uint64_t samples = (r->skipped + 1) * t->c->batch;
    s->step++;
    s->samples += samples;
    s->tokens += samples * model_sample_tokens(&t->shape);
    return failed ? core_fail(err, DCP_ERR_DEVICE, "the update: %s", failed) : DCP_OK;
}

void step_collect_device_times(trainer *t) {
    static const timeline_kind kinds[] = {TIMELINE_FORWARD, TIMELINE_BACKWARD, TIMELINE_OPTIMIZER};
    double seconds[KERNELS_SPANS];
    if (!t->k->spans(t->k, seconds)) return;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        timeline_set_device(&t->tl, kinds[i], seconds[kinds[i]]);
}

int step_update(trainer *t, step_result *out, dcp_error *err) {
    uint64_t counted[SAMPLE_MAX_LOSSES];
    const double start = MPI_Wtime();
    int status = read_step(t, counted, &out->skipped, err);
    timeline_add(&t->tl, TIMELINE_DATA, -1, start, MPI_Wtime());
    if (status == DCP_OK) status = compute(t, counted, out, err);
    if (status != DCP_OK) return status;
    const double computed = MPI_Wtime();
    t->k->span(t->k, TIMELINE_OPTIMIZER);
    out->grad_norm =
        optim_norm_of_shards(t->layout, t->k, t->mesh.shards, t->state->grads, t->norm_scratch);
    status = ranks_agree(t->comm, check_finite(t, out, err), err);
    if (status != DCP_OK) return status;
    const double fence = MPI_Wtime();
    dcp_tiers_fence(t->stores);
    const double free_again = MPI_Wtime();
    out->lr = optim_schedule_lr(t->c, t->state->step + 1);
    t->k->span(t->k, TIMELINE_OPTIMIZER);
    status = update(t, out, err);
    t->k->span(t->k, KERNELS_NO_SPAN);
    if (t->c->offloads) status = ranks_agree(t->comm, status, err);
    timeline_add(&t->tl, TIMELINE_OPTIMIZER, -1, computed, fence);
    timeline_add(&t->tl, TIMELINE_STALL, -1, fence, free_again);
    timeline_add(&t->tl, TIMELINE_OPTIMIZER, -1, free_again, MPI_Wtime());
    step_collect_device_times(t);
    return status;
}

bool step_state_is_finite(const trainer *t) {
    return optim_is_finite(t->layout, t->k, t->mesh.shards, t->state->params, t->norm_scratch);
}
