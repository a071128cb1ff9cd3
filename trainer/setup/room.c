#include "setup/room.h"

#include <inttypes.h>
#include <stdio.h>

#include "common/agree.h"
#include "common/say.h"
#include "optim/norm.h"
#include "programs/fail.h"
#include "setup/memory.h"

/* Of the device. */
typedef struct needs {
    memory m;
    uint64_t later; /* what kernels may yet take for themselves */
    uint64_t bytes; /* of this rank, all together */
    uint64_t unused, all;
} needs;

/* What the run could do to need less, and does not yet. */
static void advise(const config *c, char *out, size_t size) {
    snprintf(out, size, "a smaller train_micro_batch_size_per_gpu%s%s or more GPUs take less",
             c->checkpointing ? "" : ", fsdp.activation_checkpointing",
             c->offloads ? "" : ", fsdp.cpu_offload");
}

static double mib(uint64_t bytes) { return (double)bytes / 1048576; }

static int predict(const trainer *t, needs *out, dcp_error *err) {
    memory *m = &out->m;
    const int status = memory_predict(t->c, t->m, &t->plan, t->sequence, m, err);
    if (status != DCP_OK) return status;
    t->k->room(t->k, &out->unused, &out->all, &out->later);
    out->bytes = m->params + m->grads + m->moments + m->units + m->activations + m->partial +
                 norm_scratch_bytes(t->layout) + out->later;
    return DCP_OK;
}

/* "203.00 MiB a rank (...)" */
static void describe(const needs *n, char *out, size_t size) {
    const memory *m = &n->m;
    snprintf(out, size,
             "%.2f MiB a rank (%.2f parameters, gradients and moments; %.2f gathered units; %.2f "
             "activations; %.2f partial sums; %.2f for what libraries take)",
             mib(n->bytes), mib(m->params + m->grads + m->moments), mib(m->units),
             mib(m->activations), mib(m->partial), mib(n->later));
}

/* Collective: what the ranks on this one's device need together. */
static void add_up(const trainer *t, uint64_t own, uint64_t *bytes, int *ranks) {
    MPI_Comm sharers;
    fsdp_mesh_sharers(t->comm, t->k->device(t->k), &sharers);
    MPI_Comm_size(sharers, ranks);
    MPI_Allreduce(&own, bytes, 1, MPI_UINT64_T, MPI_SUM, sharers);
    MPI_Comm_free(&sharers);
}

static int judge(const trainer *t, const needs *n, uint64_t together, int ranks, dcp_error *err) {
    char text[256], less[160];
    if (together <= n->unused) return DCP_OK;
    describe(n, text, sizeof text);
    advise(t->c, less, sizeof less);
    return core_fail(err, DCP_ERR_NO_MEMORY,
                     "out of memory: %d %s on the device %s need %.2f MiB, where %.2f of %.2f "
                     "are free: %s; %s",
                     ranks, ranks == 1 ? "rank" : "ranks", t->k->device(t->k), mib(together),
                     mib(n->unused), mib(n->all), text, less);
}

int room_check(const trainer *t, dcp_error *err) {
    needs n;
    uint64_t together;
    int ranks;
    if (kernels_on_host(t->k)) return DCP_OK;
    MPI_Barrier(t->comm); /* no rank still has what it measured products with */
    int status = agree(t->comm, predict(t, &n, err), err); /* nor has gone on to take some */
    if (status != DCP_OK) return status;
    add_up(t, n.bytes, &together, &ranks);
    status = agree(t->comm, judge(t, &n, together, ranks, err), err);
    if (status == DCP_OK)
        say(t->rank, "%.2f MiB of the device's memory a rank; %.1f of %.1f MiB were free",
            mib(n.bytes), mib(n.unused), mib(n.all));
    return status;
}

int room_explain(const trainer *t, int status, dcp_error *err) {
    needs n;
    dcp_error ignored;
    char text[256], less[160];
    if (status != DCP_ERR_NO_MEMORY || kernels_on_host(t->k) || predict(t, &n, &ignored) != DCP_OK)
        return status;
    const dcp_error first = *err;
    describe(&n, text, sizeof text);
    advise(t->c, less, sizeof less);
    return core_fail(err, status,
                     "%s; the run takes %s of the device %s, where %.2f of %.2f MiB are still "
                     "free; %s",
                     first.message, text, t->k->device(t->k), mib(n.unused), mib(n.all), less);
}
