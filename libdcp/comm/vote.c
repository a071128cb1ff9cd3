/* Each word of a vote becomes the smallest of all ranks' words. A maximum is found as the minimum
 * of complements. A value is the same everywhere if its minimum is the complement of the minimum of
 * its complements.
 *
 * If ranks disagree, the cost does not matter: every rank's record goes to rank 0, which groups
 * equal records. */
#include "comm/vote.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/fail.h"

static void add_item(comm_vote *v, comm_vote_item item) {
    if (v->n < COMM_VOTES) v->items[v->n] = item;
    v->n++; /* comm_vote_run refuses too many */
}

void comm_vote_same(comm_vote *v, const char *name, uint64_t value) {
    add_item(v, (comm_vote_item){.kind = COMM_VOTE_SAME, .name = name, .own = value, .n = 2});
}

void comm_vote_same_hash(comm_vote *v, const char *name, uint64_t value) {
    add_item(v, (comm_vote_item){
                    .kind = COMM_VOTE_SAME, .name = name, .own = value, .n = 2, .is_hash = true});
}

void comm_vote_split(comm_vote *v) {
    v->checked = v->n;
    v->is_split = true;
}

void comm_vote_min(comm_vote *v, uint64_t *values, size_t n) {
    add_item(v, (comm_vote_item){.kind = COMM_VOTE_MIN, .values = values, .n = n});
}

void comm_vote_max(comm_vote *v, uint64_t *values, size_t n) {
    add_item(v, (comm_vote_item){.kind = COMM_VOTE_MAX, .values = values, .n = n});
}

void comm_vote_from(comm_vote *v, bool decides, uint64_t *values, size_t n) {
    add_item(v, (comm_vote_item){
                    .kind = COMM_VOTE_MIN, .values = values, .n = n, .is_left_out = !decides});
}

void comm_vote_all(comm_vote *v, bool *flag) {
    add_item(v, (comm_vote_item){.kind = COMM_VOTE_ALL, .flag = flag, .n = 1});
}

void comm_vote_any(comm_vote *v, bool *flag) {
    add_item(v, (comm_vote_item){.kind = COMM_VOTE_ANY, .flag = flag, .n = 1});
}

void comm_vote_equal(comm_vote *v, bool takes_part, uint64_t *value, bool *is_equal) {
    add_item(v, (comm_vote_item){.kind = COMM_VOTE_EQUAL,
                                 .values = value,
                                 .flag = is_equal,
                                 .n = 2,
                                 .is_left_out = !takes_part});
}

/* Writes the words of this rank's item. */
static void put_words(const comm_vote_item *item, uint64_t *words) {
    memset(words, 0xff, item->n * sizeof *words);
    if (item->is_left_out) return;
    switch (item->kind) {
    case COMM_VOTE_SAME:
    case COMM_VOTE_EQUAL:
        words[0] = item->kind == COMM_VOTE_SAME ? item->own : *item->values;
        words[1] = ~words[0];
        break;
    case COMM_VOTE_MIN:
        memcpy(words, item->values, item->n * sizeof *words);
        break;
    case COMM_VOTE_MAX:
        for (size_t i = 0; i < item->n; i++) words[i] = ~item->values[i];
        break;
    case COMM_VOTE_ALL:
        words[0] = *item->flag;
        break;
    case COMM_VOTE_ANY:
        words[0] = !*item->flag;
        break;
    }
}

/* Takes the outcome from the smallest of all ranks' words. */
static void take_words(comm_vote_item *item, const uint64_t *words) {
    switch (item->kind) {
    case COMM_VOTE_SAME:
        item->differs = words[0] != ~words[1];
        break;
    case COMM_VOTE_EQUAL:
        *item->values = words[0];
        *item->flag = words[0] == ~words[1];
        break;
    case COMM_VOTE_MIN:
        memcpy(item->values, words, item->n * sizeof *words);
        break;
    case COMM_VOTE_MAX:
        for (size_t i = 0; i < item->n; i++) item->values[i] = ~words[i];
        break;
    case COMM_VOTE_ALL:
        *item->flag = words[0] != 0;
        break;
    case COMM_VOTE_ANY:
        *item->flag = words[0] == 0;
        break;
    }
}

enum { VARIANTS = 4, RANKS_TEXT = 120 };

void comm_ranks_print(const unsigned char *member, int size, char *text, size_t bytes) {
    int n = 0;
    for (int r = 0; r < size; r++) n += member[r];
    size_t used = (size_t)snprintf(text, bytes, n == 1 ? "rank" : "ranks");
    bool first = true;
    for (int r = 0; r < size; r++) {
        int end = r;
        if (!member[r]) continue;
        while (end + 1 < size && member[end + 1]) end++;
        if (used + 32 > bytes) {
            snprintf(text + used, bytes - used, ", ...");
            return;
        }
        used += (size_t)snprintf(text + used, bytes - used, "%s%d", first ? " " : ", ", r);
        if (end > r) used += (size_t)snprintf(text + used, bytes - used, "-%d", end);
        first = false;
        r = end;
    }
}

/* Prints the ranks whose record equals the record of `rank`, and marks them in `printed`. */
static void print_variant(const unsigned char *records, size_t bytes, int size, int rank,
                          unsigned char *printed, unsigned char *member, char *text) {
    for (int r = 0; r < size; r++) {
        member[r] = !memcmp(records + (size_t)r * bytes, records + (size_t)rank * bytes, bytes);
        printed[r] |= member[r];
    }
    comm_ranks_print(member, size, text, RANKS_TEXT);
}

/* Adds to err->ranks each rank whose record differs from the record of the first named rank. */
static void name_others(const unsigned char *records, size_t bytes, int size,
                        comm_describe describe, dcp_error *err) {
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

/* Fills `err` with the variants; err->rank becomes the lowest rank that has the second variant. */
static int fail_variants(const char *what, const unsigned char *records, size_t bytes, int size,
                         comm_describe describe, dcp_error *err) {
    char text[VARIANTS * (316 + RANKS_TEXT)] = "", record[300], ranks[RANKS_TEXT];
    unsigned char *printed = calloc(2 * (size_t)size, 1);
    int variants = 0, differs = -1;
    size_t used = 0;
    if (!printed) return core_fail_memory(err, (uint64_t)size);
    for (int r = 0; r < size && variants < VARIANTS; r++) {
        if (printed[r]) continue;
        print_variant(records, bytes, size, r, printed, printed + size, ranks);
        snprintf(record, sizeof record, "%s", variants ? "another" : "one");
        if (describe) describe(records + (size_t)r * bytes, record, sizeof record);
        if (!record[0]) continue;
        if (variants == 1) differs = r;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s on %s",
                                 variants ? ", " : "", record, ranks);
        variants++;
    }
    free(printed);
    core_fail(err, DCP_ERR_MISMATCH, "%s: %s", what, text);
    err->rank = differs;
    name_others(records, bytes, size, describe, err);
    return DCP_ERR_MISMATCH;
}

int comm_disagree(dcp_comm *comm, const char *what, const void *record, size_t bytes,
                  comm_describe describe, dcp_error *err) {
    dcp_error failure = {0};
    size_t ranks = (size_t)comm->size;
    unsigned char *records = comm->rank == 0 ? core_array(ranks, bytes) : NULL;
    int status = DCP_OK;
    if (comm->rank == 0 && !records) status = core_fail_memory(&failure, ranks * bytes);
    status = comm_agree(comm, status, &failure);
    if (!status) status = comm_gather(comm, record, bytes, records, 0, &failure);
    if (!status && comm->rank == 0)
        status = fail_variants(what, records, bytes, comm->size, describe, &failure);
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

/* Compares the named values among items [from, to). */
static int check_items(dcp_comm *comm, const comm_vote *v, size_t from, size_t to, dcp_error *err) {
    for (size_t i = from; i < to; i++) {
        const comm_vote_item *item = &v->items[i];
        char what[128];
        if (!item->differs) continue;
        snprintf(what, sizeof what, "ranks passed different values for %s", item->name);
        return comm_disagree(comm, what, &item->own, sizeof item->own,
                             item->is_hash ? NULL : describe_number, err);
    }
    return DCP_OK;
}

int comm_vote_run(dcp_comm *comm, comm_vote *v, int status, dcp_error *err) {
    uint64_t words[COMM_MIN_VALUES] = {0};
    size_t n = 0, at = 0;
    for (size_t i = 0; i < v->n && i < COMM_VOTES; i++) n += v->items[i].n;
    if (v->n > COMM_VOTES || n > COMM_MIN_VALUES) /* the same on all ranks */
        return core_fail(err, DCP_ERR_STATE, "a vote has no room for %zu values", v->n);
    for (size_t i = 0; i < v->n && !status; at += v->items[i++].n)
        put_words(&v->items[i], words + at);
    status = comm_agree_min(comm, status, words, n, err);
    if (status) return status;
    at = 0;
    for (size_t i = 0; i < v->n; at += v->items[i++].n) take_words(&v->items[i], words + at);
    return check_items(comm, v, 0, v->is_split ? v->checked : v->n, err);
}

int comm_vote_check(dcp_comm *comm, const comm_vote *v, dcp_error *err) {
    return check_items(comm, v, v->checked, v->n, err);
}
