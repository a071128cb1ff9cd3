/* Preparing a run. The order puts what is cheap and most often wrong first, and touches the
 * checkpoint directory only when nothing else can fail any more. Ranks agree after each part. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../agree.h"
#include "../config/places.h"
#include "../fail.h"
#include "../optim/norm.h"
#include "../say.h"
#include "../state/resume.h"
#include "dcp/mpi.h"
#include "device.h"
#include "evaluate.h"
#include "memory.h"
#include "room.h"
#include "subject.h"
#include "trainer.h"
#include "usage.h"

int trainer_exit_status(int status) {
    switch (status) {
    case DCP_OK:
        return EXIT_DONE;
    case DCP_ERR_CORRUPT:
        return EXIT_CORRUPT;
    case DCP_ERR_IO:
    case DCP_ERR_NO_SPACE:
    case DCP_ERR_COMM:
    case DCP_ERR_NO_MEMORY:
    case DCP_ERR_DEVICE:
        return EXIT_FAILED;
    default:
        return EXIT_USAGE;
    }
}

static int open_data(trainer *t, dcp_error *err) {
    const int status = subject_sequence(t->c, t->m, &t->sequence, err);
    if (status != DCP_OK) return status;
    t->shape = model_sample(t->m, t->sequence);
    const data_options options = {.type = t->c->data_type,
                                  .path = t->c->data_path,
                                  .dtype = t->c->data_dtype,
                                  .batch = t->c->batch,
                                  .shape = t->shape};
    return data_open(&options, &t->samples, err);
}

/* Ranks of several hosts may see different files under one path. */
static int compare_data(const trainer *t, const data *samples, const char *key, const char *path,
                        dcp_error *err) {
    const uint64_t own = data_fingerprint(samples);
    uint64_t both[2] = {own, ~own};
    MPI_Allreduce(MPI_IN_PLACE, both, 2, MPI_UINT64_T, MPI_MIN, t->comm);
    if (both[0] == own && ~both[1] == own) return DCP_OK;
    return trainer_fail(err, DCP_ERR_ARG, "%s: ranks see different files or sizes under %s", key,
                        path);
}

/* Collective. */
static int open_all_data(trainer *t, dcp_error *err) {
    const config *c = t->c;
    int status = agree(t->comm, open_data(t, err), err);
    if (status == DCP_OK) status = agree(t->comm, evaluate_open(t, err), err);
    if (status == DCP_OK)
        status = agree(t->comm, compare_data(t, t->samples, "data.path", c->data_path, err), err);
    if (status == DCP_OK && c->eval_path)
        status = agree(t->comm,
                       compare_data(t, t->eval_samples, "data.eval_path", c->eval_path, err), err);
    return status;
}

/* This rank's number among those of its host. */
static unsigned number_on_host(MPI_Comm comm) {
    MPI_Comm host;
    int number;
    MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &number);
    MPI_Comm_free(&host);
    return (unsigned)number;
}

/* Hosts of the ranks. */
static int count_hosts(MPI_Comm comm) {
    const int is_first = number_on_host(comm) == 0;
    int hosts;
    MPI_Allreduce(&is_first, &hosts, 1, MPI_INT, MPI_SUM, comm);
    return hosts;
}

/* number: of this rank on its host. */
static int make_state(trainer *t, unsigned number, dcp_error *err) {
    int status = device_open(t->c, number, &t->k, err);
    if (status != DCP_OK) return status;
    model_set_kernels(t->m, t->k);
    status = fsdp_layout_of_model(t->m, t->c->frozen, &t->plan.strategy, t->rank, t->world,
                                  &t->layout, err);
    t->plan.layout = t->layout;
    t->plan.leaves = config_leaves(t->c);
    t->plan.offloads = t->c->offloads;
    t->plan.is_apart = t->c->offloads && !t->c->offload_path;
    if (status == DCP_OK) status = adamw_create(t->c, t->layout, t->k, &t->optimizer, err);
    return status;
}

/* Collective: how the memory of the kernels gets to other ranks. */
static int make_transport(trainer *t, dcp_error *err) {
    const int on_host = kernels_on_host(t->k);
    int both[2] = {on_host, !on_host};
    MPI_Allreduce(MPI_IN_PLACE, both, 2, MPI_INT, MPI_MAX, t->comm);
    if (both[0] && both[1])
        return trainer_fail(err, DCP_ERR_UNSUPPORTED,
                            "device: some ranks have a GPU and others have none; set device=cpu, "
                            "or start ranks only where GPUs are");
    const int failed = fsdp_transport_choose(&t->mesh, t->k, &t->transport);
    return agree(t->comm, failed ? trainer_fail_memory(err, 0) : DCP_OK, err);
}

/* An accumulation that the number of ranks contradicts is a mistake at the start of a run; later it
 * is what is left of another number of ranks. */
static int check_start(const trainer *t, dcp_error *err) {
    int resumes;
    int status = resume_expected(t->c, t->dcp, &resumes, err);
    if (status != DCP_OK) return status;
    status = config_check_world(t->c, t->world, err);
    if (status == DCP_OK || !resumes) return status;
    say_warning(t->rank, "%s; ignored, since the run is resumed", err->message);
    return DCP_OK;
}

static void tell_plan(const trainer *t) {
    const uint64_t leaves = config_leaves(t->c), world = (uint64_t)t->world;
    say(t->rank,
        "%.2f M parameters in %zu units on %d %s; "
        "%" PRIu64 " micro-batches a step, at most %" PRIu64 " a rank; %" PRIu64
        " samples an epoch; %s",
        (double)t->layout->total_params * 1e-6, t->layout->n, t->world,
        t->world == 1 ? "rank" : "ranks", leaves, (leaves + world - 1) / world,
        data_samples(t->samples), t->k->describe(t->k));
    if (strcmp(t->transport.name, "mpi") != 0 && t->world > 1)
        say(t->rank, "units and gradients travel by %s", t->transport.name);
    if (t->eval_samples)
        say(t->rank, "%" PRIu64 " samples of %s are evaluated after the last step%s",
            data_samples(t->eval_samples), t->c->eval_path,
            t->c->eval_every ? ", and every eval_every steps" : "");
}

int trainer_plan(trainer *t, const config *c, MPI_Comm comm, dcp_error *err) {
    *t = (trainer){.c = c, .comm = comm};
    MPI_Comm_rank(comm, &t->rank);
    MPI_Comm_size(comm, &t->world);
    int status = agree(comm, subject_model(c, &t->m, err), err);
    if (status != DCP_OK) return trainer_exit_status(status);
    status = open_all_data(t, err);
    if (status != DCP_OK) return status == DCP_ERR_NO_MEMORY ? EXIT_FAILED : EXIT_USAGE;
    status = fsdp_strategy_of(c, t->world, &t->plan.strategy, err);
    if (status != DCP_OK) return EXIT_USAGE;
    fsdp_mesh_create(comm, t->plan.strategy.replicas, &t->mesh);
    status = agree(comm, make_state(t, number_on_host(comm), err), err);
    if (status == DCP_OK) status = make_transport(t, err);
    if (status == DCP_OK) status = agree(comm, dcp_comm_from_mpi(comm, &t->dcp, err), err);
    if (status != DCP_OK) return trainer_exit_status(status);
    status = agree(comm, check_start(t, err), err);
    if (status == DCP_OK) tell_plan(t);
    return trainer_exit_status(status);
}

static resume_from beginning(const trainer *t) {
    return (resume_from){.c = t->c,
                         .m = t->m,
                         .layout = t->layout,
                         .epoch_samples = data_samples(t->samples),
                         .sequence = t->sequence,
                         .kernels = t->k->describe(t->k),
                         .comm = t->comm,
                         .dcp = t->dcp,
                         .stores = t->stores};
}

/* What a start would stumble over where it opens stores and files. */
static int check_places(const trainer *t, dcp_error *err) {
    int status = places_check_hosts(t->c, count_hosts(t->comm), t->world, err);
    if (status == DCP_OK && t->rank == 0 && t->c->metrics)
        status = places_check_writable("metrics", t->c->metrics, err);
    if (status == DCP_OK && t->rank == 0 && t->trace)
        status = places_check_writable("--trace", t->trace, err);
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
    if (most > SIZE_MAX / 4 / n) return trainer_fail_memory(err, SIZE_MAX);
    if (s->tokens) t->leaves.ids = malloc(n * s->tokens * sizeof *t->leaves.ids);
    if (values) t->leaves.values = malloc(n * values * sizeof *t->leaves.values);
    t->leaves.targets = malloc(n * s->targets * sizeof *t->leaves.targets);
    if ((t->leaves.ids || t->leaves.values) && t->leaves.targets) return DCP_OK;
    return trainer_fail_memory(err, n * most * 4);
}

static int make_leaves(trainer *t, dcp_error *err) {
    const uint64_t leaves = config_leaves(t->c);
    const size_t scratch = norm_scratch_bytes(t->layout);
    t->losses = malloc(leaves * sizeof *t->losses);
    t->norm_scratch = t->k->alloc(t->k, scratch);
    if (!t->losses || !t->norm_scratch)
        return trainer_fail_memory(err, leaves * sizeof *t->losses + scratch);
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
    const int trains = status == DCP_OK && fsdp_own_leaf(t->sharded, 0) < t->plan.leaves;
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
    status =
        state_create(t->layout, t->k, t->device, fsdp_gather_shared_params(&t->plan, t->shared),
                     t->c->offloads, t->c->offload_path, &t->state, err);
    return room_explain(t, status, err);
}

int trainer_start(trainer *t, dcp_error *err) {
    t->matmul_peak = usage_matmul_peak(t->k, model_type(t->m), t->comm); /* its memory goes first */
    int status = room_check(t, err);
    if (status == DCP_OK) share_units(t);
    if (status == DCP_OK) status = agree(t->comm, make_shards(t, err), err);
    if (status != DCP_OK) return trainer_exit_status(status);
    status = open_stores(t, err);
    if (status != DCP_OK) return trainer_exit_status(status);
    tell_offload(t);
    const resume_from from = beginning(t);
    status = resume(&from, t->state, err);
    if (status == DCP_OK) status = agree(t->comm, room_explain(t, make_work(t, err), err), err);
    if (status == DCP_OK) status = agree(t->comm, predict(t, err), err);
    return trainer_exit_status(status);
}

void trainer_end(trainer *t) {
    timeline_free(&t->tl);
    if (t->k) t->k->free(t->k, t->norm_scratch);
    free(t->logits);
    free(t->losses);
    free(t->leaves.targets);
    free(t->leaves.values);
    free(t->leaves.ids);
    if (t->registered) dcp_state_destroy(t->registered);
    model_run_destroy(t->run);
    fsdp_destroy(t->sharded);
    if (t->transport.destroy) t->transport.destroy(&t->transport);
    dcp_tiers_close(t->stores);
    dcp_comm_destroy(t->dcp);
    state_destroy(t->state);
    dcp_host_memory_free(t->shared, t->shared_bytes);
    dcp_device_cuda_destroy(t->device);
    adamw_destroy(t->optimizer);
    fsdp_layout_destroy(t->layout);
    fsdp_mesh_free(&t->mesh);
    if (t->eval_samples) data_close(t->eval_samples);
    data_close(t->samples);
    model_destroy(t->m);
    kernels_close(t->k);
}
