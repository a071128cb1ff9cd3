/* Agreement on the tensors. Where all is well it takes one checksum a rank. Where not, rank 0's
 * list is broadcast, to find the first tensor that differs and what each rank has there. */
#include "plan/tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/message.h"
#include "core/box.h"
#include "core/bytes.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "plan/values.h"

enum { HEAD = 8 + 8 * DCP_MAX_DIMS };

/* dtype, ndim and shape as bytes. Returns where they end. */
static unsigned char *put_used(const dcp_tensor *t, unsigned char *out) {
    core_put_u32(out, (uint32_t)t->dtype);
    core_put_u32(out + 4, t->ndim);
    for (uint32_t d = 0; d < t->ndim; d++) core_put_u64(out + 8 + 8 * d, t->shape[d]);
    return out + 8 + 8 * t->ndim;
}

/* The same with room for all dimensions; the path follows with its NUL. */
static void put_head(const dcp_tensor *t, unsigned char *out) {
    memset(out, 0, HEAD);
    put_used(t, out);
}

uint64_t plan_fingerprint(state_tensor *const *sorted, size_t n) {
    uint64_t raw = ~0ULL;
    unsigned char text[HEAD + DCP_MAX_PATH + 1];
    for (size_t i = 0; i < n; i++) {
        core_state_prefetch(sorted, n, i);
        char *path = (char *)put_used(&sorted[i]->tensor, text);
        unsigned char *end = (unsigned char *)stpcpy(path, sorted[i]->tensor.path) + 1;
        raw = core_crc64_raw(raw, text, (uint64_t)(end - text));
    }
    return raw;
}

static int serialize(state_tensor *const *sorted, size_t n, comm_message *list) {
    for (size_t i = 0; i < n; i++) {
        size_t length = strlen(sorted[i]->tensor.path) + 1;
        unsigned char *at = comm_message_append(list, HEAD + length);
        if (!at) return 0;
        put_head(&sorted[i]->tensor, at);
        memcpy(at + HEAD, sorted[i]->tensor.path, length);
    }
    return 1;
}

enum { RECORD = 1 + HEAD }; /* whether a rank has the tensor, and its head */

static void describe_tensor(const unsigned char *record, char *text, size_t size) {
    const unsigned char *head = record + 1;
    uint64_t shape[DCP_MAX_DIMS];
    uint32_t ndim = core_get_u32(head + 4);
    if (!record[0]) {
        snprintf(text, size, "missing");
        return;
    }
    for (uint32_t d = 0; d < ndim; d++) shape[d] = core_get_u64(head + 8 + 8 * d);
    int used = snprintf(text, size, "%s ", dcp_dtype_name((dcp_dtype)core_get_u32(head)));
    core_shape_print(ndim, shape, text + used, size - (size_t)used);
}

/* Both lists ascend by path: the path at the first place where they part; NULL: nowhere. */
static const char *first_difference(state_tensor *const *sorted, size_t n,
                                    const comm_message *list) {
    const unsigned char *at = list->data, *end = at + list->bytes;
    for (size_t i = 0; i < n || at < end; i++) {
        const char *theirs = at < end ? (const char *)at + HEAD : NULL;
        const char *ours = i < n ? sorted[i]->tensor.path : NULL;
        int order = !theirs ? -1 : !ours ? 1 : strcmp(ours, theirs);
        if (order) return order < 0 ? ours : theirs;
        unsigned char head[HEAD];
        put_head(&sorted[i]->tensor, head);
        if (memcmp(head, at, HEAD)) return ours;
        at += HEAD + strlen(theirs) + 1;
    }
    return NULL;
}

/* What each rank has under the path at which the lowest rank that differs from rank 0 does. */
static int name_difference(dcp_comm *comm, state_tensor *const *sorted, size_t n, const char *own,
                           dcp_error *err) {
    char path[DCP_MAX_PATH + 1] = "", what[DCP_MAX_PATH + 16];
    unsigned char record[RECORD] = {0};
    uint64_t lowest = own ? (uint64_t)comm->rank : (uint64_t)comm->size;
    int status = comm_allreduce(comm, &lowest, 1, DCP_REDUCE_MIN, err);
    if (status) return status;
    if (lowest == (uint64_t)comm->size) /* equal lists would have equal checksums */
        return core_fail(err, DCP_ERR_MISMATCH, "ranks passed different lists of tensors");
    if (own) snprintf(path, sizeof path, "%s", own);
    status = comm_broadcast(comm, path, sizeof path, (int)lowest, err);
    if (status) return status;
    for (size_t i = 0; i < n && !record[0]; i++)
        if (!strcmp(sorted[i]->tensor.path, path)) {
            record[0] = 1;
            put_head(&sorted[i]->tensor, record + 1);
        }
    snprintf(what, sizeof what, "tensor %s", path);
    return plan_disagree(comm, what, record, sizeof record, describe_tensor, err);
}

static int explain_difference(dcp_comm *comm, state_tensor *const *sorted, size_t n,
                              dcp_error *err) {
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
    if (!status) status = name_difference(comm, sorted, n, first_difference(sorted, n, &list), err);
free_list:
    free(list.data);
    return status;
}

int plan_tensors(dcp_comm *comm, state_tensor *const *sorted, size_t n, dcp_error *err) {
    uint64_t hash = plan_fingerprint(sorted, n), bounds[2] = {hash, ~hash};
    int status = comm_allreduce(comm, bounds, 2, DCP_REDUCE_MIN, err);
    if (status) return status;
    return bounds[0] == ~bounds[1] ? DCP_OK : explain_difference(comm, sorted, n, err);
}
