#include "setup/rank_memory.h"

#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "config/config.h"
#include "fsdp/gather.h"
#include "fsdp/mesh.h"
#include "models/model_run.h"
#include "optim/grad_norm.h"
#include "programs/fail.h"
#include "ranks/log.h"
#include "step/trainer.h"

static uint64_t smaller_of(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Reads a limit of a control group. Returns UINT64_MAX, no limit, if the file contains "max" or is
 * missing; the topmost group has no such file. */
static uint64_t read_limit(const char *folder, const char *group, const char *name) {
    char path[PATH_MAX];
    uint64_t bytes = UINT64_MAX;
    FILE *file = NULL;
    const int length = snprintf(path, sizeof path, "%s%s/%s", folder, group, name);
    if (length > 0 && (size_t)length < sizeof path) file = fopen(path, "re");
    if (!file) return UINT64_MAX;
    if (fscanf(file, "%" SCNu64, &bytes) != 1) bytes = UINT64_MAX;
    fclose(file);
    return bytes;
}

/* Returns the smallest limit of the group and of the groups that contain it. Inside a container the
 * topmost group is the container's own, whatever its name is outside. */
static uint64_t find_limit(const char *folder, char *group, const char *name) {
    uint64_t bytes = read_limit(folder, group, name);
    for (char *end = strrchr(group, '/'); end; end = strrchr(group, '/')) {
        *end = '\0';
        bytes = smaller_of(bytes, read_limit(folder, group, name));
    }
    return bytes;
}

/* Returns the smallest limit of all groups of this process. /proc/self/cgroup has lines of the form
 * "NUMBER:CONTROLLERS:GROUP"; CONTROLLERS is empty for version 2. */
static uint64_t find_limit_of_groups(void) {
    char line[PATH_MAX + 256];
    uint64_t bytes = UINT64_MAX;
    FILE *groups = fopen("/proc/self/cgroup", "re");
    while (groups && fgets(line, sizeof line, groups)) {
        char *controllers = strchr(line, ':'), *group = controllers;
        if (controllers) group = strchr(++controllers, ':');
        if (!group) continue;
        *group++ = '\0';
        group[strcspn(group, "\n")] = '\0';
        if (!*controllers)
            bytes = smaller_of(bytes, find_limit("/sys/fs/cgroup", group, "memory.max"));
        else if (strcmp(controllers, "memory") == 0)
            bytes = smaller_of(bytes,
                               find_limit("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes"));
    }
    if (groups) fclose(groups);
    return bytes;
}

setup_machine_memory setup_machine_memory_find(void) {
    struct rlimit limit;
    const uint64_t of_group = find_limit_of_groups();
    setup_machine_memory found = {.all = (uint64_t)sysconf(_SC_PHYS_PAGES) *
                                         (uint64_t)sysconf(_SC_PAGESIZE),
                                  .of_process = UINT64_MAX};
    found.is_of_group = of_group < found.all;
    found.all = smaller_of(found.all, of_group);
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
        found.of_process = limit.rlim_cur;
    return found;
}

/* The memory of the program itself: its code, its libraries and MPI. Measured on Debian 12. */
static const uint64_t program_bytes = (uint64_t)38 << 20;
static const uint64_t messages_bytes = (uint64_t)4 << 20; /* for messages of MPI and libdcp */
/* Mapped pages of offloaded parts during an update or a save: 16 MiB in use, and 3 to 10 MiB that
 * the kernel maps around them. */
static const uint64_t paged_bytes = (uint64_t)22 << 20;
static const uint64_t save_buffers = (uint64_t)16 << 20; /* dcp/save.h */
/* If several ranks of a host save, a run of at least this many bytes is written directly from the
 * memory of its rank. */
static const uint64_t short_run_bytes = (uint64_t)64 << 10;

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

static uint64_t sample_bytes(const model *m, uint64_t sequence) {
    const sample_shape s = model_sample(m, sequence);
    return 4 *
           (model_sample_ids(&s) + model_sample_values(&s) + s.targets + (s.packed ? s.tokens : 0));
}

/* Returns the bytes of the buffers of a save on one host. saved: bytes of tensors. files: bytes of
 * files that the checkpoint carries. */
static uint64_t buffers_of(const fsdp_plan *plan, uint64_t saved, uint64_t files) {
    const fsdp_layout *l = plan->layout;
    if (l->world == 1) return smaller(save_buffers, saved + files);
    uint64_t all = 0, bytes = 0;
    for (size_t i = 0; i < l->n_params; i++) {
        const uint64_t run = l->params[i].elems * sizeof(float);
        all += run;
        if (run < short_run_bytes) bytes += run;
    }
    const double own = all ? (double)saved * (double)bytes / (double)all : 0.0;
    return smaller(save_buffers, (uint64_t)own + files);
}

/* Returns the largest number of rows of an embedding table that a rank can look up in the whole
 * run. */
static double lookups(const config *c, const fsdp_plan *plan, uint64_t sequence) {
    const fsdp_micro_batches batches = fsdp_plan_micro_batches(plan);
    return (double)c->max_steps * (double)fsdp_micro_batches_steps(&batches) * (double)c->micro *
           (double)sequence;
}

int setup_memory_predict(const config *c, const model *m, const fsdp_plan *plan, uint64_t sequence,
                         uint64_t files, setup_memory *out, dcp_error *err) {
    const fsdp_memory shards = fsdp_plan_memory(plan);
    const fsdp_micro_batches micro_batches = fsdp_plan_micro_batches(plan);
    const uint64_t params = plan->layout->param_elems * sizeof(float);
    const uint64_t grads = plan->layout->grad_elems * sizeof(float);
    const uint64_t slots = plan->layout->grad_elems * plan->slot_bytes;
    const uint64_t shard =
        plan->layout->in_place ? params / (uint64_t)plan->layout->shards : params;
    const uint64_t saved = (shard + slots) / (uint64_t)plan->strategy.replicas;
    const uint64_t unread =
        shards.shared ? fsdp_gather_shared_unread(plan, lookups(c, plan, sequence)) : 0;
    const bool is_alone = plan->layout->world == 1;
    *out = (setup_memory){.params = plan->offloads ? 0 : params,
                          .grads = grads,
                          .slots = plan->offloads ? 0 : slots,
                          .offloaded = shards.offloaded,
                          .paged = plan->is_on_host ? 0 : smaller(paged_bytes, shards.offloaded),
                          .units = shards.units,
                          .shared = shards.shared,
                          .unread = unread,
                          .partial = shards.partial,
                          .samples = fsdp_micro_batches_steps(&micro_batches) * c->micro *
                                     sample_bytes(m, sequence),
                          .files = files,
                          .buffers = c->by_hdf5 ? 0 : buffers_of(plan, saved, files),
                          .program = program_bytes + (is_alone ? 0 : messages_bytes)};
    *(plan->layout->in_place ? &out->params : &out->units) -= unread;
    if (c->async && !c->by_hdf5 && c->staging_bytes > save_buffers)
        out->staging =
            smaller(c->staging_bytes, saved + files) - smaller(save_buffers, saved + files);
    const int status = model_run_measure(m, c->micro, sequence, &out->activations, &out->kept, err);
    out->activations += out->kept;
    return status;
}

uint64_t setup_memory_sum(const setup_memory *m) {
    return m->params + m->grads + m->slots + m->paged + m->units + m->activations + m->partial +
           m->samples + m->files + m->buffers + m->program;
}

uint64_t setup_memory_on_device(const setup_memory *m, const fsdp_layout *layout) {
    return m->params + m->grads + m->slots + m->units + m->activations - m->kept + m->partial +
           optim_norm_scratch_bytes(layout);
}

/* The memory that a rank needs on its device. */
typedef struct needs {
    setup_memory m;
    uint64_t later; /* what kernels may still allocate for themselves */
    uint64_t bytes; /* the sum for this rank */
    uint64_t unused, all;
} needs;

/* Names the options that would reduce the memory and are not in use yet. */
static void advise(const config *c, char *out, size_t size) {
    snprintf(out, size, "a smaller train_micro_batch_size_per_gpu%s%s or more GPUs take less",
             c->checkpointing ? "" : ", fsdp.activation_checkpointing",
             c->offloads ? "" : ", fsdp.cpu_offload");
}

double setup_mib(uint64_t bytes) { return (double)bytes / 1048576; }

static int predict(const trainer *t, needs *out, dcp_error *err) {
    setup_memory *m = &out->m;
    const int status = setup_memory_predict(t->c, t->m, &t->plan, t->sequence, 0, m, err);
    if (status != DCP_OK) return status;
    t->k->room(t->k, &out->unused, &out->all, &out->later);
    out->bytes = setup_memory_on_device(m, t->layout) + out->later;
    return DCP_OK;
}

/* Writes the needs by kind, such as "203.00 MiB per rank (...)". */
static void describe_needs(const needs *n, char *out, size_t size) {
    const setup_memory *m = &n->m;
    snprintf(out, size,
             "%.2f MiB per rank (%.2f parameters, gradients and moments; %.2f gathered units; %.2f "
             "activations; %.2f partial sums; %.2f for what libraries take)",
             setup_mib(n->bytes), setup_mib(m->params + m->grads + m->slots), setup_mib(m->units),
             setup_mib(m->activations), setup_mib(m->partial), setup_mib(n->later));
}

/* Collective. Adds up the bytes that the ranks on this rank's device need, and counts these
 * ranks. */
static void add_up(const trainer *t, uint64_t own, uint64_t *bytes, int *ranks) {
    MPI_Comm sharers;
    fsdp_mesh_sharers(t->comm, t->k->device(t->k), &sharers);
    MPI_Comm_size(sharers, ranks);
    MPI_Allreduce(&own, bytes, 1, MPI_UINT64_T, MPI_SUM, sharers);
    MPI_Comm_free(&sharers);
}

static int compare_with_free(const trainer *t, const needs *n, uint64_t together, int ranks,
                             dcp_error *err) {
    char text[256], less[160];
    if (together <= n->unused) return DCP_OK;
    describe_needs(n, text, sizeof text);
    advise(t->c, less, sizeof less);
    return core_fail(
        err, DCP_ERR_NO_MEMORY,
        "out of memory: %d %s on the device %s need %.2f MiB, but %.2f of %.2f are free: %s; %s",
        ranks, ranks == 1 ? "rank" : "ranks", t->k->device(t->k), setup_mib(together),
        setup_mib(n->unused), setup_mib(n->all), text, less);
}

int setup_memory_check(const trainer *t, dcp_error *err) {
    needs n;
    uint64_t together;
    int ranks;
    if (kernels_on_host(t->k)) return DCP_OK;
    MPI_Barrier(t->comm); /* now all ranks have freed the operands of setup_device_peak */
    int status = ranks_agree(t->comm, predict(t, &n, err), err); /* before any rank allocates
                                                                  * memory */
    if (status != DCP_OK) return status;
    add_up(t, n.bytes, &together, &ranks);
    status = ranks_agree(t->comm, compare_with_free(t, &n, together, ranks, err), err);
    if (status == DCP_OK)
        ranks_info(t->rank, "%.2f MiB of the device's memory per rank; %.1f of %.1f MiB were free",
                   setup_mib(n.bytes), setup_mib(n.unused), setup_mib(n.all));
    return status;
}

int setup_memory_explain(const trainer *t, int status, dcp_error *err) {
    needs n;
    dcp_error ignored;
    char text[256], less[160];
    if (status != DCP_ERR_NO_MEMORY || kernels_on_host(t->k) || predict(t, &n, &ignored) != DCP_OK)
        return status;
    const dcp_error first = *err;
    describe_needs(&n, text, sizeof text);
    advise(t->c, less, sizeof less);
    return core_fail(
        err, status,
        "%s; the run needs %s of the device %s, on which %.2f of %.2f MiB are still free; %s",
        first.message, text, t->k->device(t->k), setup_mib(n.unused), setup_mib(n.all), less);
}
