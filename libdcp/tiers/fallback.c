/* Going back, and loading. The ranks declare at different times that the run goes back, possibly
 * while stores are being filled or a save is in flight. So the declaration is only recorded, and
 * from then on affects everything that the list knows (tiers/tier_list.h). All ranks take part in
 * the next save. It cancels the fillings of abandoned steps, and waits for all fillings. Before it
 * saves into any store, it sets the abandoned steps aside in every store, and makes the list forget
 * them. Afterwards every store contains what it would contain if the abandoned steps had never
 * existed. */
#include "core/bytes.h"
#include "tiers/tier_list.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/comm.h"
#include "comm/vote.h"
#include "core/fail.h"
#include "format/folder.h"
#include "reader/open.h"
#include "store/lock.h"
#include "store/retention.h"
#include "store/returned.h"
#include "store/store.h"
#include "tiers/drain.h"

int tiers_go_back(dcp_tiers *tiers, dcp_error *err) {
    int status = DCP_OK;
    if (!tiers->goes_back) return DCP_OK;
    for (size_t i = 0; i < tiers->n; i++) tiers_drain_stop(tiers, &tiers->list[i]);
    for (size_t i = 0; i < tiers->n; i++) tiers_drain_finish(tiers, &tiers->list[i]);
    for (size_t i = 0; i < tiers->n; i++) tiers_forget_abandoned(tiers, &tiers->list[i]);
    tiers_number_alike(tiers);
    for (size_t i = 0; i < tiers->n && !status; i++) {
        status = dcp_store_continue_from(tiers->list[i].store, tiers->back_to, err);
        if (!status) status = store_set_aside(tiers->list[i].store, err);
    }
    if (status) return status;
    for (size_t i = 0; i < tiers->n; i++) store_returned_go_back(tiers->list[i].store);
    tiers->goes_back = false;
    return DCP_OK;
}

int dcp_tiers_continue_from(dcp_tiers *tiers, uint64_t step, dcp_error *err) {
    if (!tiers) return core_fail(err, DCP_ERR_ARG, "dcp_tiers_continue_from: tiers is NULL");
    tiers->goes_back = true;
    tiers->back_to = step;
    return DCP_OK;
}

/* Choosing what to load. The steps of all stores are candidates. They are tried, newest first,
 * until one loads. */

typedef struct candidates {
    dcp_tiers_step *list;
    size_t n;
} candidates;

static int append_step(candidates *c, uint64_t step, size_t of, dcp_error *err) {
    dcp_tiers_step *grown = core_array_grow(c->list, c->n + 1, sizeof *grown);
    if (!grown) return core_fail_memory(err, (c->n + 1) * sizeof *grown);
    c->list = grown;
    grown[c->n++] = (dcp_tiers_step){step, of};
    return DCP_OK;
}

/* Where a store's steps are: in a shared store, the same directory on all ranks. */
typedef struct place {
    const char *dir;
    bool is_private;
} place;

/* Finds the directories that the caller's list names. The paths are malloc'd. */
static int find_places(dcp_comm *comm, const dcp_tier *list, size_t n, place *out, dcp_error *err) {
    int status = DCP_OK;
    for (size_t i = 0; i < n && !status; i++) {
        char *path = NULL;
        status = tiers_given_path(&list[i], comm->rank, &path, err);
        out[i] = (place){path, list[i].is_private != 0};
    }
    return comm_agree(comm, status, err);
}

static void free_places(place *places, size_t n) {
    for (size_t i = 0; i < n; i++) free((char *)places[i].dir);
}

/* In a shared store only rank 0 lists steps, in a private store every rank does. */
static int append_steps_of(dcp_comm *comm, const place *p, size_t of, candidates *c,
                           dcp_error *err) {
    dcp_step *steps = NULL;
    size_t n = 0;
    int status = DCP_OK, local = DCP_OK;
    if (p->is_private || comm->rank == 0) status = dcp_steps_list(p->dir, &steps, &n, err);
    status = comm_agree(comm, status, err);
    for (uint64_t limit = UINT64_MAX; !status;) {
        uint64_t next;
        status = format_list_newest_of_ranks(comm, steps, n, limit, &next, err);
        if (status || !next) break;
        limit = next - 1;
        if (!local) local = append_step(c, limit, of, err);
    }
    free(steps);
    return status ? status : comm_agree(comm, local, err);
}

static int newest_first(const void *a, const void *b) {
    const dcp_tiers_step *x = a, *y = b;
    if (x->step != y->step) return x->step > y->step ? -1 : 1;
    return (x->tier > y->tier) - (x->tier < y->tier);
}

/* Lists the steps of all stores, newest first. After a failure *c is empty. */
static int list_candidates(dcp_comm *comm, const place *places, size_t n, candidates *c,
                           dcp_error *err) {
    int status = DCP_OK;
    *c = (candidates){0};
    for (size_t i = 0; i < n && !status; i++) status = append_steps_of(comm, &places[i], i, c, err);
    if (status) {
        free(c->list);
        *c = (candidates){0};
    }
    if (c->n) qsort(c->list, c->n, sizeof *c->list, newest_first);
    return status;
}

int dcp_tiers_steps(dcp_comm *comm, const dcp_tier *list, size_t n, dcp_tiers_step **out,
                    size_t *n_out, dcp_error *err) {
    candidates c;
    dcp_tier own[DCP_MAX_TIERS];
    place places[DCP_MAX_TIERS] = {{0}};
    if (!comm) return core_fail(err, DCP_ERR_ARG, "dcp_tiers_steps: comm is NULL");
    int status = tiers_given_agree(comm, list, n, own, err);
    if (status) return status;
    if (!out || !n_out)
        status = core_fail(err, DCP_ERR_ARG, "dcp_tiers_steps: out or n_out is NULL");
    status = comm_agree(comm, status, err);
    if (!status) status = find_places(comm, own, n, places, err);
    if (!status) status = list_candidates(comm, places, n, &c, err);
    free_places(places, n);
    if (status) return status;
    *out = c.list;
    *n_out = c.n;
    return DCP_OK;
}

static int agree_on_step(dcp_comm *comm, const dcp_tier *list, const dcp_tiers_step *which,
                         dcp_tier *own, dcp_error *err) {
    comm_vote v = {0};
    comm_vote_same(&v, "the step to open", which ? which->step : 0);
    comm_vote_same(&v, "the store to open it from", which ? which->tier : 0);
    int status = DCP_OK;
    if (!list || !which || which->tier >= DCP_MAX_TIERS)
        status = core_fail(err, DCP_ERR_ARG, "dcp_tiers_open_step: no list, or no such step");
    else
        status = tiers_given_copy(list, which->tier, own, err);
    return comm_vote_run(comm, &v, status, err);
}

/* Collective. With `loads_only`, the files of a private store's step are only loaded from. */
static int open_at(dcp_comm *comm, const place *p, uint64_t step, int loads_only,
                   dcp_checkpoint **out, dcp_error *err) {
    char folder[PATH_MAX];
    const int status = comm_agree(comm, format_name_path(p->dir, "", step, folder, err), err);
    if (status) return status;
    if (!p->is_private) return dcp_checkpoint_open(comm, folder, out, err);
    return (loads_only ? reader_open_private : dcp_checkpoint_open_private)(comm, folder, out, err);
}

int dcp_tiers_open_step(dcp_comm *comm, const dcp_tier *list, const dcp_tiers_step *which,
                        dcp_checkpoint **out, dcp_error *err) {
    dcp_tier given;
    place p = {0};
    if (!comm) return core_fail(err, DCP_ERR_ARG, "dcp_tiers_open_step: comm is NULL");
    int status = agree_on_step(comm, list, which, &given, err);
    if (!status) status = find_places(comm, &given, 1, &p, err);
    if (!status) status = open_at(comm, &p, which->step, 0, out, err);
    free_places(&p, 1);
    return status;
}

/* A load uses the directories that the stores have open: the paths in the caller's list may have
 * come to name others, because of a symbolic link, the environment or the working directory. */
typedef struct loading {
    dcp_tiers *tiers;
    place places[DCP_MAX_TIERS];
    dcp_tiers_load_fn load;
    void *ctx;
    const uint64_t *only; /* the step to load; NULL: the newest intact one */
} loading;

/* Collective: lists the steps that can be loaded. After a failure *c is empty. */
static int list_wanted(const loading *l, candidates *c, dcp_error *err) {
    int status = list_candidates(l->tiers->comm, l->places, l->tiers->n, c, err);
    size_t n = 0;
    for (size_t i = 0; i < c->n && l->only; i++)
        if (c->list[i].step == *l->only) c->list[n++] = c->list[i];
    if (l->only) c->n = n;
    return status;
}

static int open_listed(const loading *l, const dcp_tiers_step *which, dcp_checkpoint **out,
                       dcp_error *err) {
    return open_at(l->tiers->comm, &l->places[which->tier], which->step, l->tiers->loads_only, out,
                   err);
}

/* Calls the program's function, and makes the ranks agree on its status, which determines what they
 * try next. DCP_ERR_NOT_FOUND: a file of the step is missing. If the step can still be opened, its
 * files exist, and something else that the program wanted is missing. If opening it fails for a
 * reason other than damage, nothing proves that the step is damaged. */
static int call_load(const loading *l, const dcp_tiers_step *which, dcp_checkpoint *ckpt,
                     dcp_error *err) {
    dcp_checkpoint *again;
    dcp_error why = {0};
    int status = comm_agree(l->tiers->comm, l->load(l->ctx, ckpt, &why), &why);
    if (status == DCP_ERR_NOT_FOUND) {
        dcp_error unread = {0};
        const int reopened = open_listed(l, which, &again, &unread);
        if (!reopened) {
            dcp_checkpoint_close(again);
            return core_fail_again(err, DCP_ERR_MISMATCH, &why, "%s", why.message);
        }
        if (!core_fail_is_damage(reopened)) {
            if (err) *err = unread;
            return reopened;
        }
    }
    if (status && err) *err = why;
    return status;
}

static int load_step(loading *l, const dcp_tiers_step *which, dcp_error *err) {
    dcp_checkpoint *ckpt = NULL;
    int status = open_listed(l, which, &ckpt, err);
    if (status) return status;
    status = call_load(l, which, ckpt, err);
    /* recorded before the close ends the hold; otherwise a filling that ends now could remove the
     * step (`keep`) */
    if (!status) tiers_record_intact(l->tiers, &l->tiers->list[which->tier], which->step);
    dcp_checkpoint_close(ckpt);
    return status;
}

/* Rebuilds missing and damaged files of the step from redundancy. */
static int rebuild(loading *l, const dcp_tiers_step *which, dcp_error *err) {
    tier *t = &l->tiers->list[which->tier];
    int files = 0;
    dcp_comm *comm = t->store->comm;
    dcp_comm_set_stop(comm, l->tiers->comm->stop, l->tiers->comm->stop_ctx);
    int status = store_restore_step(t->store, which->step, true, &files, err);
    if (comm != l->tiers->comm) dcp_comm_set_stop(comm, NULL, NULL); /* a thread may use it later */
    l->tiers->rebuilt += files;
    return status;
}

/* Rebuilds a step that is damaged or could not be read completely, and loads it once more. `status`
 * and *err: the failure, which stays if redundancy does not help. If the rebuild fails for another
 * reason, such as a full disk, that is the failure: the step may be rebuilt later. */
static int load_rebuilt(loading *l, const dcp_tiers_step *which, int status, dcp_error *err) {
    const bool unread = status == DCP_ERR_IO;
    dcp_error why;
    int rebuilt = rebuild(l, which, &why);
    if (!rebuilt && (unread || l->tiers->rebuilt)) return load_step(l, which, err);
    /* without redundancy, the message about the damage is more useful; and a file that could not be
     * read may be intact */
    const bool has_groups = l->tiers->list[which->tier].store->groups != NULL;
    if (!rebuilt || unread || (!has_groups && core_fail_is_damage(rebuilt))) return status;
    if (err) *err = why;
    return rebuilt;
}

static const char *dir_of_tier(const loading *l, const dcp_tiers_step *which) {
    return l->tiers->list[which->tier].store->dir;
}

/* Logs the loaded step, and records that its copies in other stores were not read: if these stores
 * are due, the copies are written again. */
static void note_loaded(loading *l, const dcp_tiers_step *which) {
    for (size_t i = 0; i < l->tiers->n; i++)
        if (i != which->tier) tiers_record_unread(l->tiers, &l->tiers->list[i], which->step);
    if (l->tiers->rebuilt)
        tiers_log(l->tiers, DCP_LOG_INFO,
                  "step %llu is loaded from %s, after %d of its files were rebuilt",
                  (unsigned long long)which->step, dir_of_tier(l, which), l->tiers->rebuilt);
    else if (l->tiers->n > 1)
        tiers_log(l->tiers, DCP_LOG_INFO, "step %llu is loaded from %s",
                  (unsigned long long)which->step, dir_of_tier(l, which));
}

/* Fails if a store's directory was moved away, since it may have a newer step than the other
 * stores. */
static int check_all_places(const dcp_tiers *tiers, dcp_error *err) {
    int status = DCP_OK;
    dcp_error why = {0};
    for (size_t i = 0; i < tiers->n && !status; i++) {
        const dcp_store *store = tiers->list[i].store;
        if (store_leads(store)) status = store_lock_check_location(store->lock, &why);
    }
    if (!status) return DCP_OK;
    return core_fail_again(err, DCP_ERR_IO, &why,
                           "%s; until then it is unknown which step is the newest", why.message);
}

static bool is_same_list(const candidates *a, const candidates *b) {
    bool same = a->n == b->n;
    for (size_t i = 0; i < a->n && same; i++)
        same = a->list[i].step == b->list[i].step && a->list[i].tier == b->list[i].tier;
    return same;
}

/* Lists the steps again. If the list has changed, sets *is_changed to true and *c to the new
 * list. */
static int look_again(const loading *l, candidates *c, bool *is_changed, dcp_error *err) {
    candidates now;
    int status =
        l->only ? DCP_OK : comm_agree(l->tiers->comm, check_all_places(l->tiers, err), err);
    if (!status) status = list_wanted(l, &now, err);
    if (status) return status;
    *is_changed = !is_same_list(c, &now);
    free(*is_changed ? c->list : now.list);
    if (*is_changed) *c = now;
    return DCP_OK;
}

/* Fails because there is no step to load. The message names a step that was set aside, if there is
 * one, because a program may start from the beginning after this error. */
static int fail_empty(const loading *l, dcp_error *err) {
    if (l->only)
        return core_fail(err, DCP_ERR_NOT_FOUND, "step %llu is in none of the %zu stores",
                         (unsigned long long)*l->only, l->tiers->n);
    char aside[PATH_MAX + 256] = "";
    for (size_t i = 0; i < l->tiers->n && !*aside; i++)
        format_list_describe_others(l->tiers->list[i].store->dir, aside, sizeof aside);
    if (*aside) tiers_log(l->tiers, DCP_LOG_WARNING, "the stores hold no step%s", aside);
    return comm_agree(l->tiers->comm,
                      core_fail(err, DCP_ERR_NOT_FOUND, "the stores hold no step%s", aside), err);
}

/* Waits for the threads that work on a private store whose step could not be loaded, since the step
 * may have to be rebuilt. */
static void wait_for_threads(const loading *l, const dcp_tiers_step *which) {
    tier *t = &l->tiers->list[which->tier];
    if (!t->given.is_private) return;
    store_wait_for_save(t->store);
    tiers_drain_finish(l->tiers, t);
}

/* Tries the candidates in order. If a step could not be read, other copies of the same step may be
 * loaded instead, but no older step. If a step does not load, and the stores no longer hold the
 * steps that were listed, `keep` may have removed the step because a save or a filling has ended
 * since then. In that case a newer step exists, and the search begins again. */
static int try_all(loading *l, candidates *c, uint64_t *step, dcp_error *err) {
    dcp_error why = {0}, unread = {0};
    for (size_t i = 0; i < c->n; i++) {
        const dcp_tiers_step *which = &c->list[i], *next = i + 1 < c->n ? which + 1 : NULL;
        bool is_changed = false;
        l->tiers->rebuilt = 0;
        int status = load_step(l, which, &why);
        if (core_fail_is_damage(status) || status == DCP_ERR_IO) {
            wait_for_threads(l, which);
            const int looked = look_again(l, c, &is_changed, err);
            if (looked) return looked;
            if (is_changed) return try_all(l, c, step, err);
            if (l->tiers->list[which->tier].given.is_private)
                status = load_rebuilt(l, which, status, &why);
        }
        if (!status) {
            note_loaded(l, which);
            if (step) *step = which->step;
            return DCP_OK;
        }
        /* NO_SPACE: the step can't be rebuilt now */
        const bool is_unread = core_fail_is_unread(status) || status == DCP_ERR_NO_SPACE;
        if (!core_fail_is_damage(status) && !is_unread) {
            if (err) *err = why;
            return status;
        }
        if (core_fail_is_damage(status))
            tiers_record_lost(&l->tiers->list[which->tier], which->step);
        if (is_unread && !unread.status) unread = why;
        if (unread.status && (!next || next->step != which->step))
            return reader_fail_unread(which->step, &unread, err);
        if (next)
            tiers_log(l->tiers, DCP_LOG_WARNING, "step %llu %s (%s): %s step %llu in %s",
                      (unsigned long long)which->step,
                      core_fail_is_damage(status) ? "is damaged" : "could not be read", why.message,
                      next->step == which->step ? "trying" : "falling back to",
                      (unsigned long long)next->step, dir_of_tier(l, next));
    }
    if (!c->n) return fail_empty(l, err);
    if (l->only) return core_fail_again(err, DCP_ERR_CORRUPT, &why, "%s", why.message);
    return core_fail_again(err, DCP_ERR_CORRUPT, &why,
                           "none of the %zu steps is intact (the oldest: %s)", c->n, why.message);
}

/* Returns the path by which the list was opened, as the caller knows it, or the directory's
 * absolute path if the former now leads elsewhere. */
static const char *find_opened(const tier *t) {
    struct stat named, opened;
    if (stat(t->store->dir, &opened)) return t->path;
    const bool is_same = stat(t->path, &named) == 0 && named.st_dev == opened.st_dev &&
                         named.st_ino == opened.st_ino;
    return is_same ? t->path : t->store->dir;
}

/* Collective; `status` is this rank's status so far. */
static int run_loading(loading *l, int status, uint64_t *step, dcp_error *err) {
    candidates c = {0};
    tiers_answer_as_of_now(l->tiers);
    for (size_t i = 0; i < l->tiers->n; i++) {
        const tier *t = &l->tiers->list[i];
        l->places[i] = (place){find_opened(t), t->given.is_private != 0};
    }
    status = comm_agree(l->tiers->comm, status, err);
    if (!status) status = list_wanted(l, &c, err);
    if (!status) status = try_all(l, &c, step, err);
    if (l->tiers->flight) tiers_answer_as_before(l->tiers); /* a thread may end it from now on */
    free(c.list);
    return status;
}

int dcp_tiers_load(dcp_tiers *tiers, dcp_tiers_load_fn load, void *ctx, uint64_t *step,
                   dcp_error *err) {
    if (!tiers || !load)
        return core_fail(err, DCP_ERR_ARG, "dcp_tiers_load: tiers or load is NULL");
    loading l = {.tiers = tiers, .load = load, .ctx = ctx};
    return run_loading(&l, check_all_places(tiers, err), step, err);
}

int dcp_tiers_load_step(dcp_tiers *tiers, uint64_t step, dcp_tiers_load_fn load, void *ctx,
                        dcp_error *err) {
    if (!tiers || !load)
        return core_fail(err, DCP_ERR_ARG, "dcp_tiers_load_step: tiers or load is NULL");
    loading l = {.tiers = tiers, .load = load, .ctx = ctx, .only = &step};
    comm_vote v = {0};
    comm_vote_same(&v, "the step to load", step);
    const int status = comm_vote_run(tiers->comm, &v, DCP_OK, err);
    return status ? status : run_loading(&l, DCP_OK, NULL, err);
}
