/* Prepares a run. setup_plan comes first: it makes the checks that are cheap and fail most often,
 * without touching a checkpoint directory. setup_start continues with memory, stores and the
 * initial state. The ranks agree on a status after each part. */
#include "setup/setup.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "config/config.h"
#include "config/path_checks.h"
#include "data/data.h"
#include "data/joined_files.h"
#include "fsdp/fsdp.h"
#include "fsdp/gather.h"
#include "fsdp/transport.h"
#include "models/model.h"
#include "models/model_run.h"
#include "optim/grad_norm.h"
#include "optim/optim.h"
#include "programs/fail.h"
#include "programs/program.h"
#include "ranks/board.h"
#include "ranks/launcher.h"
#include "ranks/log.h"
#include "report/metrics.h"
#include "report/trace.h"
#include "setup/device.h"
#include "setup/disk_space.h"
#include "setup/model_setup.h"
#include "setup/rank_memory.h"
#include "state/carried_files.h"
#include "state/resume.h"
#include "state/train_state.h"
#include "step/evaluate.h"
#include "step/saves.h"
#include "step/trainer.h"
#include <dcp/comm.h>
#include <dcp/mpi.h>
#include <dcp/tiers.h>

/* Collective. Returns this rank's index among the ranks of its machine; they may share the
 * machine's devices. */
static unsigned rank_on_machine(MPI_Comm comm) {
    MPI_Comm machine;
    int number;
    MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
    MPI_Comm_rank(machine, &number);
    MPI_Comm_free(&machine);
    return (unsigned)number;
}

static int open_data(trainer *t, dcp_error *err) {
    const int status = setup_sequence(t->c, t->m, &t->sequence, err);
    if (status != DCP_OK) return status;
    t->shape = model_sample(t->m, t->sequence);
    const data_options options = {.type = t->c->data_type,
                                  .path = t->c->data_path,
                                  .dtype = t->c->data_dtype,
                                  .batch = t->c->batch,
                                  .shape = t->shape,
                                  .others = t->c->sources,
                                  .n_others = t->c->n_sources};
    return data_open(&options, &t->samples, err);
}

/* Checks that all ranks see the same data: ranks on several hosts may see different files under one
 * path. */
static int compare_data(const trainer *t, const data *samples, const char *key, const char *path,
                        dcp_error *err) {
    const uint64_t own = data_fingerprint(samples);
    uint64_t both[2] = {own, ~own};
    MPI_Allreduce(MPI_IN_PLACE, both, 2, MPI_UINT64_T, MPI_MIN, t->comm);
    if (both[0] == own && ~both[1] == own) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG, "%s: ranks see different data under %s", key, path);
}

/* Warns if the evaluation data are among the training data. This happens if the folder of the
 * training data also contains the held-out data. There is no warning for images, because data.path
 * uses only a part of such a folder, and none if both keys have the same path, because that is
 * intentional. */
static void warn_of_shared(const config *c, const char *key, const char *path) {
    if (strcmp(c->data_type, "idx") == 0 || strcmp(path, c->eval_path) == 0) return;
    char *file = data_files_shared(path, c->eval_path);
    if (file)
        ranks_warn(0,
                   "data.eval_path: %s is among the files of %s, so the model is trained on "
                   "evaluation data; move the file elsewhere, or name only the files to train on",
                   file, key);
    free(file);
}

static void warn_of_all_shared(const config *c) {
    char key[64];
    warn_of_shared(c, "data.path", c->data_path);
    for (size_t i = 0; i < c->n_sources; i++) {
        snprintf(key, sizeof key, "data.sources[%zu].path", i);
        warn_of_shared(c, key, c->sources[i].path);
    }
}

/* Collective. */
static int open_all_data(trainer *t, dcp_error *err) {
    const config *c = t->c;
    int status = ranks_agree(t->comm, open_data(t, err), err);
    if (status == DCP_OK) status = ranks_agree(t->comm, step_evaluate_open(t, err), err);
    if (status == DCP_OK)
        status =
            ranks_agree(t->comm, compare_data(t, t->samples, "data.path", c->data_path, err), err);
    if (status == DCP_OK && c->eval_path)
        status = ranks_agree(
            t->comm, compare_data(t, t->eval_samples, "data.eval_path", c->eval_path, err), err);
    if (status == DCP_OK && c->eval_path && t->rank == 0) warn_of_all_shared(c);
    return status == DCP_OK ? step_evaluate_check(t, err) : status;
}

/* Counts the operations per sample. Their number depends on which of the model's parameters are
 * trained; the layout records that. */
static int count_flops(trainer *t, dcp_error *err) {
    unsigned char *trained = malloc(t->layout->n_params), *next = trained;
    if (!trained) return core_fail_memory(err, t->layout->n_params);
    for (size_t u = 0; u < model_units(t->m); u++)
        for (size_t i = 0; i < model_unit_params(t->m, u); i++) {
            const fsdp_unit *unit = &t->layout->units[t->layout->unit_of[u]];
            *next++ = !unit->params[t->layout->first_of[u] + i].info.frozen;
        }
    t->sample_flops = model_flops_per_sample(t->m, t->sequence, trained);
    free(trained);
    return DCP_OK;
}

/* Makes the kernels and the state. number: this rank's index on its host. */
static int make_state(trainer *t, unsigned number, dcp_error *err) {
    int status = setup_device_open(t->c, number, &t->k, err);
    if (status != DCP_OK) return status;
    model_set_kernels(t->m, t->k);
    status = fsdp_layout_of_model(t->m, t->c->frozen, &t->plan.strategy, t->rank, t->world,
                                  &t->layout, err);
    t->plan.layout = t->layout;
    t->plan.micro_batches = config_micro_batches(t->c);
    t->plan.slot_bytes = optim_element_bytes(optim_type_find(t->c->optimizer));
    t->plan.offloads = t->c->offloads;
    t->plan.is_on_host = t->c->offloads && !t->c->offload_path;
    if (status == DCP_OK) status = optim_create(t->c, t->layout, t->k, &t->optimizer, err);
    if (status == DCP_OK) status = count_flops(t, err);
    return status;
}

/* Collective. Chooses how the kernels' memory is sent to other ranks. */
static int make_transport(trainer *t, dcp_error *err) {
    const int on_host = kernels_on_host(t->k);
    int both[2] = {on_host, !on_host};
    MPI_Allreduce(MPI_IN_PLACE, both, 2, MPI_INT, MPI_MAX, t->comm);
    if (both[0] && both[1])
        return core_fail(err, DCP_ERR_UNSUPPORTED,
                         "device: some ranks have a GPU and others have none; set device=cpu, "
                         "or start ranks only where GPUs are");
    const bool failed = fsdp_transport_choose(&t->mesh, t->k, t->plan.strategy.ring, &t->transport);
    return ranks_agree(t->comm, failed ? core_fail_memory(err, 0) : DCP_OK, err);
}

/* Checks what this rank finds on its own host: the tokenizer and the engine. */
static int check_host(const config *c, dcp_error *err) {
    dcp_error why;
    int status = c->tokenizer ? state_tokenizer_check(c->tokenizer, err) : DCP_OK;
    if (status != DCP_OK) return status;
    status = dcp_engine_check(c->engine, &why);
    return status == DCP_OK ? status : core_fail(err, status, "checkpoint.engine: %s", why.message);
}

/* Collective. Checks the tokenizer, the engine and the number of ranks. A
 * gradient_accumulation_steps that contradicts the number of ranks is an error at the start of a
 * run. A resumed run ignores the contradiction, because the number of ranks may have changed. */
static int check_start(const trainer *t, dcp_error *err) {
    bool resumes;
    int status = ranks_agree(t->comm, check_host(t->c, err), err);
    if (status == DCP_OK) status = state_resume_expected(t->c, t->dcp, &resumes, err);
    if (status != DCP_OK) return status;
    status = config_check_world(t->c, t->world, err);
    if (status == DCP_OK || !resumes) return status;
    ranks_warn(t->rank, "%s; ignored, since the run is resumed", err->message);
    return DCP_OK;
}

static void report_packed(const trainer *t) {
    uint64_t records;
    double share;
    data_packed(t->samples, &records, &share);
    ranks_info(t->rank,
               "%" PRIu64 " records are packed into these samples, and fill %.1f %% of them",
               records, 100 * share);
}

/* Writes a text such as " (3 files, 1.2 GB)" into text[64], or "" if the data are not text files.
 * Warns if a file contains a byte that no text has; the file is used nevertheless. */
static const char *describe_files(const trainer *t, const data *samples, const char *key,
                                  char *text) {
    data_contents found;
    char bytes[32];
    data_files_describe(samples, &found);
    if (found.binary)
        ranks_warn(t->rank,
                   "%s: %s has a NUL at byte %" PRIu64
                   ", which no text has; its bytes are used as tokens nevertheless: leave the file "
                   "out, or set data.type to the type of its data",
                   key, found.binary, found.nul);
    *text = '\0';
    if (found.files)
        snprintf(text, 64, " (%zu %s, %s)", found.files, found.files == 1 ? "file" : "files",
                 program_bytes_text(found.bytes, bytes));
    return text;
}

static void report_plan(const trainer *t) {
    const uint64_t micro_batches = config_micro_batches(t->c), world = (uint64_t)t->world;
    char files[64];
    describe_files(t, t->samples, "data.path", files);
    ranks_info(t->rank,
               "%.2f M parameters in %zu units on %d %s; "
               "%" PRIu64 " micro-batches per step, at most %" PRIu64 " per rank; %" PRIu64
               " samples per epoch%s; %s",
               (double)t->layout->total_params * 1e-6, t->layout->n, t->world,
               t->world == 1 ? "rank" : "ranks", micro_batches, (micro_batches + world - 1) / world,
               data_samples(t->samples), files, t->k->describe(t->k));
    if (t->shape.packed) report_packed(t);
    setup_idle_warn_of_ranks(t->c, t->rank, t->world);
    state_unused_tokenizer_warn(t->c, t->shape.classes, t->rank);
    if (strcmp(t->transport.name, "mpi") != 0 && t->world > 1)
        ranks_info(t->rank, "units and gradients travel by %s", t->transport.name);
    if (!t->eval_samples) return;
    describe_files(t, t->eval_samples, "data.eval_path", files);
    char often[64] = "";
    if (t->c->eval_every)
        snprintf(often, sizeof often, ", and every %" PRIu64 " steps", t->c->eval_every);
    ranks_info(t->rank, "%" PRIu64 " samples of %s are evaluated after the last step%s",
               data_samples(t->eval_samples), t->c->eval_path, often);
}

/* Collective. Begins about.json: the kernels and processors, the type of the data, and the
 * evaluation's data. */
static int begin_about(trainer *t, dcp_error *err) {
    char checksum[17];
    const int status = state_provenance_gather(t->comm, t->k->describe(t->k), &t->about, err);
    if (status != DCP_OK) return status;
    snprintf(checksum, sizeof checksum, "%016" PRIx64, t->c->given);
    json_object_set_new(t->about, STATE_CONFIG, json_string(checksum));
    json_object_set_new(t->about, STATE_DATA_TYPE, json_string(t->c->data_type));
    if (!t->eval_samples) return DCP_OK;
    snprintf(checksum, sizeof checksum, "%016" PRIx64, data_fingerprint(t->eval_samples));
    json_object_set_new(t->about, STATE_EVAL_DATA, json_string(checksum));
    return DCP_OK;
}

/* Collective. Normalizes images as the preprocessor of the state specifies. A run that began
 * without normalization continues without it. */
static int normalize_images(trainer *t, dcp_error *err) {
    sample_normalization how;
    if (t->shape.ndim != 3 || t->state->has_raw_images) return DCP_OK;
    const int status = state_preprocessor_read(t->state, t->comm, t->shape.dims[0], &how, err);
    if (status != DCP_OK || !how.channels) return status;
    t->state->normalizes = true;
    data_normalize(t->samples, &how);
    if (t->eval_samples) data_normalize(t->eval_samples, &how);
    ranks_info(t->rank,
               "bytes of images are normalized as in the model's preprocessor_config.json");
    return DCP_OK;
}

/* Collective. Names the run. A run that continues from a step has the name of the run that saved
 * the step. A new run has the name that dcp-run gave it, or a new one. */
static int name_run(trainer *t, dcp_error *err) {
    const train_state *s = t->state;
    char names[2][STATE_RUN_BYTES] = {"", ""};
    char *run = names[0], *launch = names[1];
    uint64_t number = 0;
    ranks_launcher_name(launch);
    if (s->is_own_run) memcpy(run, s->saved_by, STATE_RUN_BYTES);
    if (!*run) memcpy(run, launch, STATE_RUN_BYTES);
    if (!*run && getrandom(&number, sizeof number, 0) < 0)
        number = (uint64_t)(MPI_Wtime() * 1e6) ^ (uint64_t)getpid() << 40;
    if (!*run) snprintf(run, STATE_RUN_BYTES, "%016" PRIx64, number);
    MPI_Bcast(names, sizeof names, MPI_CHAR, 0, t->comm);
    MPI_Bcast(t->state->init, sizeof t->state->init, MPI_CHAR, 0, t->comm);
    const char *init = s->is_loaded ? s->init : t->c->init;
    if (*init) json_object_set_new(t->about, STATE_INIT, json_string(init));
    int failed = json_object_set_new(t->about, STATE_RUN, json_string(run));
    if (*launch) failed |= json_object_set_new(t->about, STATE_LAUNCH, json_string(launch));
    return ranks_agree(t->comm, failed ? core_fail_memory(err, 0) : DCP_OK, err);
}

/* Fails if dcp-run restarted the run, and the data are not the data that the run was trained on. */
static int check_data(const trainer *t, dcp_error *err) {
    if (!t->c->restarted || !t->state->has_other_data) return DCP_OK;
    return core_fail(err, DCP_ERR_IO,
                     "data.path: %s no longer holds the samples that the run was trained on: "
                     "restore them, or start the run again to continue with the present samples",
                     t->c->data_path);
}

/* Returns the exit status if data cannot be opened: as at any start, unless an earlier start could
 * use the same data. Damaged data are a usage error, because PROGRAM_DIFFERS is for checkpoints. */
static int data_status(const trainer *t, int status) {
    if (t->c->restarted) return PROGRAM_FAILED;
    return status == DCP_ERR_CORRUPT ? PROGRAM_USAGE : ranks_launcher_exit_status(status);
}

int setup_plan(trainer *t, const config *c, MPI_Comm comm, dcp_error *err) {
    *t = (trainer){.c = c, .comm = comm};
    MPI_Comm_rank(comm, &t->rank);
    MPI_Comm_size(comm, &t->world);
    int status = ranks_agree(comm, config_paths_check_environment(c, err), err);
    if (status == DCP_OK) status = ranks_agree(comm, setup_model(c, &t->m, err), err);
    if (status != DCP_OK) return ranks_launcher_exit_status(status);
    status = open_all_data(t, err);
    if (status != DCP_OK) return data_status(t, status);
    status = fsdp_strategy_of(c, t->world, &t->plan.strategy, err);
    if (status != DCP_OK) return ranks_launcher_exit_status(status);
    fsdp_mesh_create(comm, t->plan.strategy.replicas, &t->mesh);
    status = ranks_agree(comm, make_state(t, rank_on_machine(comm), err), err);
    if (status == DCP_OK) status = make_transport(t, err);
    if (status == DCP_OK) status = ranks_agree(comm, dcp_comm_from_mpi(comm, &t->dcp, err), err);
    if (status == DCP_OK) status = begin_about(t, err);
    if (status != DCP_OK) return ranks_launcher_exit_status(status);
    status = ranks_agree(comm, check_start(t, err), err);
    if (status == DCP_OK) report_plan(t);
    return ranks_launcher_exit_status(status);
}

void setup_end(trainer *t) {
    timeline_free(&t->tl);
    if (t->k) t->k->free(t->k, t->norm_scratch);
    free(t->logits);
    free(t->losses);
    free(t->inputs.places);
    free(t->inputs.targets);
    free(t->inputs.values);
    free(t->inputs.ids);
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
    json_decref(t->about);
    model_destroy(t->m);
    kernels_close(t->k);
}

static resume_from beginning(const trainer *t) {
    return (resume_from){.c = t->c,
                         .m = t->m,
                         .layout = t->layout,
                         .optimizer = optim_type_find(t->c->optimizer),
                         .epoch_samples = data_samples(t->samples),
                         .sequence = t->sequence,
                         .fingerprint = data_fingerprint(t->samples),
                         .provenance = t->about,
                         .comm = t->comm,
                         .dcp = t->dcp,
                         .stores = t->stores};
}

/* Called by rank 0 only. */
static int check_own_files(const trainer *t, dcp_error *err) {
    const char *lines = t->c->metrics, *events = t->trace;
    int status = lines ? config_paths_check_writable(t->c, "metrics", lines, err) : DCP_OK;
    if (status == DCP_OK && lines) status = report_file_check(lines, err);
    if (status == DCP_OK && events)
        status = config_paths_check_writable(t->c, "--trace", events, err);
    return status == DCP_OK && events ? report_trace_check(events, err) : status;
}

/* Checks that the stores are free, so that a run could open them now. */
static int check_stores(const trainer *t, dcp_error *err) {
    dcp_error why;
    int status = DCP_OK;
    for (size_t i = 0; i < t->c->n_stores && status == DCP_OK; i++) {
        status = dcp_store_check_free(t->c->stores[i].path, &why);
        if (status != DCP_OK) status = state_resume_fail_directory(t->c, status, &why, err);
    }
    return status;
}

static int check_places(const trainer *t, dcp_error *err) {
    int hosts = 0, status = dcp_comm_hosts(t->dcp, &hosts, NULL, err);
    if (status == DCP_OK) status = config_paths_check_hosts(t->c, hosts, t->world, err);
    if (status == DCP_OK) status = config_paths_check_open(t->c, err);
    if (status == DCP_OK && t->rank == 0) status = check_own_files(t, err);
    return ranks_agree(t->comm, status, err);
}

/* Collective. */
static int check_disk_space(const trainer *t, dcp_error *err) {
    int hosts = 0;
    int status = dcp_comm_hosts(t->dcp, &hosts, NULL, err);
    if (status == DCP_OK && t->rank == 0) status = setup_space_check(t->c, t->layout, hosts, err);
    return ranks_agree(t->comm, status, err);
}

int setup_dry_run(trainer *t, dcp_error *err) {
    const resume_from from = beginning(t);
    int status = check_places(t, err);
    if (status == DCP_OK && t->plan.offloads && !t->plan.is_on_host)
        status = ranks_agree(t->comm, state_check_offload(t->c->offload_path, err), err);
    if (status == DCP_OK) status = state_resume_preview(&from, err);
    if (status == DCP_OK) status = ranks_agree(t->comm, check_stores(t, err), err);
    if (status == DCP_OK) status = check_disk_space(t, err);
    return ranks_launcher_exit_status(status);
}

/* Allocates n samples: 4 bytes for each token, input number, target and place. */
static int make_samples(trainer *t, uint64_t n, dcp_error *err) {
    const sample_shape *s = &t->shape;
    const uint64_t values = model_sample_values(s), ids = model_sample_ids(s);
    const uint64_t most = ids > values ? ids : values;
    if (most > SIZE_MAX / 4 / n) return core_fail_memory(err, SIZE_MAX);
    if (ids) t->inputs.ids = malloc(n * ids * sizeof *t->inputs.ids);
    if (values) t->inputs.values = malloc(n * values * sizeof *t->inputs.values);
    t->inputs.targets = malloc(n * s->targets * sizeof *t->inputs.targets);
    if (s->packed) t->inputs.places = malloc(n * s->tokens * sizeof *t->inputs.places);
    if ((t->inputs.ids || !ids) && (t->inputs.values || !values) && t->inputs.targets &&
        (t->inputs.places || !s->packed))
        return DCP_OK;
    return core_fail_memory(err, n * most * 4);
}

static int make_inputs(trainer *t, dcp_error *err) {
    const uint64_t losses = config_micro_batches(t->c) * model_sample_losses(&t->shape);
    const size_t scratch = optim_norm_scratch_bytes(t->layout);
    t->losses = malloc(losses * sizeof *t->losses);
    t->norm_scratch = t->k->alloc(t->k, scratch);
    if (!t->losses || !t->norm_scratch)
        return core_fail_memory(err, losses * sizeof *t->losses + scratch);
    return make_samples(t, fsdp_micro_steps(t->sharded) * t->c->micro, err);
}

/* Collective. Decides whether the ranks of a group share one copy of gathered units. Parameters may
 * be stored in the same memory. */
static void share_units(trainer *t) {
    const bool can = t->c->shares_memory && kernels_on_host(t->k);
    t->plan.is_shared = true;
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
    if (status == DCP_OK) status = make_inputs(t, err);
    const bool trains =
        status == DCP_OK && fsdp_own_micro_batch(t->sharded, 0) < t->plan.micro_batches;
    if (status == DCP_OK && (trains || (uint64_t)t->rank < step_evaluate_micro_batches(t)))
        status = model_run_create(t->m, t->c->micro, t->sequence, &t->run, err);
    if (status == DCP_OK) status = step_evaluate_prepare(t, err);
    if (t->run) model_run_set_poll(t->run, fsdp_poll, t->sharded);
    if (status == DCP_OK) status = state_register(t->state, STATE_ALL, &t->registered, err);
    return status;
}

/* Predicts the memory of a rank. The report shows it beside the measured peak. */
static int predict(trainer *t, dcp_error *err) {
    setup_memory m;
    const uint64_t files = state_files_bytes(t->state);
    const int status = setup_memory_predict(t->c, t->m, &t->plan, t->sequence, files, &m, err);
    if (status != DCP_OK) return status;
    t->memory_bytes = setup_memory_sum(&m);
    t->staging_bytes = m.staging;
    ranks_info(t->rank,
               "memory per rank, in MiB: %.1f parameters, gradients and moments; %.1f gathered "
               "units; %.1f "
               "activations; %.1f partial sums",
               setup_mib(m.params + m.grads + m.slots), setup_mib(m.units),
               setup_mib(m.activations), setup_mib(m.partial));
    if (setup_mib(files) >= 1.0)
        ranks_info(t->rank, "files that checkpoints carry, in MiB: %.1f per rank",
                   setup_mib(files));
    return DCP_OK;
}

static void report_offload(const trainer *t) {
    const double offloaded = setup_mib(fsdp_plan_memory(&t->plan).offloaded);
    if (t->plan.is_on_host)
        ranks_info(t->rank, "%.1f MiB of parameters and moments per rank are in the host's memory",
                   offloaded);
    else if (t->c->offloads)
        ranks_info(t->rank, "%.1f MiB of parameters and moments per rank are in a file in %s",
                   offloaded, t->c->offload_path);
}

static int make_shards(trainer *t, dcp_error *err) {
    int status = setup_device_memory(t->k, &t->device, err);
    if (status != DCP_OK) return status;
    status = state_create(t->layout, optim_type_find(t->c->optimizer), t->k, t->device,
                          fsdp_gather_shared_params(&t->plan, t->shared), t->c->offloads,
                          t->c->offload_path, &t->state, err);
    return setup_memory_explain(t, status, err);
}

/* Returns true if the peak is measured after the first step: ranks that dcp-run restarts should
 * resume training without delay. Never true on a GPU, because the operands are large there, and fit
 * only before the state is allocated. */
static bool waits_with_peak(const trainer *t) {
    return (t->c->restarted || t->c->takes_over) && kernels_on_host(t->k);
}

void setup_measure_peak(trainer *t) {
    if (t->is_peak_known) return;
    t->matmul_peak = setup_device_peak(t->k, model_type(t->m), t->comm);
    t->is_peak_known = true;
}

int setup_start(trainer *t, dcp_error *err) {
    int status = check_places(t, err);
    if (status != DCP_OK) return ranks_launcher_exit_status(status);
    if (!waits_with_peak(t)) setup_measure_peak(t); /* before memory is allocated for the state */
    status = setup_memory_check(t, err);
    if (status == DCP_OK) share_units(t);
    if (status == DCP_OK) status = ranks_agree(t->comm, make_shards(t, err), err);
    if (status != DCP_OK) return ranks_launcher_exit_status(status);
    status = setup_open_stores(t, err);
    if (status == DCP_OK) status = check_disk_space(t, err);
    if (status != DCP_OK) return ranks_launcher_exit_status(status);
    report_offload(t);
    setup_idle_report_cores(t->k, t->c, t->comm);
    const resume_from from = beginning(t);
    ranks_board_reach(RANKS_PHASE_READY);
    status = state_resume(&from, t->state, err);
    ranks_board_reach(RANKS_PHASE_LOADED);
    if (status == DCP_OK) ranks_board_step(t->state->step, 0);
    if (status == DCP_OK) status = check_data(t, err);
    if (status == DCP_OK && t->c->tokenizer)
        status = ranks_agree(t->comm, state_tokenizer_keep(t->state, t->c->tokenizer, err), err);
    if (status == DCP_OK) status = normalize_images(t, err);
    if (status == DCP_OK) status = name_run(t, err);
    if (status == DCP_OK)
        status = ranks_agree(t->comm, setup_memory_explain(t, make_work(t, err), err), err);
    if (status == DCP_OK) status = ranks_agree(t->comm, step_saves_prepare(t, err), err);
    if (status == DCP_OK) status = ranks_agree(t->comm, predict(t, err), err);
    return ranks_launcher_exit_status(status);
}
