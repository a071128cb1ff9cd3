/* Each replica's holder tells the keeper of its box the checksum of what arrived, and the keeper
 * compares it with its own. On the wire a replica is u64s: tensor, checksum, start and count of
 * each dimension. */
#include "load/replicas.h"

#include <stdlib.h>
#include <string.h>

#include "comm/exchange.h"
#include "core/box.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "device/staging.h"

/* Of all replicas and of those that they are compared with. */
static int checksum(state_tensor *const *sorted, const plan_box *b, const staging *on_device,
                    uint64_t *crc, dcp_error *err) {
    const dcp_tensor *t = &sorted[b->tensor]->tensor;
    uint64_t bytes = dcp_box_elems(&b->box->box, t->ndim) * dcp_dtype_bytes(t->dtype);
    int status = DCP_OK;
    if (b->box->data)
        *crc = core_crc64(b->box->data, bytes);
    else
        status = device_staging_checksum(on_device, b->box, t->path, bytes, crc, err);
    if (!b->box->data) *crc = core_crc64_finish(*crc, bytes);
    return status;
}

static int is_replica(const plan_boxes *plan, const plan_box *b) {
    return !b->keeper && plan->exact[b->tensor];
}

static int by_keeper(const void *a, const void *b) {
    const plan_box *x = *(const plan_box *const *)a, *y = *(const plan_box *const *)b;
    return (x->keeper_rank > y->keeper_rank) - (x->keeper_rank < y->keeper_rank);
}

static int pack_one(state_tensor *const *sorted, const plan_box *b, const staging *on_device,
                    comm_message *out, dcp_error *err) {
    uint32_t dims = core_box_dims(sorted[b->tensor]->tensor.ndim);
    uint64_t head[2] = {b->tensor, 0};
    int status = checksum(sorted, b, on_device, &head[1], err);
    if (status) return status;
    unsigned char *at = comm_message_append(out, 16 + 16ULL * dims);
    if (!at) return core_fail_memory(err, out->bytes);
    memcpy(at, head, sizeof head);
    memcpy(at + 16, b->box->box.start, 8ULL * dims);
    memcpy(at + 16 + 8ULL * dims, b->box->box.count, 8ULL * dims);
    return DCP_OK;
}

static int pack(state_tensor *const *sorted, const plan_boxes *plan, const staging *on_device,
                comm_message *out, uint64_t *bytes, dcp_error *err) {
    const plan_box **order = malloc((plan->n + 1) * sizeof *order);
    size_t n = 0;
    for (size_t i = 0; order && i < plan->n; i++)
        if (is_replica(plan, &plan->boxes[i])) order[n++] = &plan->boxes[i];
    if (n) qsort(order, n, sizeof *order, by_keeper);
    int status = order ? DCP_OK : core_fail_memory(err, plan->n * sizeof *order);
    for (size_t i = 0; i < n && !status; i++) {
        uint64_t before = out->bytes;
        status = pack_one(sorted, order[i], on_device, out, err);
        bytes[order[i]->keeper_rank] += out->bytes - before;
    }
    free(order);
    return status;
}

/* The keeper's own box that equals `want`; plan->boxes ascend by tensor. */
static const plan_box *find(state_tensor *const *sorted, const plan_boxes *plan, size_t tensor,
                            const dcp_box *want) {
    size_t low = 0, high = plan->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (plan->boxes[middle].tensor < tensor)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < plan->n && plan->boxes[low].tensor == tensor; low++)
        if (plan->boxes[low].keeper && core_box_equal(core_box_dims(sorted[tensor]->tensor.ndim),
                                                      &plan->boxes[low].box->box, want))
            return &plan->boxes[low];
    return NULL;
}

typedef struct known { /* checksums of this rank's boxes that were asked for */
    uint64_t *crcs;
    unsigned char *done;
    const staging *on_device;
} known;

static int compare(state_tensor *const *sorted, const plan_boxes *plan, const known *k, int rank,
                   const unsigned char *at, uint32_t dims, dcp_error *err) {
    uint64_t head[2];
    dcp_box box = {{0}, {0}};
    memcpy(head, at, sizeof head);
    memcpy(box.start, at + 16, 8ULL * dims);
    memcpy(box.count, at + 16 + 8ULL * dims, 8ULL * dims);
    const plan_box *own = find(sorted, plan, head[0], &box);
    size_t i = own ? (size_t)(own - plan->boxes) : plan->n;
    if (own && !k->done[i]) {
        int status = checksum(sorted, own, k->on_device, &k->crcs[i], err);
        if (status) return status;
        k->done[i] = 1;
    }
    if (own && k->crcs[i] == head[1]) return DCP_OK;
    char text[256];
    core_box_print(dims, &box, text, sizeof text);
    return core_fail(err, DCP_ERR_CORRUPT,
                     "tensor %s, box %s: what rank %d loaded differs from another rank's copy",
                     sorted[head[0]]->tensor.path, text, rank);
}

static int compare_all(dcp_comm *comm, state_tensor *const *sorted, const plan_boxes *plan,
                       const staging *on_device, const comm_message *in, const uint64_t *bytes,
                       dcp_error *err) {
    known k = {calloc(plan->n + 1, sizeof *k.crcs), calloc(plan->n + 1, 1), on_device};
    int status = k.crcs && k.done ? DCP_OK : core_fail_memory(err, plan->n * sizeof *k.crcs);
    const unsigned char *at = in->data;
    for (int r = 0; r < comm->size && !status; r++)
        for (const unsigned char *end = at + bytes[r]; at < end && !status;) {
            uint64_t tensor;
            memcpy(&tensor, at, sizeof tensor);
            uint32_t dims = core_box_dims(sorted[tensor]->tensor.ndim);
            status = compare(sorted, plan, &k, r, at, dims, err);
            at += 16 + 16ULL * dims;
        }
    free(k.crcs);
    free(k.done);
    return status;
}

/* Whether any rank has a replica at all. */
static int any_replica(dcp_comm *comm, const plan_boxes *plan, int *any, dcp_error *err) {
    uint64_t n = 0;
    for (size_t i = 0; i < plan->n && !n; i++) n = (uint64_t)is_replica(plan, &plan->boxes[i]);
    int status = comm_allreduce(comm, &n, 1, DCP_REDUCE_MAX, err);
    *any = n != 0;
    return status;
}

int replicas_check(dcp_comm *comm, state_tensor *const *sorted, const plan_boxes *plan,
                   const staging *on_device, dcp_error *err) {
    comm_message send = {0}, receive = {0};
    int any = 0, status = any_replica(comm, plan, &any, err);
    if (status || !any) return status;
    uint64_t *bytes = calloc(2 * (size_t)comm->size, sizeof *bytes);
    status = bytes ? pack(sorted, plan, on_device, &send, bytes, err)
                   : core_fail_memory(err, 16 * (size_t)comm->size);
    status = comm_agree(comm, status, err);
    if (status) goto free_all;
    uint64_t *received = bytes + comm->size;
    status = comm_exchange(comm, &send, bytes, &receive, received, err);
    if (status) goto free_all;
    status =
        comm_agree(comm, compare_all(comm, sorted, plan, on_device, &receive, received, err), err);
free_all:
    free(bytes);
    free(send.data);
    free(receive.data);
    return status;
}
