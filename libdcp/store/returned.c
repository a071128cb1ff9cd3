/* Determines which of two saves is the later one, and from which steps a run has gone back.
 *
 * The member "save" of about.json identifies a save, as "NUMBER.WRITER", and is the same on all
 * nodes. Numbers grow from save to save, even if the store is opened again: the writer that opens
 * it continues with a number that is above the highest one on the present nodes, and not below the
 * number of microseconds since 1970. Since no store saves once per microsecond, absent nodes have
 * lower numbers as well, unless clocks differ. So if two saves have the same step, the one with the
 * higher number is the later one, and the run went back from the other save. If nodes continued
 * separately, without knowing of each other, numbers may be equal; then the identities of the
 * writers decide, in the same way on all nodes.
 *
 * A run that continues from an earlier step records this in all of its later saves: [STEP, NUMBER]
 * in "back" means that saves of steps after STEP are past if their numbers are below NUMBER
 * (store/store.h). If a node has a complete copy of a step, then anything else that the node has
 * recorded about that step does not count. So a step that was set aside can be renamed back on all
 * nodes.
 *
 * Only saves of one run are compared. A node may have the steps of another run, for example if its
 * directory belonged to another job. Then the run that continues is the one that saved last among
 * the runs of which enough nodes are present to load a step; if there is none, it is the run whose
 * present nodes are in the most failure domains. Other runs' copies of this run's steps are set
 * aside, and redundancy rebuilds what is then missing. */
#include "store/returned.h"

#include <ctype.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/comm.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "format/about.h"
#include "format/folder.h"
#include "store/retention.h"

enum { WRITER_BITS = 11, NUMBER_BITS = 64 - WRITER_BITS - 1 };

/* A step of a node. `save` is larger for a later save; 0: the save is unknown. */
typedef struct node_step {
    const dcp_step *step;
    uint64_t save;
    uint64_t run;    /* the lineage's id; 0: unknown */
    uint64_t needed; /* how many failure domains a load needs; 0: unknown */
    bool is_damaged; /* its about.json is missing or damaged, so nothing says to which save it
                        belongs */
} node_step;

/* A node's steps, in ascending order. */
typedef struct node_steps {
    dcp_step *steps;
    size_t n;
    node_step *list;
    store_lineage lineage;
    uint64_t needed; /* how many failure domains of the lineage's run must be present; 0: unknown */
} node_steps;

/* Returns the number of the save in the high bits, and some bits of a checksum of its writer in the
 * low bits. */
static uint64_t parse_save(const char *text) {
    char *end = NULL;
    if (!text || !isdigit((unsigned char)*text)) return 0;
    const unsigned long long number = strtoull(text, &end, 10);
    if (*end != '.' || number >> NUMBER_BITS) return 0;
    const uint64_t writer = core_crc64(end, strlen(end)) >> (64 - WRITER_BITS);
    return (uint64_t)number << WRITER_BITS | writer;
}

/* Returns how many failure domains a load of the step needs; 0: unknown. */
static uint64_t count_needed(const json_t *about) {
    const json_int_t domains = json_integer_value(json_object_get(about, "domains"));
    const json_int_t survives = json_integer_value(json_object_get(about, "survives"));
    return survives >= 0 && domains > survives ? (uint64_t)(domains - survives) : 0;
}

/* Reads the members of about.json that describe the save. */
static int read_save(const dcp_store *store, node_step *s, store_lineage *lineage, dcp_error *err) {
    char folder[PATH_MAX];
    json_t *about = NULL;
    dcp_error why;
    s->is_damaged = true;
    if (snprintf(folder, sizeof folder, "%s/%s", store->dir, s->step->name) >= PATH_MAX)
        return DCP_OK;
    const int status = format_about_parse(folder, &about, &why);
    if (core_fail_is_damage(status)) return DCP_OK;
    if (status)
        return core_fail_again(err, status, &why,
                               "%s; until it can be read, it is unknown which steps still belong "
                               "to the run: move %s",
                               why.message,
                               store->options.private_dirs
                                   ? "that step away, and redundancy rebuilds what is lost"
                                   : "that file away, since the step can be loaded without it");
    s->is_damaged = false;
    s->save = parse_save(json_string_value(json_object_get(about, "save")));
    store_lineage_read(lineage, about, s->save >> WRITER_BITS);
    s->run = lineage->id;
    s->needed = count_needed(about);
    json_decref(about);
    return DCP_OK;
}

/* Notes what a save recorded about its run. A step that was set aside can be from a different run
 * than the node's complete steps; then the complete steps decide. */
static void note_lineage(node_steps *own, const node_step *s, const store_lineage *said) {
    const uint64_t last = own->lineage.last;
    if (s->step->kind == DCP_STEP_ABANDONED && own->lineage.id && said->id != own->lineage.id)
        return;
    store_lineage_update(&own->lineage, said);
    if (own->lineage.last != last) own->needed = s->needed;
}

/* In a shared store, a step that was renamed back may be the newest, and its save older than those
 * of other steps: store_returned_learn reads those. */
static int read_kind(const dcp_store *store, node_steps *own, dcp_step_kind kind, dcp_error *err) {
    bool is_read = false;
    int status = DCP_OK;
    for (size_t i = own->n; i-- > 0 && !status && !is_read;) {
        store_lineage said = {0};
        if (own->steps[i].kind != kind) continue;
        status = read_save(store, &own->list[i], &said, err);
        note_lineage(own, &own->list[i], &said);
        is_read = !store->options.private_dirs && !own->list[i].is_damaged;
    }
    return status;
}

/* Lists the steps, and reads their about.json files. In a shared store, the about.json of the
 * newest complete step is enough, or, if it is missing or damaged, the about.json of the next older
 * step: the store has all saves of the run, and each save records what the earlier ones
 * recorded. */
static int read_steps(const dcp_store *store, node_steps *own, dcp_error *err) {
    int status = dcp_steps_list(store->dir, &own->steps, &own->n, err);
    if (status) return status;
    own->list = calloc(own->n + 1, sizeof *own->list);
    if (!own->list) return core_fail_memory(err, (own->n + 1) * sizeof *own->list);
    for (size_t i = 0; i < own->n; i++) own->list[i].step = &own->steps[i];
    status = read_kind(store, own, DCP_STEP_COMPLETE, err);
    if (!status && store->options.private_dirs)
        status = read_kind(store, own, DCP_STEP_ABANDONED, err);
    return status;
}

static const node_step *find_complete(const node_steps *own, uint64_t step) {
    for (size_t i = 0; i < own->n; i++)
        if (own->steps[i].step == step && own->steps[i].kind == DCP_STEP_COMPLETE)
            return &own->list[i];
    return NULL;
}

static uint64_t later_of(uint64_t a, uint64_t b) { return a > b ? a : b; }

static bool is_of_other_run(uint64_t run, uint64_t id) { return id && run && id != run; }

/* Nodes compare what they know about a step by numbers, called words: later information has a
 * larger word. This function returns the word of a node that has no complete copy of the step, or 0
 * if the node knows nothing about the step. Such a node knows either that it has set aside a save
 * of the step, which counts as later than the save itself, or that the run went back to a step
 * before this one. */
static uint64_t word_without(const node_steps *own, uint64_t step, uint64_t run) {
    uint64_t last = 0;
    for (const node_step *s = own->list; s < own->list + own->n; s++)
        if (s->step->step == step && s->save && !is_of_other_run(run, s->run))
            last = later_of(last, s->save << 1 | 1);
    for (uint64_t i = 0; i < own->lineage.n && !is_of_other_run(run, own->lineage.id); i++) {
        const store_rewind past = own->lineage.rewinds[i];
        if (past.to < step) last = later_of(last, past.number << (WRITER_BITS + 1));
    }
    return last;
}

static int set_aside(dcp_store *store, const node_step *s, uint64_t run, dcp_error *err) {
    const char *why = is_of_other_run(run, s->run)
                          ? "this node's copy is of another run than that of the other nodes"
                          : "the run went back from it while this node was away";
    const int status = store_abandon_step(store, s->step, why, err);
    return status ? status : store_sync(store, err);
}

/* Returns true if this node's copy of the step is superseded, or is of another run.
 *
 * Nothing says to which save a copy with a damaged about.json belongs. It counts as the run's if
 * another node has a copy that is not damaged, and as superseded if other nodes know something
 * later about the step than this node does.
 *
 *   word      the largest word of all nodes
 *   is_known  some node has a copy whose save is known */
static bool is_superseded(const node_steps *own, const node_step *mine, uint64_t run, uint64_t word,
                          bool is_known) {
    if (!mine) return false;
    if (mine->is_damaged) return !is_known && word > word_without(own, mine->step->step, run);
    if (is_of_other_run(run, mine->run)) return word > 0;
    return mine->save && mine->save << 1 < word;
}

/* Returns this node's word for the step. */
static uint64_t word_of(const node_steps *own, const node_step *mine, uint64_t step, uint64_t run) {
    if (!mine) return word_without(own, step, run);
    return is_of_other_run(run, mine->run) ? 0 : mine->save << 1;
}

/* Collective: for each step of which any node has a complete copy, sets aside the superseded
 * copies, and gives the others an about.json if it is missing or damaged. */
static int settle_all(dcp_store *store, const node_steps *own, uint64_t run, dcp_error *err) {
    for (uint64_t limit = UINT64_MAX;;) {
        uint64_t next;
        int status =
            format_list_newest_of_ranks(store->comm, own->steps, own->n, limit, &next, err);
        if (status || !next) return status;
        limit = next - 1;
        const node_step *mine = find_complete(own, limit);
        const bool lacks = mine && mine->is_damaged;
        const bool knows = mine && !lacks && !is_of_other_run(run, mine->run);
        uint64_t words[] = {word_of(own, mine, limit, run), knows, lacks};
        status = comm_allreduce(store->comm, words, 3, DCP_REDUCE_MAX, err);
        if (status) return status;
        const bool is_past = is_superseded(own, mine, run, words[0], words[1] != 0);
        if (mine && !is_past && is_of_other_run(run, mine->run))
            store_log(store, DCP_LOG_WARNING,
                      "%s/%s is of another run than the steps of other nodes: if it is loaded, the "
                      "run continues from there",
                      store->dir, mine->step->name);
        status = comm_agree(store->comm, is_past ? set_aside(store, mine, run, err) : DCP_OK, err);
        if (!status && words[1] && words[2])
            status = store_restore_about(store, limit, knows && !is_past, lacks && !is_past, err);
        if (status) return status;
    }
}

/* Returns a checksum of what the node knows about its steps; if it is equal on all nodes, the nodes
 * agree. */
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

/* The run whose steps a node has. */
typedef struct membership {
    uint64_t run,
        last; /* the lineage's id, 0 if there is none, and the number of its latest save */
    uint64_t domain, needed;
    uint64_t rank;
} membership;

static int compare_members(const void *a, const void *b) {
    const membership *x = a, *y = b;
    if (x->run != y->run) return x->run < y->run ? -1 : 1;
    if (x->domain != y->domain) return x->domain < y->domain ? -1 : 1;
    return x->rank < y->rank ? -1 : x->rank > y->rank;
}

/* A run of which at least one node is present. */
typedef struct present_run {
    const membership *last; /* the node with the latest save */
    size_t domains;
    bool is_whole; /* enough nodes are present to load a step */
} present_run;

/* Sums up the first members of the list, which all belong to one run. Returns how many there
 * are. */
static size_t sum_up(const membership *list, size_t n, present_run *run) {
    size_t i = 0;
    *run = (present_run){.last = list};
    for (; i < n && list[i].run == list->run; i++) {
        run->domains += i == 0 || list[i].domain != list[i - 1].domain;
        if (list[i].last > run->last->last) run->last = &list[i];
    }
    run->is_whole = run->domains >= run->last->needed;
    return i;
}

static bool is_better(const present_run *a, const present_run *b) {
    if (!b->last) return true;
    if (a->is_whole != b->is_whole) return a->is_whole;
    if (!a->is_whole && a->domains != b->domains) return a->domains > b->domains;
    return a->last->last > b->last->last;
}

/* Returns the node with the latest save of the run that continues, or NULL. Sorts the list. */
static const membership *choose_run(membership *list, size_t n) {
    present_run best = {0}, run;
    qsort(list, n, sizeof *list, compare_members);
    for (size_t i = 0; i < n;) {
        i += sum_up(&list[i], n - i, &run);
        if (run.last->run && is_better(&run, &best)) best = run;
    }
    return best.last;
}

/* Collective: sets *lineage on all ranks to the latest lineage of the run that continues. */
static int unite(const dcp_store *store, const node_steps *own, store_lineage *lineage,
                 dcp_error *err) {
    const size_t n = (size_t)store->comm->size;
    const membership mine = {own->lineage.id, own->lineage.last, store->domain, own->needed,
                             (uint64_t)store->comm->rank};
    membership *all = store->comm->rank == 0 ? calloc(n, sizeof *all) : NULL;
    uint64_t root = 0;
    int status = store->comm->rank == 0 && !all ? core_fail_memory(err, n * sizeof *all) : DCP_OK;
    status = comm_agree(store->comm, status, err);
    if (!status) status = comm_gather(store->comm, &mine, sizeof mine, all, 0, err);
    const membership *chosen = status || !all ? NULL : choose_run(all, n);
    if (chosen) root = chosen->rank;
    free(all);
    if (!status) status = comm_broadcast(store->comm, &root, sizeof root, 0, err);
    return status ? status : comm_broadcast(store->comm, lineage, sizeof *lineage, (int)root, err);
}

int store_returned_reconcile(dcp_store *store, dcp_error *err) {
    enum { LAST, SAID, UNSAID, NOW, WORDS };
    const bool leads = store_leads(store);
    node_steps own = {0};
    int status = leads ? read_steps(store, &own, err) : DCP_OK;
    status = comm_agree(store->comm, status, err);
    uint64_t most[WORDS] = {[NOW] = now_us()};
    if (!status && leads) {
        const uint64_t said = fingerprint(&own);
        most[LAST] = last_number(&own);
        most[SAID] = said;
        most[UNSAID] = ~said;
    }
    if (!status) status = comm_allreduce(store->comm, most, WORDS, DCP_REDUCE_MAX, err);
    store->save_number = later_of(most[LAST] + 1, most[NOW]);
    const bool are_same = most[SAID] == ~most[UNSAID];
    store->lineage = own.lineage;
    if (!status && !are_same) status = unite(store, &own, &store->lineage, err);
    if (!status && !are_same) status = settle_all(store, &own, store->lineage.id, err);
    free(own.list);
    free(own.steps);
    return status;
}

/* What is new to a store that was absent while its run continued. */
typedef struct returned_news {
    const store_lineage *run;
    store_rewind parting; /* where the store's own saves left the run, if they are a branch */
    uint64_t after;       /* the run's newest step is before this one */
} returned_news;

/* Returns true if the lineage of the store's own saves implies `past` as well. So if a step is past
 * because of `past` and exists nevertheless, somebody has renamed it back. */
static bool has_known(const store_lineage *own, const store_lineage *run, store_rewind past) {
    return own->id == run->id && store_lineage_has(own, past);
}

/* Returns a step such that only later steps can be past because of the news, and have to be
 * examined. Returns UINT64_MAX if there is nothing new. */
static uint64_t find_earliest(const store_lineage *own, const returned_news *news) {
    const store_lineage *run = news->run;
    uint64_t earliest = news->parting.number ? news->parting.to : UINT64_MAX;
    for (uint64_t i = 0; i < run->n; i++)
        if (!has_known(own, run, run->rewinds[i]) && run->rewinds[i].to < earliest)
            earliest = run->rewinds[i].to;
    return earliest;
}

/* Returns true if the step, which is later than the step that find_earliest returned, is past. If
 * its about.json is damaged, nothing says whether the step was saved before the run went back, or
 * is the only one of the store's steps that was saved afterwards. So it stays if the run has a step
 * that is at least as new, which is then loaded instead. */
static bool is_past(const dcp_store *store, const node_step *s, const store_lineage *said,
                    const returned_news *news) {
    const dcp_step *step = s->step;
    const store_rewind own = {step->step - 1, said->last + 1}; /* implied if the step is past */
    if (s->is_damaged)
        return step->step >= news->after &&
               (!store->lineage.id || store->lineage.id == news->run->id);
    if (!said->last || said->id != news->run->id) return false;
    if (news->parting.number && step->step > news->parting.to && said->last >= news->parting.number)
        return true;
    return store_lineage_has(news->run, own) && !has_known(&store->lineage, news->run, own);
}

static int forget_step(dcp_store *store, const dcp_step *step, const returned_news *news, bool *any,
                       dcp_error *err) {
    node_step s = {.step = step};
    store_lineage said = {0};
    int status = read_save(store, &s, &said, err);
    if (status || !is_past(store, &s, &said, news)) return status;
    status = store_abandon_step(store, step, "the run went on without it while this store was away",
                                err);
    *any |= !status;
    return status ? status : store_sync(store, err);
}

static int forget_all(dcp_store *store, const store_lineage *run, uint64_t after, dcp_error *err) {
    const returned_news news = {run, store_lineage_divergence(run, &store->lineage), after};
    const uint64_t earliest = find_earliest(&store->lineage, &news);
    dcp_step *steps = NULL;
    size_t n = 0;
    if (earliest == UINT64_MAX) return DCP_OK;
    int status = dcp_steps_list(store->dir, &steps, &n, err);
    bool any = false;
    for (size_t i = 0; i < n && !status; i++)
        if (steps[i].kind == DCP_STEP_COMPLETE && steps[i].step > earliest)
            status = forget_step(store, &steps[i], &news, &any, err);
    if (any)
        store_log(store, DCP_LOG_WARNING,
                  "%s: to continue from a step that was set aside, name its folder "
                  "(checkpoint.resume, or dcp_checkpoint_open and dcp_tiers_continue_from); a step "
                  "that is renamed to step-... is set aside again until a save into this store",
                  store->dir);
    free(steps);
    return status;
}

bool store_returned_has_news(const store_lineage *own, const store_lineage *run) {
    const returned_news news = {run, store_lineage_divergence(run, own), 0};
    return find_earliest(own, &news) != UINT64_MAX;
}

static int learn_all(dcp_store *store, dcp_error *err) {
    dcp_step *steps = NULL;
    size_t n = 0;
    int status = dcp_steps_list(store->dir, &steps, &n, err);
    for (size_t i = 0; i < n && !status; i++) {
        node_step s = {.step = &steps[i]};
        store_lineage said = {0};
        if (steps[i].kind == DCP_STEP_COMPLETE) status = read_save(store, &s, &said, err);
        store_lineage_update(&store->lineage, &said);
    }
    free(steps);
    return status;
}

int store_returned_learn(dcp_store *store, dcp_error *err) {
    const bool learns = store_leads(store) && !store->options.private_dirs;
    int status = comm_agree(store->comm, learns ? learn_all(store, err) : DCP_OK, err);
    uint64_t next = learns ? store->lineage.last + 1 : 0;
    if (!status) status = comm_allreduce(store->comm, &next, 1, DCP_REDUCE_MAX, err);
    store->save_number = later_of(store->save_number, next);
    return status;
}

int store_returned_set_aside(dcp_store *store, const store_lineage *run, uint64_t after,
                             dcp_error *err) {
    int status = store_leads(store) ? forget_all(store, run, after, err) : DCP_OK;
    status = comm_agree(store->comm, status, err);
    if (!status) store->lineage = *run;
    return status;
}

static store_rewind find_own_past(const dcp_store *store) {
    return (store_rewind){store->continue_from, store->back_number};
}

void store_returned_go_back(dcp_store *store) {
    store_lineage_add(&store->lineage, find_own_past(store));
    store->back_number = 0;
}

void store_returned_record(dcp_store *store) {
    store_returned_go_back(store);
    store->lineage.id = store_returned_id(store);
    store->lineage.last = store->save_number - 1;
}

uint64_t store_returned_id(const dcp_store *store) {
    return store->lineage.id ? store->lineage.id : strtoull(store->writer, NULL, 16);
}

int store_returned_describe(const dcp_store *store, json_t *about) {
    store_lineage lineage = store->lineage;
    lineage.id = store_returned_id(store);
    store_lineage_add(&lineage, find_own_past(store));
    json_t *save = json_sprintf("%llu.%s", (unsigned long long)store->save_number, store->writer);
    return json_object_set_new(about, "save", save) || store_lineage_describe(&lineage, about) ? -1
                                                                                               : 0;
}
