/* Preparing a run, first part: the plan. What is cheap and most often wrong is checked first, and
 * no checkpoint directory is touched; start.c goes on from there. Ranks agree after each step. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/agree.h"
#include "common/say.h"
#include "fsdp/transports.h"
#include "programs/fail.h"
#include "setup/device.h"
#include "setup/hosts.h"
#include "setup/subject.h"
#include "state/resume.h"
#include "step/evaluate.h"
#include "step/trainer.h"
#include <dcp/mpi.h>

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
    return core_fail(err, DCP_ERR_ARG, "%s: ranks see different files or sizes under %s", key,
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

/* number: of this rank on its host. */
static int make_state(trainer *t, unsigned number, dcp_error *err) {
    int status = device_open(t->c, number, &t->k, err);
    if (status != DCP_OK) return status;
    model_set_kernels(t->m, t->k);
    status = fsdp_layout_of_model(t->m, t->c->frozen, &t->plan.strategy, t->rank, t->world,
                                  &t->layout, err);
    t->plan.layout = t->layout;
    t->plan.micro_batches = config_leaves(t->c);
    t->plan.slot_bytes = optim_element_bytes(optim_type_find(t->c->optimizer));
    t->plan.offloads = t->c->offloads;
    t->plan.is_apart = t->c->offloads && !t->c->offload_path;
    if (status == DCP_OK) status = optim_create(t->c, t->layout, t->k, &t->optimizer, err);
    return status;
}

/* Collective: how the memory of the kernels gets to other ranks. */
static int make_transport(trainer *t, dcp_error *err) {
    const int on_host = kernels_on_host(t->k);
    int both[2] = {on_host, !on_host};
    MPI_Allreduce(MPI_IN_PLACE, both, 2, MPI_INT, MPI_MAX, t->comm);
    if (both[0] && both[1])
        return core_fail(err, DCP_ERR_UNSUPPORTED,
                         "device: some ranks have a GPU and others have none; set device=cpu, "
                         "or start ranks only where GPUs are");
    const int failed = fsdp_transport_choose(&t->mesh, t->k, t->plan.strategy.ring, &t->transport);
    return agree(t->comm, failed ? core_fail_memory(err, 0) : DCP_OK, err);
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

/* Ranks without a micro-batch hold their part of the state, and wait for the others. */
static void warn_of_idle(const trainer *t, uint64_t leaves) {
    if ((uint64_t)t->world > leaves)
        say_warning(t->rank,
                    "%" PRIu64 " of %d ranks have nothing to compute: train_batch_size %" PRIu64
                    " by train_micro_batch_size_per_gpu %" PRIu64 " makes %" PRIu64
                    " micro-batches a step; a smaller micro-batch or a larger batch makes more",
                    (uint64_t)t->world - leaves, t->world, t->c->batch, t->c->micro, leaves);
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
    warn_of_idle(t, leaves);
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
    status = agree(comm, make_state(t, hosts_number(comm), err), err);
    if (status == DCP_OK) status = make_transport(t, err);
    if (status == DCP_OK) status = agree(comm, dcp_comm_from_mpi(comm, &t->dcp, err), err);
    if (status != DCP_OK) return trainer_exit_status(status);
    status = agree(comm, check_start(t, err), err);
    if (status == DCP_OK) tell_plan(t);
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
    optim_destroy(t->optimizer);
    fsdp_layout_destroy(t->layout);
    fsdp_mesh_free(&t->mesh);
    if (t->eval_samples) data_close(t->eval_samples);
    data_close(t->samples);
    model_destroy(t->m);
    kernels_close(t->k);
}
