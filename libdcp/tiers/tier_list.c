/* Paths of private stores may contain the rank, the host or values from the environment, since
 * ranks can share a file system without sharing a directory on it. The names of failure domains may
 * contain them, too. Everything else in the list is the same on all ranks. */
#include "tiers/tier_list.h"

#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "comm/vote.h"
#include "core/checks.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "format/folder.h"
#include "store/publication.h"
#include "store/retention.h"

/* Sets *value to the value of the variable in {env:NAME}; NULL if it is not set. Returns the length
 * of the braces and their text, or 0 if the brace is not closed or the name is too long. */
static size_t environment(const char *at, const char **value, char *out, size_t size) {
    size_t n = strcspn(at, "}");
    if (at[n] != '}' || n - 5 >= size) return 0;
    snprintf(out, size, "%.*s", (int)(n - 5), at + 5);
    *value = getenv(out);
    return n + 1;
}

/* Sets *value to the host's name: the value of DCP_HOST, which comm/process.h also uses to
 * distinguish hosts, or gethostname's if DCP_HOST is not set or empty. Returns the length of
 * {host}. */
static size_t host(const char **value, char *out, size_t size) {
    const char *named = getenv("DCP_HOST");
    if (named && *named)
        *value = named;
    else if (gethostname(out, size - 1))
        return 0;
    out[size - 1] = '\0';
    return 6;
}

/* Sets *value to the text that replaces the braces at `at`. Returns the length of the braces and
 * their text, or 0 if the text is unknown. If an environment variable is not set, *value is NULL
 * and `out` contains its name. */
static size_t stand_in(const char *at, int rank, const char **value, char *out, size_t size) {
    *value = out;
    if (strncmp(at, "{env:", 5) == 0) return environment(at, value, out, size);
    if (strncmp(at, "{rank}", 6) == 0) {
        snprintf(out, size, "%d", rank);
        return 6;
    }
    if (strncmp(at, "{host}", 6) == 0) return host(value, out, size);
    return 0;
}

/* Replaces the braces in `given`; *out is malloc'd. */
static int fill_in(const char *given, int rank, char **out, dcp_error *err) {
    char text[PATH_MAX] = "", word[256];
    size_t length = 0;
    for (const char *at = given; *at;) {
        size_t taken = 1;
        const char *value = word;
        word[0] = *at, word[1] = '\0';
        if (*at == '{' && !(taken = stand_in(at, rank, &value, word, sizeof word)))
            return core_fail(err, DCP_ERR_ARG,
                             "%s: only {rank}, {host} and {env:NAME} may be in braces", given);
        if (!value || !*value)
            return core_fail(err, DCP_ERR_ARG, "%s: %s is not set in the environment", given, word);
        if (length + strlen(value) >= sizeof text)
            return core_fail(err, DCP_ERR_ARG, "the path is too long: %.80s...", given);
        length += (size_t)sprintf(text + length, "%s", value);
        at += taken;
    }
    *out = strdup(text);
    return *out ? DCP_OK : core_fail_memory(err, length);
}

int tiers_given_path(const dcp_tier *given, int rank, char **out, dcp_error *err) {
    if (!given->path) return core_fail(err, DCP_ERR_ARG, "a store needs a path");
    if (!given->is_private && strchr(given->path, '{'))
        return core_fail(err, DCP_ERR_ARG,
                         "%s: only the path of a private store can differ between ranks",
                         given->path);
    int status = fill_in(given->path, rank, out, err);
    if (status || !core_path_check(NULL, *out, err)) return status;
    free(*out);
    *out = NULL;
    return DCP_ERR_UNSUPPORTED;
}

int tiers_given_domain(const dcp_tier *given, int rank, char **out, dcp_error *err) {
    *out = NULL;
    return given->domain ? fill_in(given->domain, rank, out, err) : DCP_OK;
}

/* Returns a checksum of everything that must be the same on all ranks. */
static uint64_t print_of(const dcp_tier *list, size_t n) {
    uint64_t raw = core_crc64_raw(~0ULL, &n, sizeof n);
    for (size_t i = 0; i < n; i++) {
        const char *redundancy = list[i].redundancy ? list[i].redundancy : "";
        const char *metric = list[i].keep_metric ? list[i].keep_metric : "";
        uint64_t what[] = {
            list[i].every,           list[i].keep,      list[i].keep_every,
            list[i].keep_seconds,    list[i].keep_best, list[i].keep_highest != 0,
            list[i].is_private != 0, list[i].layout,    (uint64_t)list[i].stripe_count,
            list[i].stripe_bytes};
        raw = core_crc64_raw(raw, what, sizeof what);
        raw = core_crc64_raw(raw, redundancy, strlen(redundancy) + 1);
        raw = core_crc64_raw(raw, metric, strlen(metric) + 1);
    }
    return raw;
}

int tiers_given_copy(const dcp_tier *list, size_t i, dcp_tier *own, dcp_error *err) {
    int status = core_sized_check(list, sizeof *own, "DCP_TIER_INIT", err);
    if (status) return status;
    const dcp_tier *at = (const void *)((const char *)list + i * list->size);
    status = core_sized_copy_in(own, sizeof *own, at, "DCP_TIER_INIT", err);
    if (!status && at->size != list->size)
        status = core_fail(err, DCP_ERR_ARG,
                           "store %zu of the list has the member size = %zu, but the first store "
                           "has %zu: initialize all of them with DCP_TIER_INIT",
                           i, at->size, list->size);
    if (!status)
        status = core_option_check_choice("layout", (int)own->layout, DCP_LAYOUT_SHARDED, err);
    return status;
}

int tiers_given_agree(dcp_comm *comm, const dcp_tier *list, size_t n, dcp_tier *own,
                      dcp_error *err) {
    int status = DCP_OK;
    if (!list || n < 1 || n > DCP_MAX_TIERS)
        status =
            core_fail(err, DCP_ERR_ARG, "%zu stores: from 1 to %d are possible", n, DCP_MAX_TIERS);
    for (size_t i = 0; i < n && !status; i++) status = tiers_given_copy(list, i, &own[i], err);
    status = comm_agree(comm, status, err);
    if (status) return status;
    comm_vote v = {0};
    comm_vote_same_hash(&v, "the list of stores (all but the paths and domains)", print_of(own, n));
    return comm_vote_run(comm, &v, DCP_OK, err);
}

void tiers_log(const dcp_tiers *tiers, dcp_log_level level, const char *fmt, ...) {
    if (!tiers->log || tiers->comm->rank != 0) return;
    char line[sizeof((dcp_error *)0)->message];
    va_list args;
    va_start(args, fmt);
    core_format(line, sizeof line, fmt, args);
    va_end(args);
    tiers->log(tiers->log_ctx, level, line);
}

void tiers_warn(const dcp_tiers *tiers, const tier *t, uint64_t step, const dcp_error *err) {
    tiers_log(tiers, DCP_LOG_WARNING, "step %llu is not saved in %s: %s; the next save tries again",
              (unsigned long long)step, t->store->dir, err->message);
}

const tier *tiers_agreed(const dcp_tiers *tiers, size_t i) {
    return tiers->answers_as_before ? &tiers->before[i] : &tiers->list[i];
}

void tiers_answer_as_of_now(dcp_tiers *tiers) { tiers->answers_as_before = false; }

void tiers_answer_as_before(dcp_tiers *tiers) {
    memcpy(tiers->before, tiers->list, tiers->n * sizeof *tiers->before);
    tiers->answers_as_before = true;
}

bool tiers_is_abandoned(const dcp_tiers *tiers, uint64_t step) {
    return tiers->goes_back && step > tiers->back_to;
}

bool tiers_has_step(const dcp_tiers *tiers, const tier *t, uint64_t step) {
    return t->has_step && t->step == step && !tiers_is_abandoned(tiers, step);
}

bool tiers_is_overdue(const dcp_tiers *tiers, const tier *t) {
    if (t->requested) return true;
    if (!t->has_missed || tiers_is_abandoned(tiers, t->missed)) return false;
    return !t->is_made_good || tiers_is_abandoned(tiers, t->made_good);
}

void tiers_record_missed(tier *t, uint64_t step) {
    if (t->has_missed && !t->is_made_good) return; /* an earlier step is still missing */
    t->missed = step;
    t->has_missed = true;
    t->is_made_good = false;
}

void tiers_record_save(tier *t, uint64_t step, int status) {
    t->failed = status != DCP_OK;
    if (status) {
        tiers_record_missed(t, step);
        return;
    }
    if (t->has_missed && !t->is_made_good) {
        t->made_good = step;
        t->is_made_good = true;
    }
    t->step = step;
    t->has_step = true;
}

void tiers_update_store(const dcp_tiers *tiers, tier *t) {
    if (t->drain || (tiers->flight && tiers->flight_tier == t)) return;
    if (t->intact_pending && !t->is_marked) {
        dcp_store_mark_intact(t->store, t->intact, NULL);
        store_unpin(t->store, t->intact);
    }
    if (t->unread_pending) store_allow_replacement(t->store, t->unread);
    t->intact_pending &= t->is_marked;
    t->unread_pending = false;
}

static void note_intact(const dcp_tiers *tiers, tier *t, uint64_t step, bool is_marked) {
    tier *before = &tiers->before[t - tiers->list];
    t->step = before->step = step;
    t->has_step = before->has_step = true;
    store_pin(t->store, step);
    if (t->intact_pending) store_unpin(t->store, t->intact);
    t->intact = step;
    t->intact_pending = true;
    t->is_marked = is_marked;
    tiers_update_store(tiers, t);
}

void tiers_record_intact(const dcp_tiers *tiers, tier *t, uint64_t step) {
    note_intact(tiers, t, step, false);
}

uint64_t tiers_marks(const dcp_tiers *tiers) {
    uint64_t raw = ~0ULL;
    for (size_t i = 0; i < tiers->n; i++) {
        const tier *t = &tiers->list[i];
        const uint64_t mark[] = {t->is_marked != 0, t->is_marked ? t->intact : 0};
        raw = core_crc64_raw(raw, mark, sizeof mark);
    }
    return raw;
}

uint64_t tiers_requests(const dcp_tiers *tiers) {
    uint64_t asks = 0;
    for (size_t i = 0; i < tiers->n; i++) asks |= (uint64_t)tiers->list[i].requested << i;
    return asks;
}

/* Collective: checks whether the marked step exists. One node that has it is enough: in a private
 * store, nodes that joined after the step was saved have no files of it. If this can't be
 * determined, the step counts as present. */
static int check_mark(dcp_tiers *tiers, tier *t, dcp_error *err) {
    char name[64];
    bool found = false;
    format_name_write(name, "", t->intact);
    if (store_leads(t->store) && store_has(t->store, name, &found, NULL)) found = true;
    uint64_t is_there = (uint64_t)found;
    const int status = comm_allreduce(tiers->comm, &is_there, 1, DCP_REDUCE_MAX, err);
    if (status) return status;
    t->is_marked = false;
    /* on some ranks, a save may have ended between the call that marked the step and this one */
    t->step = t->intact;
    t->has_step = true;
    if (!is_there) {
        tiers_log(
            tiers, DCP_LOG_WARNING,
            "step %llu of %s was marked as intact (dcp_tiers_mark_intact), but does not exist",
            (unsigned long long)t->intact, t->store->dir);
        store_unpin(t->store, t->intact);
        t->intact_pending = false;
        tiers_record_lost(t, t->intact);
    }
    tiers_update_store(tiers, t);
    return DCP_OK;
}

int tiers_check_marks(dcp_tiers *tiers, dcp_error *err) {
    int status = DCP_OK;
    for (size_t i = 0; i < tiers->n && !status; i++)
        if (tiers->list[i].is_marked) status = check_mark(tiers, &tiers->list[i], err);
    return status;
}

void tiers_record_lost(tier *t, uint64_t step) {
    if (t->step == step) t->has_step = false;
}

void tiers_record_unread(const dcp_tiers *tiers, tier *t, uint64_t step) {
    if (tiers_has_step(tiers, t, step)) return;
    t->unread = step;
    t->unread_pending = true;
    tiers_update_store(tiers, t);
}

/* The store may have a copy of the step to which the run went back, even if the list does not know
 * of the copy. Therefore a save of this step is allowed to replace such a copy. */
void tiers_forget_abandoned(const dcp_tiers *tiers, tier *t) {
    if (tiers_is_abandoned(tiers, t->step)) t->has_step = false;
    if (tiers_is_abandoned(tiers, t->made_good)) t->is_made_good = false;
    if (tiers_is_abandoned(tiers, t->missed)) t->has_missed = t->failed = false;
    tiers_record_unread(tiers, t, tiers->back_to);
}

int dcp_tiers_mark_intact(dcp_tiers *tiers, size_t i, uint64_t step, dcp_error *err) {
    if (!tiers || i >= tiers->n)
        return core_fail(err, DCP_ERR_ARG, "dcp_tiers_mark_intact: no such store");
    note_intact(tiers, &tiers->list[i], step, true);
    return DCP_OK;
}

int dcp_tiers_ask(dcp_tiers *tiers, size_t i, dcp_error *err) {
    if (!tiers || i >= tiers->n) return core_fail(err, DCP_ERR_ARG, "dcp_tiers_ask: no such store");
    tiers->list[i].requested = tiers->before[i].requested = true;
    return DCP_OK;
}

int dcp_tiers_has(const dcp_tiers *tiers, size_t i, uint64_t step) {
    return tiers && i < tiers->n && tiers_has_step(tiers, tiers_agreed(tiers, i), step);
}

void tiers_number_alike(dcp_tiers *tiers) {
    uint64_t next = 0;
    for (size_t i = 0; i < tiers->n; i++)
        if (tiers->list[i].store->save_number > next) next = tiers->list[i].store->save_number;
    for (size_t i = 0; i < tiers->n; i++) tiers->list[i].store->save_number = next;
}
