/* Where all is well, agreement takes one all-reduce: of values and their complements, or of a
 * checksum of the tensors. Where not, the cost does not matter. Every rank's record goes to rank 0,
 * which groups equal ones. Rank 0's list of tensors is broadcast, to find the first that differs.
 */
#include "plan/agreement.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/messages.h"
#include "core/box.h"
#include "core/bytes.h"
#include "core/crc64.h"
#include "core/fail.h"

enum { VARIANTS = 4, RANKS_TEXT = 120 };

void plan_ranks_print(const unsigned char *member, int size, char *text, size_t bytes) {
    int n = 0;
    for (int r = 0; r < size; r++) n += member[r];
    size_t used = (size_t)snprintf(text, bytes, n == 1 ? "rank" : "ranks");
    for (int r = 0, first = 1; r < size; r++) {
        int end = r;
        if (!member[r]) continue;
        while (end + 1 < size && member[end + 1]) end++;
        if (used + 32 > bytes) {
            snprintf(text + used, bytes - used, ", ...");
            return;
        }
        used += (size_t)snprintf(text + used, bytes - used, "%s%d", first ? " " : ", ", r);
        if (end > r) used += (size_t)snprintf(text + used, bytes - used, "-%d", end);
        first = 0;
        r = end;
    }
}

/* The ranks whose record is that of `rank`; they count as told. */
static void tell_variant(const unsigned char *records, size_t bytes, int size, int rank,
                         unsigned char *told, unsigned char *member, char *text) {
    for (int r = 0; r < size; r++) {
        member[r] = !memcmp(records + (size_t)r * bytes, records + (size_t)rank * bytes, bytes);
        told[r] |= member[r];
    }
    plan_ranks_print(member, size, text, RANKS_TEXT);
}

/* The ranks whose record is not that of the first rank that is named become members of `err`. */
static void name_others(const unsigned char *records, size_t bytes, int size,
                        plan_describe describe, dcp_error *err) {
    const unsigned char *first = NULL;
    for (int r = 0; r < size; r++) {
        const unsigned char *record = records + (size_t)r * bytes;
        char text[300] = "named";
        if (describe) describe(record, text, sizeof text);
        if (!text[0]) continue;
        if (!first) first = record;
        if (memcmp(record, first, bytes)) core_fail_rank(DCP_ERR_MISMATCH, r, err);
    }
}

/* Fills `err` with all variants; its rank is the first that differs from those before it. */
static int tell_variants(const char *what, const unsigned char *records, size_t bytes, int size,
                         plan_describe describe, dcp_error *err) {
    char text[VARIANTS * (316 + RANKS_TEXT)] = "", record[300], ranks[RANKS_TEXT];
    unsigned char *told = calloc(2 * (size_t)size, 1);
    int variants = 0, differs = -1;
    size_t used = 0;
    if (!told) return core_fail_memory(err, (uint64_t)size);
    for (int r = 0; r < size && variants < VARIANTS; r++) {
        if (told[r]) continue;
        tell_variant(records, bytes, size, r, told, told + size, ranks);
        snprintf(record, sizeof record, "%s", variants ? "another" : "one");
        if (describe) describe(records + (size_t)r * bytes, record, sizeof record);
        if (!record[0]) continue;
        if (variants == 1) differs = r;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s on %s",
                                 variants ? ", " : "", record, ranks);
        variants++;
    }
    free(told);
    core_fail(err, DCP_ERR_MISMATCH, "%s: %s", what, text);
    err->rank = differs;
    name_others(records, bytes, size, describe, err);
    return DCP_ERR_MISMATCH;
}

int plan_disagree(dcp_comm *comm, const char *what, const void *record, size_t bytes,
                  plan_describe describe, dcp_error *err) {
    dcp_error failure = {0};
    size_t ranks = (size_t)comm->size;
    unsigned char *records = comm->rank == 0 ? malloc(ranks * bytes) : NULL;
    int status = DCP_OK;
    if (comm->rank == 0 && !records) status = core_fail_memory(&failure, ranks * bytes);
    status = comm_agree(comm, status, &failure);
    if (!status) status = comm_gather(comm, record, bytes, records, 0, &failure);
    if (!status && comm->rank == 0)
        status = tell_variants(what, records, bytes, comm->size, describe, &failure);
    if (status != DCP_ERR_COMM) status = comm_agree(comm, status, &failure);
    free(records);
    if (err) *err = failure;
    return status;
}

static void describe_number(const unsigned char *record, char *text, size_t size) {
    uint64_t value;
    memcpy(&value, record, sizeof value);
    snprintf(text, size, "%" PRIu64, value);
}

int plan_value_differs(dcp_comm *comm, const plan_value *v, dcp_error *err) {
    char what[128];
    snprintf(what, sizeof what, "ranks passed different values for %s", v->name);
    return plan_disagree(comm, what, &v->value, sizeof v->value,
                         v->is_hash ? NULL : describe_number, err);
}

void plan_value_tell(const plan_value *values, size_t n, uint64_t *least) {
    for (size_t i = 0; i < n; i++) {
        least[2 * i] = values[i].value;
        least[2 * i + 1] = ~values[i].value;
    }
}

int plan_value_compare(dcp_comm *comm, const plan_value *values, size_t n, const uint64_t *least,
                       dcp_error *err) {
    for (size_t i = 0; i < n; i++)
        if (least[2 * i] != ~least[2 * i + 1]) return plan_value_differs(comm, &values[i], err);
    return DCP_OK;
}

int plan_agree_least(dcp_comm *comm, int status, const plan_value *values, size_t n, uint64_t *more,
                     size_t n_more, dcp_error *err) {
    uint64_t least[COMM_LEAST_VALUES];
    plan_value_tell(values, n, least);
    if (n_more) memcpy(least + 2 * n, more, n_more * sizeof *more);
    status = comm_agree_least(comm, status, least, 2 * n + n_more, err);
    if (!status && n_more) memcpy(more, least + 2 * n, n_more * sizeof *more);
    return status ? status : plan_value_compare(comm, values, n, least, err);
}

int plan_agree(dcp_comm *comm, int status, const plan_value *values, size_t n, dcp_error *err) {
    return plan_agree_least(comm, status, values, n, NULL, 0, err);
}

int plan_same(dcp_comm *comm, const plan_value *values, size_t n, dcp_error *err) {
    return plan_agree(comm, DCP_OK, values, n, err);
}

/* From here on: the tensors. */
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
    return core_fail_tensor(plan_disagree(comm, what, record, sizeof record, describe_tensor, err),
                            path, err);
}

static int explain_difference(dcp_comm *comm, state_tensor *const *sorted, size_t n,
                              dcp_error *err) {
    comm_message list = {0};
    int status = DCP_OK;
    if (comm->rank == 0 && !serialize(sorted, n, &list)) status = core_fail_memory(err, list.bytes);
    status = comm_agree(comm, status, err);
    if (!status) status = comm_message_broadcast(comm, &list, 0, err);
    if (!status) status = name_difference(comm, sorted, n, first_difference(sorted, n, &list), err);
    free(list.data);
    return status;
}

int plan_tensors_compare(dcp_comm *comm, state_tensor *const *sorted, size_t n,
                         const uint64_t least[2], dcp_error *err) {
    return least[0] == ~least[1] ? DCP_OK : explain_difference(comm, sorted, n, err);
}

int plan_tensors(dcp_comm *comm, state_tensor *const *sorted, size_t n, dcp_error *err) {
    uint64_t hash = plan_fingerprint(sorted, n), bounds[2] = {hash, ~hash};
    int status = comm_allreduce(comm, bounds, 2, DCP_REDUCE_MIN, err);
    return status ? status : plan_tensors_compare(comm, sorted, n, bounds, err);
}
