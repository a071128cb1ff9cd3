#include "room.h"

#include <inttypes.h>
#include <stdio.h>

#include "../agree.h"
#include "../fail.h"
#include "../optim/norm.h"
#include "../say.h"
#include "memory.h"

typedef struct needs {
    memory m;
    uint64_t bytes; /* of the device, of this rank */
} needs;

static const char less[] = "a smaller train_micro_batch_size_per_gpu, "
                           "fsdp.activation_checkpointing, fsdp.cpu_offload or more GPUs take less";

static double mib(uint64_t bytes) { return (double)bytes / 1048576; }

static int predict(const trainer *t, needs *out, dcp_error *err) {
    memory *m = &out->m;
    const int status = memory_predict(t->c, t->m, &t->plan, t->sequence, m, err);
    if (status != DCP_OK) return status;
    out->bytes = m->params + m->grads + m->moments + m->units + m->activations + m->partial +
                 norm_scratch_bytes(t->layout);
    return DCP_OK;
}

/* "203.00 MiB a rank (...)" */
static void describe(const needs *n, char *out, size_t size) {
    const memory *m = &n->m;
    snprintf(out, size,
             "%.2f MiB a rank (%.2f parameters, gradients and moments; %.2f gathered units; %.2f "
             "activations; %.2f partial sums)",
             mib(n->bytes), mib(m->params + m->grads + m->moments), mib(m->units),
             mib(m->activations), mib(m->partial));
}

/* Collective: what the ranks on this one's device need together. */
static void add_up(const trainer *t, uint64_t own, uint64_t *bytes, int *ranks) {
    MPI_Comm sharers;
    fsdp_mesh_sharers(t->comm, t->k->device(t->k), &sharers);
    MPI_Comm_size(sharers, ranks);
    MPI_Allreduce(&own, bytes, 1, MPI_UINT64_T, MPI_SUM, sharers);
    MPI_Comm_free(&sharers);
}

static int judge(const trainer *t, const needs *n, uint64_t together, int ranks, uint64_t unused,
                 uint64_t all, dcp_error *err) {
    char text[256];
    if (together <= unused) return DCP_OK;
    describe(n, text, sizeof text);
    return trainer_fail(err, DCP_ERR_NO_MEMORY,
                        "out of memory: %d %s on the device %s need %.2f MiB, where %.2f of %.2f "
                        "are free: %s; %s",
                        ranks, ranks == 1 ? "rank" : "ranks", t->k->device(t->k), mib(together),
                        mib(unused), mib(all), text, less);
}

int room_check(const trainer *t, dcp_error *err) {
    needs n;
    uint64_t unused, all, together;
    int ranks;
    if (kernels_on_host(t->k)) return DCP_OK;
    int status = agree(t->comm, predict(t, &n, err), err);
    if (status != DCP_OK) return status;
    t->k->room(t->k, &unused, &all); /* before any rank goes on to take some */
    add_up(t, n.bytes, &together, &ranks);
    status = agree(t->comm, judge(t, &n, together, ranks, unused, all, err), err);
    if (status == DCP_OK)
        say(t->rank, "%.2f MiB of the device's memory a rank; %.1f of %.1f MiB were free",
            mib(n.bytes), mib(unused), mib(all));
    return status;
}

int room_explain(const trainer *t, int status, dcp_error *err) {
    needs n;
    dcp_error ignored;
    char text[256];
    uint64_t unused, all;
    if (status != DCP_ERR_NO_MEMORY || kernels_on_host(t->k) || predict(t, &n, &ignored) != DCP_OK)
        return status;
    const dcp_error first = *err;
    describe(&n, text, sizeof text);
    t->k->room(t->k, &unused, &all);
    return trainer_fail(err, status,
                        "%s; the run takes %s of the device %s, where %.2f of %.2f MiB are still "
                        "free; %s",
                        first.message, text, t->k->device(t->k), mib(unused), mib(all), less);
}
