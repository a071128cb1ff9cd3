/* A save is known by the member "save" of its about.json, "NUMBER.WRITER", the same on all nodes.
 * Numbers grow from save to save, also where a store is opened anew: whoever opens it goes on after
 * the highest that the nodes have which are there, and after the microseconds that have passed
 * since 1970, which no store's saves outrun: nodes that are all away have lower numbers, too, but
 * for clocks that differ. So of two saves of one step the one with the higher number is the later,
 * and the run went back from the other. Where nodes that know nothing of each other went on apart,
 * the writers decide, alike on all nodes.
 *
 * A run that goes on from an earlier step says so in its saves: "back", [STEP, NUMBER], means that
 * later steps with lower numbers are past. Of a step that a node has itself, complete, it is not
 * asked what else it knows: so a step that was set aside can be renamed back on all nodes. */
#include "store/returned.h"

#include <ctype.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/comm.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "step/about.h"
#include "step/list.h"
#include "store/retention.h"

enum { WRITER_BITS = 11, NUMBER_BITS = 64 - WRITER_BITS - 1 };

/* What a node has of a step. A later save has a larger `save`; 0: of no known one. */
typedef struct node_step {
    const dcp_step *step;
    uint64_t save;
    uint64_t back_to, back_save; /* saves before back_save of steps after back_to are past */
} node_step;

/* A node's steps, in ascending order. */
typedef struct node_steps {
    dcp_step *steps;
    size_t n;
    node_step *list;
} node_steps;

/* The number of the save, then some bits of its writer. */
static uint64_t parse_save(const char *text) {
    char *end = NULL;
    if (!text || !isdigit((unsigned char)*text)) return 0;
    const unsigned long long number = strtoull(text, &end, 10);
    if (*end != '.' || number >> NUMBER_BITS) return 0;
    const uint64_t writer = core_crc64(end, strlen(end)) >> (64 - WRITER_BITS);
    return (uint64_t)number << WRITER_BITS | writer;
}

static void parse_back(const json_t *back, node_step *s) {
    const json_int_t to = json_integer_value(json_array_get(back, 0));
    const json_int_t number = json_integer_value(json_array_get(back, 1));
    if (to < 0 || number <= 0 || number >> NUMBER_BITS) return;
    s->back_to = (uint64_t)to;
    s->back_save = (uint64_t)number << WRITER_BITS;
}

static int read_save(const char *dir, node_step *s, dcp_error *err) {
    char folder[PATH_MAX];
    json_t *about = NULL;
    dcp_error why;
    if (snprintf(folder, sizeof folder, "%s/%s", dir, s->step->name) >= PATH_MAX) return DCP_OK;
    const int status = step_about_parse(folder, &about, &why);
    if (core_fail_proves(status)) return DCP_OK;
    if (status)
        return core_fail_again(err, status, &why,
                               "%s; until it can be read nobody knows whether that step is still "
                               "the run's: move it away, and redundancy rebuilds what is lost",
                               why.message);
    s->save = parse_save(json_string_value(json_object_get(about, "save")));
    parse_back(json_object_get(about, "back"), s);
    json_decref(about);
    return DCP_OK;
}

static int read_steps(const char *dir, node_steps *own, dcp_error *err) {
    int status = dcp_steps_list(dir, &own->steps, &own->n, err);
    if (status) return status;
    own->list = calloc(own->n + 1, sizeof *own->list);
    if (!own->list) return core_fail_memory(err, (own->n + 1) * sizeof *own->list);
    for (size_t i = 0; i < own->n && !status; i++) {
        own->list[i].step = &own->steps[i];
        if (own->steps[i].kind != DCP_STEP_PARTIAL) status = read_save(dir, &own->list[i], err);
    }
    return status;
}

static const node_step *find_complete(const node_steps *own, uint64_t step) {
    for (size_t i = 0; i < own->n; i++)
        if (own->steps[i].step == step && own->steps[i].kind == DCP_STEP_COMPLETE)
            return &own->list[i];
    return NULL;
}

static uint64_t later_of(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* How late the word on the step is of a node that has no complete one: the last by which it has set
 * one aside, which is later than that save itself, or gone back. */
static uint64_t word_without(const node_steps *own, uint64_t step) {
    uint64_t last = 0;
    for (const node_step *s = own->list; s < own->list + own->n; s++) {
        if (s->step->step == step && s->save) last = later_of(last, s->save << 1 | 1);
        if (s->back_to < step) last = later_of(last, s->back_save << 1);
    }
    return last;
}

static int set_aside(dcp_store *store, const node_step *s, dcp_error *err) {
    const int status = store_abandon_step(
        store, s->step, "the run went back from it while this node was away", err);
    return status ? status : store_sync(store, err);
}

/* Collective, over the steps that any node has complete. */
static int settle_all(dcp_store *store, const node_steps *own, dcp_error *err) {
    for (uint64_t limit = UINT64_MAX;;) {
        uint64_t next;
        int status = step_list_newest_of_ranks(store->comm, own->steps, own->n, limit, &next, err);
        if (status || !next) return status;
        limit = next - 1;
        const node_step *mine = find_complete(own, limit);
        uint64_t word = mine ? mine->save << 1 : word_without(own, limit);
        status = comm_allreduce(store->comm, &word, 1, DCP_REDUCE_MAX, err);
        if (status) return status;
        const int is_past = mine && mine->save && mine->save << 1 < word;
        status = comm_agree(store->comm, is_past ? set_aside(store, mine, err) : DCP_OK, err);
        if (status) return status;
    }
}

/* The same where nodes say the same of all steps. */
static uint64_t fingerprint(const node_steps *own) {
    uint64_t raw = ~0ULL;
    for (size_t i = 0; i < own->n; i++) {
        const uint64_t said[] = {own->steps[i].step, own->list[i].save,
                                 own->steps[i].kind == DCP_STEP_COMPLETE};
        if (own->steps[i].kind != DCP_STEP_PARTIAL) raw = core_crc64_raw(raw, said, sizeof said);
    }
    return raw;
}

static uint64_t last_number(const node_steps *own) {
    uint64_t last = 0;
    for (size_t i = 0; i < own->n; i++)
        if (own->list[i].save > last) last = own->list[i].save;
    return last >> WRITER_BITS;
}

static uint64_t now_us(void) {
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

int store_returned_settle(dcp_store *store, dcp_error *err) {
    enum { LAST, SAID, UNSAID, NOW, WORDS };
    const int leads = store_leads(store);
    node_steps own = {0};
    int status = leads ? read_steps(store->dir, &own, err) : DCP_OK;
    status = comm_agree(store->comm, status, err);
    uint64_t most[WORDS] = {[NOW] = now_us()};
    if (!status && leads) {
        const uint64_t said = fingerprint(&own);
        most[LAST] = last_number(&own);
        most[SAID] = said;
        most[UNSAID] = ~said;
    }
    if (!status) status = comm_allreduce(store->comm, most, WORDS, DCP_REDUCE_MAX, err);
    if (!status) store->save_number = later_of(most[LAST] + 1, most[NOW]);
    if (!status && most[SAID] != ~most[UNSAID]) status = settle_all(store, &own, err);
    free(own.list);
    free(own.steps);
    return status;
}

int store_returned_describe(const dcp_store *store, json_t *about) {
    const uint64_t number = store->save_number, to = store->continue_from;
    json_t *save = json_sprintf("%llu.%s", (unsigned long long)number, store->writer);
    if (json_object_set_new(about, "save", save)) return -1;
    if (!store->back_number || to > INT64_MAX) return 0;
    json_t *back = json_pack("[I, I]", (json_int_t)to, (json_int_t)store->back_number);
    return json_object_set_new(about, "back", back);
}
