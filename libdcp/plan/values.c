/* Saying who disagrees: every rank's record goes to rank 0, which groups equal ones. This happens
 * only where something is wrong, so its cost does not matter. */
#include "plan/values.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Fills `err` with all variants; its rank is the first that differs from rank 0. */
static int tell_variants(const char *what, const unsigned char *records, size_t bytes, int size,
                         plan_describe describe, dcp_error *err) {
    char text[VARIANTS * (316 + RANKS_TEXT)] = "", record[300], ranks[RANKS_TEXT];
    unsigned char *told = calloc(2 * (size_t)size, 1);
    int variants = 0, differs = -1;
    size_t used = 0;
    if (!told) return core_fail_memory(err, (uint64_t)size);
    for (int r = 0; r < size && variants < VARIANTS; r++) {
        if (told[r]) continue;
        if (variants == 1) differs = r;
        tell_variant(records, bytes, size, r, told, told + size, ranks);
        snprintf(record, sizeof record, "%s", variants ? "another" : "one");
        if (describe) describe(records + (size_t)r * bytes, record, sizeof record);
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s on %s",
                                 variants ? ", " : "", record, ranks);
        variants++;
    }
    free(told);
    core_fail(err, DCP_ERR_MISMATCH, "%s: %s", what, text);
    err->rank = differs;
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

int plan_agree(dcp_comm *comm, int status, const plan_value *values, size_t n, dcp_error *err) {
    uint64_t least[2 * PLAN_VALUES + 1];
    for (size_t i = 0; i < n; i++) {
        least[2 * i] = values[i].value;
        least[2 * i + 1] = ~values[i].value;
    }
    least[2 * n] = status == DCP_OK;
    int comm_status = comm_allreduce(comm, least, 2 * n + 1, DCP_REDUCE_MIN, err);
    if (comm_status) return comm_status;
    for (size_t i = 0; i < n; i++)
        if (least[2 * i] != ~least[2 * i + 1]) return plan_value_differs(comm, &values[i], err);
    return least[2 * n] ? DCP_OK : comm_agree(comm, status, err);
}

int plan_same(dcp_comm *comm, const plan_value *values, size_t n, dcp_error *err) {
    return plan_agree(comm, DCP_OK, values, n, err);
}
