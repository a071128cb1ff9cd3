/* Agreement on the tensors: one checksum a rank where all is well; where not, rank 0's list goes
 * round, so that the difference can be named. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/exchange.h"
#include "core/box.h"
#include "core/bytes.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "plan/plan.h"

enum { HEAD = 8 + 8 * DCP_MAX_DIMS };

/* dtype, ndim and shape as bytes; the path follows with its NUL. */
static void put_head(const dcp_tensor *t, unsigned char *out) {
    memset(out, 0, HEAD);
    put_u32(out, (uint32_t)t->dtype);
    put_u32(out + 4, t->ndim);
    for (uint32_t d = 0; d < t->ndim; d++) put_u64(out + 8 + 8 * d, t->shape[d]);
}

static uint64_t fingerprint(state_tensor *const *sorted, size_t n) {
    uint64_t raw = ~0ULL;
    unsigned char head[HEAD];
    for (size_t i = 0; i < n; i++) {
        put_head(&sorted[i]->tensor, head);
        raw = crc64_raw(raw, head, sizeof head);
        raw = crc64_raw(raw, sorted[i]->tensor.path, strlen(sorted[i]->tensor.path) + 1);
    }
    return raw;
}

static int serialize(state_tensor *const *sorted, size_t n, comm_message *list) {
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(sorted[i]->tensor.path) + 1;
        unsigned char *at = comm_append(list, HEAD + length);
        if (!at) return 0;
        put_head(&sorted[i]->tensor, at);
        memcpy(at + HEAD, sorted[i]->tensor.path, length);
    }
    return 1;
}

static void describe(const unsigned char *head, char *text, size_t size) {
    uint64_t shape[DCP_MAX_DIMS];
    uint32_t ndim = get_u32(head + 4);
    for (uint32_t d = 0; d < ndim; d++) shape[d] = get_u64(head + 8 + 8 * d);
    const char *dtype = dcp_dtype_name((dcp_dtype)get_u32(head));
    int used = snprintf(text, size, "%s ", dtype);
    shape_print(ndim, shape, text + used, size - (size_t)used);
}

/* Both lists ascend by path: the first place where they part names the tensor. */
static int compare(int rank, state_tensor *const *sorted, size_t n, const comm_message *list,
                   dcp_error *err) {
    const unsigned char *at = list->data, *end = at + list->bytes;
    for (size_t i = 0; i < n || at < end; i++) {
        const char *theirs = at < end ? (const char *)at + HEAD : NULL;
        const char *ours = i < n ? sorted[i]->tensor.path : NULL;
        int order = !theirs ? -1 : !ours ? 1 : strcmp(ours, theirs);
        if (order)
            return core_fail(err, DCP_ERR_MISMATCH, "tensor %s: only rank %d has it, rank %d not",
                             order < 0 ? ours : theirs, order < 0 ? rank : 0, order < 0 ? 0 : rank);
        unsigned char head[HEAD];
        put_head(&sorted[i]->tensor, head);
        if (memcmp(head, at, HEAD)) {
            char mine[300], first[300];
            describe(head, mine, sizeof mine);
            describe(at, first, sizeof first);
            return core_fail(err, DCP_ERR_MISMATCH, "tensor %s: %s on rank %d, %s on rank 0", ours,
                             mine, rank, first);
        }
        at += HEAD + strlen(theirs) + 1;
    }
    return DCP_OK;
}

static int explain(dcp_comm *comm, state_tensor *const *sorted, size_t n, dcp_error *err) {
    comm_message list = {0};
    int status = DCP_OK;
    if (comm->rank == 0 && !serialize(sorted, n, &list)) status = core_fail_memory(err, list.bytes);
    status = comm_agree(comm, status, err);
    if (!status) status = comm_broadcast(comm, &list.bytes, sizeof list.bytes, 0, err);
    if (status) goto free_list;
    if (comm->rank) {
        list.capacity = list.bytes;
        list.data = malloc(list.bytes + 1);
    }
    status = comm_agree(comm, list.data || !list.bytes ? DCP_OK : core_fail_memory(err, list.bytes),
                        err);
    if (!status) status = comm_broadcast(comm, list.data, list.bytes, 0, err);
    if (status) goto free_list;
    status = comm_agree(comm, compare(comm->rank, sorted, n, &list, err), err);
    if (!status)
        status = core_fail(err, DCP_ERR_MISMATCH, "ranks passed different lists of tensors");
free_list:
    free(list.data);
    return status;
}

int plan_tensors(dcp_comm *comm, state_tensor *const *sorted, size_t n, dcp_error *err) {
    uint64_t hash = fingerprint(sorted, n), bounds[2] = {hash, ~hash};
    int status = comm_allreduce(comm, bounds, 2, DCP_REDUCE_MIN, err);
    if (status) return status;
    return bounds[0] == ~bounds[1] ? DCP_OK : explain(comm, sorted, n, err);
}
