#include "store/retention.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "comm/comm.h"
#include "comm/vote.h"
#include "core/checks.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "dcp/tier.h"
#include "format/about.h"
#include "format/folder.h"
#include "format/hold.h"
#include "io/entries.h"
#include "io/file.h"
#include "store/directory.h"
#include "store/lock.h"

/* Recycled files.
 *
 * A recycled file is recognised by its inode number and the time of its last change. So a file that
 * was changed meanwhile is not used. */

void store_recycle_record(dcp_store *store, uint64_t step, int fd, uint64_t pages) {
    store_written *mark = &store->marks[store->n_marks++ % STORE_WRITTEN];
    *mark = (store_written){.step = step, .pages = pages};
    io_identify(fd, mark->identity);
}

static bool is_ours(const dcp_store *store, int fd, uint64_t pages) {
    uint64_t identity[4];
    io_identify(fd, identity);
    for (size_t i = 0; i < STORE_WRITTEN && i < store->n_marks; i++)
        if (!memcmp(store->marks[i].identity, identity, sizeof identity))
            return store->marks[i].pages == pages;
    return false;
}

bool store_recycle_reuse(dcp_store *store, const char *name, uint64_t pages, const char *path) {
    char recycled[PATH_MAX], folder[STORE_WRITER_FOLDER_PATH];
    if (!store->n_marks) return false;
    store_writer_folder_entry(store, RECYCLE_FOLDER, folder);
    if (snprintf(recycled, sizeof recycled, "%s/%s/%s", store->dir, folder, name) >=
        (int)sizeof recycled)
        return false;
    int fd = open(recycled, O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return false;
    bool fits = is_ours(store, fd, pages) && io_is_alone(fd);
    close(fd);
    if (fits && rename(recycled, path) == 0) return true;
    unlink(recycled); /* it can't be used, but its space is needed */
    return false;
}

/* Returns true if this rank has written files of the step, so they can be recycled. */
static bool has_written(const dcp_store *store, uint64_t step) {
    for (size_t i = 0; i < STORE_WRITTEN && i < store->n_marks; i++)
        if (store->marks[i].step == step) return true;
    return false;
}

void store_recycle_remove(dcp_store *store) {
    char folder[STORE_WRITER_FOLDER_PATH];
    store_writer_folder_entry(store, RECYCLE_FOLDER, folder);
    if (store->n_marks && store->dir_fd >= 0) store_directory_remove(store->dir_fd, folder);
}

/* The removal of steps.
 *
 * A step loses its name, durably, before any of its files is removed, so a folder with a step's
 * name is complete at every moment. */

int store_move_to_writer_folder(dcp_store *store, const char *name, const char *path,
                                dcp_error *err) {
    int status = store_writer_folder_ready(store, err);
    if (status != DCP_OK) return status;
    if (renameat(store->dir_fd, name, store->dir_fd, path) != 0)
        return store_fail_errno(store, "cannot rename", name, err);
    return store_sync(store, err);
}

/* Returns DCP_ERR_BUSY if this entry is a step that a reader holds. */
static int check_unheld(void *ctx, DIR *dir, const struct dirent *e, dcp_error *err) {
    const dcp_store *store = ctx;
    bool is_folder;
    int status = io_entry_is_folder(dir, e->d_name, e, &is_folder, err);
    if (status || !is_folder || e->d_name[0] == '.') return status;
    return format_hold_is_held(dirfd(dir), e->d_name)
               ? core_fail_at(err, DCP_ERR_BUSY, store->dir, "a reader holds %s", e->d_name)
               : DCP_OK;
}

/* Returns true if a reader holds the former step in this folder, or any step inside the folder, or
 * if that can't be determined. */
static bool is_held(dcp_store *store, const char *name) {
    if (format_hold_is_held(store->dir_fd, name)) return true;
    const int status = io_visit_entries(store->dir_fd, name, name, check_unheld, store, NULL);
    return status && status != DCP_ERR_NOT_FOUND;
}

int store_remove_trash(dcp_store *store, const char *trash, dcp_error *err) {
    if (is_held(store, trash)) {
        store->has_trash = true;
        return DCP_OK;
    }
    if (store_directory_remove(store->dir_fd, trash) != 0)
        return store_fail_errno(store, "cannot remove", trash, err);
    return DCP_OK;
}

int store_discard(dcp_store *store, const char *name, dcp_error *err) {
    char trash[NAME_MAX + 1], start[STORE_WRITER_FOLDER_PATH];
    const char *slash = strrchr(name, '/');
    store_writer_folder_entry(store, STORE_WRITER_OLD, start);
    store_directory_free_name(store->dir_fd, start, slash ? slash + 1 : name, trash);
    int status = store_move_to_writer_folder(store, name, trash, err);
    return status ? status : store_remove_trash(store, trash, err);
}

/* Fails if the folder is not known to be a step. The list of steps, from which the name is, also
 * has folders that could not be looked into. */
static int check_own(const dcp_store *store, const char *name, dcp_error *err) {
    bool is_foreign;
    const int status = format_folder_is_foreign(store->dir_fd, name, store->dir, &is_foreign, err);
    return !status && is_foreign ? store_fail_foreign(store, name, err) : status;
}

int store_discard_unheld(dcp_store *store, const char *name, bool *kept, dcp_error *err) {
    io_lock_file *claim;
    *kept = false;
    const int refused = check_own(store, name, err);
    if (refused) return refused;
    *kept = !format_hold_claim(store->dir_fd, name, &claim);
    int status = *kept ? DCP_OK : store_discard(store, name, err);
    format_hold_unclaim(claim);
    return status;
}

int store_clear(dcp_store *store, const char *name, dcp_error *err) {
    bool is_there;
    const int status = store_has(store, name, &is_there, err);
    if (status != DCP_OK || !is_there) return status;
    if (format_hold_is_held(store->dir_fd, name)) return store_discard(store, name, err);
    if (store_directory_remove(store->dir_fd, name) == 0) return DCP_OK;
    return store_fail_errno(store, "cannot remove", name, err);
}

/* A sweep of the entries of `folder` whose names begin with `start`. `folder` is a path that ends
 * in "/", or "" for the store's directory. */
typedef struct sweeping {
    dcp_store *store;
    const char *folder, *start;
} sweeping;

static int remove_released_entry(void *ctx, DIR *dir, const struct dirent *e, dcp_error *err) {
    const sweeping *s = ctx;
    char path[STORE_WRITER_FOLDER_PATH + NAME_MAX];
    dcp_error why;
    (void)dir, (void)err;
    if (strncmp(e->d_name, s->start, strlen(s->start)) != 0) return DCP_OK;
    snprintf(path, sizeof path, "%s%s", s->folder, e->d_name);
    if (store_remove_trash(s->store, path, &why))
        store_log(s->store, DCP_LOG_WARNING, "a removed step's files stay: %s", why.message);
    return DCP_OK;
}

static void remove_released_in(dcp_store *store, const char *folder, const char *start) {
    sweeping s = {store, folder, start};
    io_visit_entries(store->dir_fd, *folder ? folder : ".", folder, remove_released_entry, &s,
                     NULL);
}

void store_remove_released(dcp_store *store) {
    char own[STORE_WRITER_FOLDER_PATH];
    if (!store->has_trash || store_lock_check(store->lock, NULL)) return;
    store->has_trash = false;
    store_writer_folder_entry(store, "", own);
    remove_released_in(store, "", STORE_TRASH);
    remove_released_in(store, own, STORE_WRITER_OLD);
}

/* Removes the step, but keeps its files for the next save to overwrite. */
static int recycle_step(dcp_store *store, const dcp_step *step, dcp_error *err) {
    char spare[STORE_WRITER_FOLDER_PATH];
    store_recycle_remove(store);
    store_writer_folder_entry(store, RECYCLE_FOLDER, spare);
    return store_move_to_writer_folder(store, step->name, spare, err);
}

/* Removes the step, unless a reader holds it. Without a claim, its files are not recycled: a reader
 * might have opened the step since. */
static int remove_step(dcp_store *store, const dcp_step *step, dcp_error *err) {
    io_lock_file *claim;
    const int refused = check_own(store, step->name, err);
    if (refused) return refused;
    if (!format_hold_claim(store->dir_fd, step->name, &claim)) {
        store_log(store, DCP_LOG_INFO, "%s/%s stays while a reader holds it", store->dir,
                  step->name);
        return DCP_OK;
    }
    int status = claim && has_written(store, step->step) ? recycle_step(store, step, err)
                                                         : store_discard(store, step->name, err);
    format_hold_unclaim(claim);
    return status;
}

/* The newest steps. */

/* Does what store_newest does, with `steps` as the leader's own list, in ascending order; other
 * ranks have none. Collective, unless all nodes are known to have the same steps.
 *
 * A step that some node lacks can't be the result. So if the nodes' newest steps differ, the search
 * continues at the lowest of them. */
static int find_newest_step(dcp_store *store, const dcp_step *steps, size_t n, bool are_same,
                            uint64_t *step, bool *found, dcp_error *err) {
    for (uint64_t limit = *step;;) {
        comm_vote v = {0};
        uint64_t next = format_list_newest_below(steps, n, limit);
        bool is_same = true;
        int status = DCP_OK;
        comm_vote_equal(&v, store_leads(store), &next, &is_same);
        if (!are_same) status = comm_vote_run(store->comm, &v, DCP_OK, err);
        if (status) return status;
        *found = next > 0;
        if (next == 0) return DCP_OK;
        *step = next - 1;
        if (is_same) return DCP_OK;
        limit = next;
    }
}

int store_newest(dcp_store *store, dcp_step **steps, size_t *n, uint64_t *step, bool *found,
                 dcp_error *err) {
    *steps = NULL;
    *n = 0;
    *found = false;
    const bool are_same = store->nodes == 1;
    int status = store_leads(store) ? dcp_steps_list(store->dir, steps, n, err) : DCP_OK;
    if (!are_same) status = comm_agree(store->comm, status, err);
    return status ? status : find_newest_step(store, *steps, *n, are_same, step, found, err);
}

uint64_t store_newest_limit(const dcp_store *store) {
    bool goes_back = store->abandon_pending && store->continue_from < UINT64_MAX;
    return goes_back ? store->continue_from + 1 : UINT64_MAX;
}

/* Finds the newest `keep` steps that are complete on every node, and sets *oldest to the oldest of
 * them. Sets *found to false if there are fewer, or if the newest of them is not `published`.
 * Collective, unless all nodes are known to keep the same steps. */
static int find_oldest_to_keep(dcp_store *store, const store_retention *own, uint64_t published,
                               uint64_t *oldest, bool *found, dcp_error *err) {
    const bool are_same = store->nodes == 1 || (own->is_listed && own->are_same);
    int status = DCP_OK;
    *found = true;
    *oldest = UINT64_MAX;
    for (uint32_t i = 0; i < store->options.keep && *found && !status; i++) {
        status = find_newest_step(store, own->steps, own->n, are_same, oldest, found, err);
        if (i == 0 && *oldest != published) *found = false;
    }
    return status;
}

void store_retain_list(dcp_store *store, store_retention *out) {
    dcp_error why;
    uint64_t raw = ~0ULL, step = UINT64_MAX;
    if (!store->options.keep || !store_leads(store)) return;
    out->takes_part = true;
    out->is_listed = false; /* if any leader can't list its steps, the nodes search together */
    if (dcp_steps_list(store->dir, &out->steps, &out->n, &why) != DCP_OK) {
        store_log(store, DCP_LOG_WARNING, "old steps stay: %s", why.message);
        return;
    }
    for (uint32_t i = 0; i < store->options.keep && step; i++) {
        const uint64_t next = format_list_newest_below(out->steps, out->n, step);
        raw = core_crc64_raw(raw, &next, sizeof next);
        step = next ? next - 1 : 0;
    }
    out->is_listed = true;
    out->fingerprint = raw;
}

/* Pins.
 *
 * Each of the other stores of a list can be filled from this store, and each filling uses one pin.
 * Another pin is for the marked step, and one more for the next marked step while the mark
 * changes. */
enum { PINS = DCP_MAX_TIERS + 1 };

typedef struct store_pins {
    pthread_mutex_t lock; /* guards the following members */
    uint64_t steps[PINS];
    size_t n;
} store_pins;

store_pins *store_pins_make(void) {
    store_pins *pins = calloc(1, sizeof *pins);
    if (pins) pthread_mutex_init(&pins->lock, NULL);
    return pins;
}

void store_pins_free(store_pins *pins) {
    if (!pins) return;
    pthread_mutex_destroy(&pins->lock);
    free(pins);
}

void store_pin(dcp_store *store, uint64_t step) {
    store_pins *pins = store->pins;
    pthread_mutex_lock(&pins->lock);
    if (pins->n < PINS) pins->steps[pins->n++] = step;
    pthread_mutex_unlock(&pins->lock);
}

/* Returns the index of the step among the pins, or pins->n if it is not pinned. */
static size_t find_pin(const store_pins *pins, uint64_t step) {
    size_t i = 0;
    while (i < pins->n && pins->steps[i] != step) i++;
    return i;
}

void store_unpin(dcp_store *store, uint64_t step) {
    store_pins *pins = store->pins;
    pthread_mutex_lock(&pins->lock);
    const size_t i = find_pin(pins, step);
    if (i < pins->n) pins->steps[i] = pins->steps[--pins->n];
    pthread_mutex_unlock(&pins->lock);
}

bool store_is_pinned(const dcp_store *store, uint64_t step) {
    store_pins *pins = store->pins;
    pthread_mutex_lock(&pins->lock);
    const bool is_pinned = find_pin(pins, step) < pins->n;
    pthread_mutex_unlock(&pins->lock);
    return is_pinned;
}

/* Steps that policies keep in addition to the newest ones: multiples of keep_every and, according
 * to the steps' about.json, one step per keep_seconds and the keep_best best steps. */

int store_retention_check(const dcp_store_options *o, dcp_error *err) {
    const bool adds = o->keep_every || o->keep_seconds || o->keep_best;
    if (adds && o->keep == 0)
        return core_fail(err, DCP_ERR_ARG,
                         "keep_every, keep_seconds and keep_best have no effect with keep = 0, "
                         "which keeps all steps: set keep to the number of newest steps to keep");
    if (o->keep_best && !(o->keep_metric && *o->keep_metric))
        return core_fail(err, DCP_ERR_ARG,
                         "keep_best %u needs keep_metric, the member of about.json with a step's "
                         "value",
                         (unsigned)o->keep_best);
    return core_option_check_text("keep_metric", o->keep_metric, err);
}

/* A complete step, with what its about.json says. */
typedef struct candidate {
    uint64_t step;
    bool has_time, has_metric;
    bool is_kept;
    int64_t time; /* seconds since 1970 */
    double metric;
} candidate;

/* Reads a time such as "2026-11-28T09:30:00Z". */
static bool parse_time(const char *text, int64_t *seconds) {
    struct tm utc = {0};
    const char *end = text ? strptime(text, "%Y-%m-%dT%H:%M:%SZ", &utc) : NULL;
    if (!end || *end) return false;
    *seconds = timegm(&utc);
    return true;
}

/* A damaged or missing about.json has neither a time nor a metric. A step with an about.json that
 * can't be read at the moment is kept. */
static void read_candidate(const dcp_store *store, const char *name, candidate *c) {
    char path[PATH_MAX];
    json_t *about = NULL;
    dcp_error why = {0};
    snprintf(path, sizeof path, "%s/%s", store->dir, name);
    const int status = format_about_parse(path, &about, &why);
    if (core_fail_is_unread(status)) {
        c->is_kept = true;
        store_log(store, DCP_LOG_WARNING, "an old step stays: %s", why.message);
    }
    const char *metric = store->options.keep_metric;
    const json_t *value = metric ? json_object_get(about, metric) : NULL;
    c->has_time = parse_time(json_string_value(json_object_get(about, "time")), &c->time);
    c->has_metric = json_is_number(value);
    c->metric = json_number_value(value);
    json_decref(about);
}

/* Keeps the first step, and each step that was saved at least `seconds` before or after the last
 * one kept. The candidates are in ascending order. The distances are absolute, so a clock that was
 * wrong for a while leaves no gap. */
static void keep_spaced(candidate *list, size_t n, uint64_t seconds) {
    const candidate *last = NULL;
    for (size_t i = 0; i < n && seconds; i++) {
        candidate *c = &list[i];
        if (!c->has_time || (last && (uint64_t)llabs(c->time - last->time) < seconds)) continue;
        c->is_kept = true;
        last = c;
    }
}

/* Among steps with equal metrics, the newest counts as the best. */
static void keep_best(candidate *list, size_t n, uint32_t best, bool highest) {
    for (uint32_t kept = 0; kept < best; kept++) {
        candidate *found = NULL;
        for (candidate *c = list; c < list + n; c++)
            if (c->has_metric &&
                (!found || (highest ? c->metric >= found->metric : c->metric <= found->metric)))
                found = c;
        if (!found) return;
        found->is_kept = true;
        found->has_metric = false; /* the next round searches among the others */
    }
}

static bool uses_about(const dcp_store_options *o) { return o->keep_seconds || o->keep_best; }

/* Sets *out to the numbers of the complete steps that neither keep_seconds nor keep_best keeps. The
 * caller frees it. */
static int list_unkept(const dcp_store *store, const store_retention *own, uint64_t **out,
                       uint64_t *n_out, dcp_error *err) {
    const dcp_store_options *options = &store->options;
    candidate *list = calloc(own->n + 1, sizeof *list);
    *out = malloc((own->n + 1) * sizeof **out);
    if (!list || !*out) {
        free(list);
        return core_fail_memory(err, own->n * sizeof *list);
    }
    size_t n = 0;
    for (size_t i = 0; i < own->n; i++) {
        if (own->steps[i].kind != DCP_STEP_COMPLETE) continue;
        list[n].step = own->steps[i].step;
        read_candidate(store, own->steps[i].name, &list[n++]);
    }
    keep_spaced(list, n, options->keep_seconds);
    keep_best(list, n, options->keep_best, options->keep_highest != 0);
    for (size_t i = 0; i < n; i++)
        if (!list[i].is_kept) (*out)[(*n_out)++] = list[i].step;
    free(list);
    return DCP_OK;
}

/* Does what list_unkept does, if a policy is set that reads about.json. Collective if there are
 * several nodes: all ranks use rank 0's list. */
static int agree_on_unkept(dcp_store *store, const store_retention *own, uint64_t **out,
                           uint64_t *n, dcp_error *err) {
    const bool decides = store->comm->rank == 0;
    int status = DCP_OK;
    *out = NULL;
    *n = 0;
    if (!uses_about(&store->options)) return DCP_OK;
    if (decides) status = list_unkept(store, own, out, n, err);
    if (store->nodes == 1) return status;
    status = comm_agree(store->comm, status, err);
    if (!status) status = comm_broadcast(store->comm, n, sizeof *n, 0, err);
    if (!status && !decides && !(*out = malloc((*n + 1) * sizeof **out)))
        status = core_fail_memory(err, *n * sizeof **out);
    status = comm_agree(store->comm, status, err);
    return status ? status : comm_broadcast(store->comm, *out, *n * sizeof **out, 0, err);
}

/* Returns true if a policy keeps the step. If a policy reads about.json, a step that rank 0's node
 * lacks counts as kept: the node may be new, and the step one of the best. */
static bool is_kept_by_policy(const dcp_store_options *o, uint64_t step, const uint64_t *unkept,
                              uint64_t n) {
    if (o->keep_every && step % o->keep_every == 0) return true;
    for (uint64_t i = 0; i < n; i++)
        if (unkept[i] == step) return false;
    return uses_about(o);
}

/* Returns true if the step is older than the steps that `keep` keeps, and nothing but a policy can
 * keep it. An abandoned step counts as older than a complete one of the same number. */
static bool is_outlived(const dcp_store *store, const dcp_step *step, uint64_t oldest) {
    if (step->kind == DCP_STEP_PARTIAL) return false;
    if (step->kind == DCP_STEP_ABANDONED) return step->step <= oldest;
    if (store->has_intact && step->step == store->newest_intact) return false;
    if (store_is_pinned(store, step->step)) return false;
    return step->step < oldest;
}

int store_retain(dcp_store *store, uint64_t published, const store_retention *own, dcp_error *err) {
    const dcp_store_options *options = &store->options;
    uint64_t oldest, *unkept = NULL, n = 0;
    bool found;
    dcp_error why;
    if (options->keep == 0) return DCP_OK;
    int status = find_oldest_to_keep(store, own, published, &oldest, &found, &why);
    if (!status) status = agree_on_unkept(store, own, &unkept, &n, &why);
    if (status && status != DCP_ERR_COMM) { /* perhaps only on this rank; the step is published */
        if (store_leads(store))
            store_log(store, DCP_LOG_WARNING, "old steps stay: %s", why.message);
        found = false;
        status = DCP_OK;
    }
    if (status && err) *err = why;
    for (size_t i = 0; i < own->n && !status && found; i++) {
        const dcp_step *step = &own->steps[i];
        if (!is_outlived(store, step, oldest)) continue;
        if (step->kind == DCP_STEP_COMPLETE && is_kept_by_policy(options, step->step, unkept, n))
            continue;
        if (remove_step(store, step, &why) != DCP_OK)
            store_log(store, DCP_LOG_WARNING, "an old step stays: %s", why.message);
    }
    free(unkept);
    return status;
}

/* Setting later steps aside. */

/* Moves the step through the writer's folder. Renames it directly if the user has no write
 * permission for the step's folder, and so can't move it into another folder. */
int store_abandon_step(dcp_store *store, const dcp_step *step, const char *why, dcp_error *err) {
    char entry[80], path[STORE_WRITER_FOLDER_PATH], name[NAME_MAX + 1];
    int fd = store->dir_fd;
    int status = store_writer_folder_ready(store, err);
    if (status != DCP_OK) return status;
    snprintf(entry, sizeof entry, "abandoned-%s", step->name);
    store_writer_folder_entry(store, entry, path);
    store_directory_free_name(fd, ".abandoned-", step->name, name);
    int failed = renameat(fd, step->name, fd, path);
    if (failed && errno == EACCES)
        failed = renameat(fd, step->name, fd, name);
    else if (!failed && (failed = renameat(fd, path, fd, name))) {
        int code = errno;
        renameat(fd, path, fd, step->name);
        errno = code;
    }
    if (failed) return store_fail_errno(store, "cannot set aside", step->name, err);
    store_log(store, DCP_LOG_WARNING, "%s: %s/%s is now %s", why, store->dir, step->name, name);
    return DCP_OK;
}

int store_abandon(dcp_store *store, dcp_error *err) {
    dcp_step *steps;
    size_t n;
    int status = dcp_steps_list(store->dir, &steps, &n, err);
    if (status != DCP_OK) return status;
    for (size_t i = 0; i < n && status == DCP_OK; i++) {
        if (steps[i].kind != DCP_STEP_COMPLETE || steps[i].step <= store->continue_from) continue;
        status = store_abandon_step(store, &steps[i], "this run went back", err);
    }
    free(steps);
    return status;
}

/* Sets *found to true if the directory has steps after store->continue_from. Lists the directory
 * through its descriptor, since it is no longer at its path. */
static int has_later(const dcp_store *store, bool *found, dcp_error *err) {
    dcp_step *steps;
    size_t n;
    *found = true;
    const int status = format_list_at(store->dir_fd, store->dir, &steps, &n, err);
    if (status != DCP_OK) return status;
    *found = format_list_newest_below(steps, n, UINT64_MAX) > store->continue_from + 1;
    free(steps);
    return DCP_OK;
}

static int set_aside_here(dcp_store *store, uint64_t *is_done, dcp_error *err) {
    dcp_error why = {0};
    int status = store_lock_check(store->lock, &why);
    *is_done = status != DCP_ERR_NOT_FOUND;
    if (!*is_done && store_lock_is_removed(store->lock)) return DCP_OK;
    bool found = true;
    if (!*is_done && has_later(store, &found, NULL) == DCP_OK && !found) return DCP_OK;
    if (status)
        return core_fail_again(
            err, status, &why,
            "this run goes back to step %llu, but later steps can't be set aside, and "
            "a later start would treat them as its own: %s",
            (unsigned long long)store->continue_from, why.message);
    status = store_abandon(store, err);
    return status ? status : store_sync(store, err);
}

int store_set_aside(dcp_store *store, dcp_error *err) {
    int status = DCP_OK;
    uint64_t is_done = 1;
    if (store_leads(store) && store->abandon_pending) status = set_aside_here(store, &is_done, err);
    status = comm_agree_min(store->comm, status, &is_done, 1, err);
    if (status == DCP_OK && is_done) store->abandon_pending = false;
    return status;
}
