/* Preparing a run, second part, after setup.c: memory, stores and the state to start from; or only
 * to say what that would be. Ranks agree after each step. */
#include <stdlib.h>

#include "common/agree.h"
#include "common/say.h"
#include "config/places.h"
#include "fsdp/gather_shared.h"
#include "optim/norm.h"
#include "programs/fail.h"
#include "report/metrics.h"
#include "report/trace.h"
#include "report/usage.h"
#include "setup/device.h"
#include "setup/hosts.h"
#include "setup/memory.h"
#include "setup/room.h"
#include "state/resume.h"
#include "step/evaluate.h"
#include "step/saves.h"
#include "step/trainer.h"
#include <dcp/mpi.h>

static resume_from beginning(const trainer *t) {
    return (resume_from){.c = t->c,
                         .m = t->m,
                         .layout = t->layout,
                         .optimizer = optim_type_find(t->c->optimizer),
                         .epoch_samples = data_samples(t->samples),
                         .sequence = t->sequence,
                         .kernels = t->k->describe(t->k),
                         .comm = t->comm,
                         .dcp = t->dcp,
                         .stores = t->stores};
}

/* Of rank 0. */
static int check_own_files(const trainer *t, dcp_error *err) {
    const char *lines = t->c->metrics, *events = t->trace;
    int status = lines ? places_check_writable(t->c, "metrics", lines, err) : DCP_OK;
    if (status == DCP_OK && lines) status = metrics_check(lines, err);
    if (status == DCP_OK && events) status = places_check_writable(t->c, "--trace", events, err);
    return status == DCP_OK && events ? trace_check(events, err) : status;
}

static int check_places(const trainer *t, dcp_error *err) {
    int status = places_check_hosts(t->c, hosts_count(t->comm), t->world, err);
    if (status == DCP_OK && t->rank == 0) status = check_own_files(t, err);
    return agree(t->comm, status, err);
}

int trainer_foretell(trainer *t, dcp_error *err) {
    const resume_from from = beginning(t);
    int status = resume_foretell(&from, err);
    if (status == DCP_OK) status = check_places(t, err);
    return trainer_exit_status(status);
}

static int open_stores(trainer *t, dcp_error *err) {
    const dcp_tiers_options options = {
        .tool = "dcp-train", .log = say_log, .on_filled = timeline_add_fill, .filled_ctx = &t->tl};
    dcp_error why;
    const int status =
        dcp_tiers_open(t->dcp, t->c->stores, t->c->n_stores, &options, &t->stores, &why);
    return status == DCP_OK ? DCP_OK : resume_fail_directory(t->c, status, &why, err);
}

/* Memory of n samples, of 4 bytes a token, number and target. */
static int make_samples(trainer *t, uint64_t n, dcp_error *err) {
    const sample_shape *s = &t->shape;
    const uint64_t values = sample_values(s), most = s->tokens > values ? s->tokens : values;
    if (most > SIZE_MAX / 4 / n) return core_fail_memory(err, SIZE_MAX);
    if (s->tokens) t->leaves.ids = malloc(n * s->tokens * sizeof *t->leaves.ids);
    if (values) t->leaves.values = malloc(n * values * sizeof *t->leaves.values);
    t->leaves.targets = malloc(n * s->targets * sizeof *t->leaves.targets);
    if ((t->leaves.ids || t->leaves.values) && t->leaves.targets) return DCP_OK;
    return core_fail_memory(err, n * most * 4);
}

static int make_leaves(trainer *t, dcp_error *err) {
    const uint64_t leaves = config_leaves(t->c);
    const size_t scratch = norm_scratch_bytes(t->layout);
    t->losses = malloc(leaves * sizeof *t->losses);
    t->norm_scratch = t->k->alloc(t->k, scratch);
    if (!t->losses || !t->norm_scratch)
        return core_fail_memory(err, leaves * sizeof *t->losses + scratch);
    return make_samples(t, fsdp_micro_steps(t->sharded) * t->c->micro, err);
}

/* Collective: whether gathered units are held once by the ranks of a group. Parameters may be
 * stored in that memory. */
static void share_units(trainer *t) {
    const int can = t->c->shares_memory && kernels_on_host(t->k);
    t->plan.is_shared = 1;
    t->shared_bytes = can ? fsdp_gather_shared_bytes(&t->plan) : 0;
    t->shared = dcp_host_memory_create(t->mesh.shards, t->shared_bytes);
    t->plan.is_shared = t->shared != NULL;
}

static int make_work(trainer *t, dcp_error *err) {
    const fsdp_ways ways = {&t->mesh, &t->transport, t->shared};
    int status = fsdp_create(t->m, &t->plan, &ways, t->k, &t->tl, t->state->params, t->state->grads,
                             &t->sharded, err);
    if (status == DCP_OK && t->state->offloaded)
        fsdp_set_done(t->sharded, state_release_unit, t->state);
    if (status == DCP_OK) status = make_leaves(t, err);
    const int trains =
        status == DCP_OK && fsdp_own_micro_batch(t->sharded, 0) < t->plan.micro_batches;
    if (status == DCP_OK && (trains || (uint64_t)t->rank < evaluate_leaves(t)))
        status = model_run_create(t->m, t->c->micro, t->sequence, &t->run, err);
    if (status == DCP_OK) status = evaluate_prepare(t, err);
    if (t->run) model_run_set_poll(t->run, fsdp_poll, t->sharded);
    if (status == DCP_OK) status = state_register(t->state, STATE_ALL, &t->registered, err);
    return status;
}

static double mib(uint64_t bytes) { return (double)bytes / 1048576; }

/* What a rank will need, with the partial sums of the one with most. Kept, to stand beside what was
 * measured. */
static int predict(trainer *t, dcp_error *err) {
    memory m;
    const int status = memory_predict(t->c, t->m, &t->plan, t->sequence, &m, err);
    if (status != DCP_OK) return status;
    t->memory_bytes = memory_sum(&m);
    t->staging_bytes = m.staging;
    say(t->rank,
        "memory a rank, in MiB: %.1f parameters, gradients and moments; %.1f gathered units; %.1f "
        "activations; %.1f partial sums",
        mib(m.params + m.grads + m.moments), mib(m.units), mib(m.activations), mib(m.partial));
    return DCP_OK;
}

static void tell_offload(const trainer *t) {
    const double offloaded = mib(fsdp_plan_memory(&t->plan).offloaded);
    if (t->plan.is_apart)
        say(t->rank, "%.1f MiB of parameters and moments a rank lie in the host's memory",
            offloaded);
    else if (t->c->offloads)
        say(t->rank, "%.1f MiB of parameters and moments a rank lie in a file in %s", offloaded,
            t->c->offload_path);
}

static int make_shards(trainer *t, dcp_error *err) {
    int status = device_memory(t->k, &t->device, err);
    if (status != DCP_OK) return status;
    status = state_create(t->layout, optim_type_find(t->c->optimizer), t->k, t->device,
                          fsdp_gather_shared_params(&t->plan, t->shared), t->c->offloads,
                          t->c->offload_path, &t->state, err);
    return room_explain(t, status, err);
}

int trainer_start(trainer *t, dcp_error *err) {
    int status = check_places(t, err);
    if (status != DCP_OK) return trainer_exit_status(status);
    t->matmul_peak = usage_matmul_peak(t->k, model_type(t->m), t->comm); /* its memory goes first */
    status = room_check(t, err);
    if (status == DCP_OK) share_units(t);
    if (status == DCP_OK) status = agree(t->comm, make_shards(t, err), err);
    if (status != DCP_OK) return trainer_exit_status(status);
    status = open_stores(t, err);
    if (status != DCP_OK) return trainer_exit_status(status);
    tell_offload(t);
    const resume_from from = beginning(t);
    status = resume(&from, t->state, err);
    if (status == DCP_OK) status = agree(t->comm, room_explain(t, make_work(t, err), err), err);
    if (status == DCP_OK) status = agree(t->comm, saves_prepare(t, err), err);
    if (status == DCP_OK) status = agree(t->comm, predict(t, err), err);
    return trainer_exit_status(status);
}
