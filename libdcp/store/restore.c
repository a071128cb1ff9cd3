/* Finds the newest step of a private store that is complete or can be completed. Lost files are
 * written directly into the step's folders. Each file gets its name only when it is complete, so a
 * rebuild that fails leaves the step no worse than it was. */
#include "store/store.h"

#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "comm/vote.h"
#include "core/fail.h"
#include "core/json.h"
#include "format/about.h"
#include "format/folder.h"
#include "io/entries.h"
#include "io/file.h"
#include "reader/open.h"
#include "redundancy/parity.h"
#include "redundancy/reconstruct.h"
#include "store/domains.h"
#include "store/lock.h"

typedef struct restoration {
    dcp_store *store;
    int every_byte, rebuilt;
    int survives; /* how many lost domains the rebuilt step survives; -1: as about.json says */
    uint64_t step;
    char folder[PATH_MAX]; /* the step's folder on this rank's node */
    dcp_error newest;      /* why the newest step was passed over */
} restoration;

static int survey(restoration *r, int every_byte, redundancy_survey **out, dcp_error *err) {
    const char *const folders[] = {r->folder};
    int status =
        redundancy_survey_open(r->store->comm, folders, 1, r->store->domain, every_byte, out, err);
    if (!status) status = redundancy_survey_check(*out, err);
    return status;
}

static int count_lost(const redundancy_survey *s) {
    int shards, files;
    redundancy_survey_lost(s, &shards, &files);
    return shards + files;
}

/* Returns the members of this node's about.json that concern the save, without the members that
 * concern only the folder or its writer. Returns NULL if there is no about.json, if it is of a save
 * by another number of ranks than `ranks` (0: any), or if memory is short. */
static char *read_members(const restoration *r, int ranks) {
    static const char *const own[] = {"tool",   "version", "time",  "host",   "pid",
                                      "shards", "domain",  "crc64", "rebuilt"};
    json_t *about = NULL;
    char *text = NULL;
    if (!store_leads(r->store) || format_about_parse(r->folder, &about, NULL)) return NULL;
    if (!format_about_check_step(r->folder, about, r->step, NULL) &&
        (!ranks || json_integer_value(json_object_get(about, "ranks")) == ranks)) {
        for (size_t i = 0; i < sizeof own / sizeof *own; i++) json_object_del(about, own[i]);
        text = core_json_text(about, JSON_COMPACT);
    }
    json_decref(about);
    return text;
}

/* Collective: gives all ranks the members of the lowest rank whose `own` is not NULL; "{}" if there
 * is none. Frees `own`. */
static int collect_members(const restoration *r, char *own, char **out, dcp_error *err) {
    dcp_comm *comm = r->store->comm;
    uint64_t source = own ? (uint64_t)comm->rank : UINT64_MAX, bytes = 3;
    int status = comm_allreduce(comm, &source, 1, DCP_REDUCE_MIN, err);
    bool is_source = !status && source == (uint64_t)comm->rank;
    if (is_source) bytes = strlen(own) + 1;
    if (!status && source != UINT64_MAX)
        status = comm_broadcast(comm, &bytes, sizeof bytes, (int)source, err);
    if (!status) {
        *out = calloc(1, bytes);
        status = comm_agree(comm, *out ? DCP_OK : core_fail_memory(err, bytes), err);
    }
    if (!status && is_source) memcpy(*out, own, bytes);
    if (!status && source == UINT64_MAX) memcpy(*out, "{}", bytes);
    if (!status && source != UINT64_MAX)
        status = comm_broadcast(comm, *out, bytes, (int)source, err);
    free(own);
    return status;
}

static int write_about(const restoration *r, int world, const char *members, dcp_error *err) {
    json_t *shards = NULL;
    int status = format_about_shards(r->folder, world, &shards, err);
    if (status) return status;
    json_t *about =
        json_pack("{s:b, s:I, s:o}", "rebuilt", 1, "step", (json_int_t)r->step, "shards", shards);
    json_t *theirs = core_json_read(members, strlen(members), NULL);
    bool failed =
        !about || !theirs || store_domains_describe(r->store, about) ||
        (r->survives < 0 ? json_object_update_existing(about, theirs)
                         : json_object_set_new(about, "survives", json_integer(r->survives))) ||
        json_object_update_missing(about, theirs);
    char *text = failed ? NULL : core_json_text(about, JSON_COMPACT);
    status = text ? format_about_write(r->folder, r->store->options.tool, world, text, err)
                  : core_fail_memory(err, 4096);
    free(text);
    json_decref(theirs);
    json_decref(about);
    return status ? status : io_sync_folder(r->folder, err);
}

/* Returns true if the folder has no intact about.json, or one that was written when the rebuild was
 * not complete. */
static bool needs_about(const restoration *r, int world) {
    json_t *about = NULL, *shards = NULL;
    const int status = format_about_parse(r->folder, &about, NULL);
    bool needs = core_fail_is_damage(status);
    if (!status && json_is_true(json_object_get(about, "rebuilt")) &&
        !format_about_shards(r->folder, world, &shards, NULL))
        needs = !json_equal(json_object_get(about, "shards"), shards);
    json_decref(about);
    json_decref(shards);
    return needs;
}

/* Adds about.json if the rebuild created the step's folder, or if an earlier one could not. */
static int add_about(const restoration *r, const redundancy_survey *s, const char *members,
                     dcp_error *err) {
    int status =
        store_leads(r->store) ? io_stat(AT_FDCWD, r->folder, NULL, err) : DCP_ERR_NOT_FOUND;
    if (status) return status == DCP_ERR_NOT_FOUND ? DCP_OK : status;
    return needs_about(r, s->world) ? write_about(r, s->world, members, err) : DCP_OK;
}

/* Returns the number of ranks that the members name; 0: none. */
static int count_ranks(const char *members) {
    json_t *about = core_json_read(members, strlen(members), NULL);
    const json_int_t ranks = json_integer_value(json_object_get(about, "ranks"));
    json_decref(about);
    return ranks > 0 && ranks <= INT_MAX ? (int)ranks : 0;
}

/* Returns true if the folder has shards of a save by `world` ranks, and redundancy files. */
static bool is_of_world(const restoration *r, int world) {
    int own = 0;
    return !format_folder_world(r->folder, INT_MAX, &own, NULL) && own && own == world &&
           redundancy_parity_bytes(r->folder);
}

int store_restore_about(dcp_store *store, uint64_t step, bool knows, bool lacks, dcp_error *err) {
    restoration r = {.store = store, .step = step, .survives = -1};
    char *members = NULL;
    int status =
        comm_agree(store->comm, format_name_path(store->dir, "", step, r.folder, err), err);
    if (!status) status = collect_members(&r, knows ? read_members(&r, 0) : NULL, &members, err);
    const int world = status ? 0 : count_ranks(members);
    if (lacks && is_of_world(&r, world)) {
        dcp_error why = {0};
        const bool failed = write_about(&r, world, members, &why) != DCP_OK;
        store_log(store, failed ? DCP_LOG_WARNING : DCP_LOG_INFO,
                  "%s/about.json was missing or damaged, and %s%s", r.folder,
                  failed ? "cannot be written now: " : "is written again", why.message);
    }
    free(members);
    return status;
}

/* Logs what was done, and whether the step now survives fewer losses than the save required. */
static void log_rebuilt(const restoration *r, const redundancy_survey *s) {
    if (r->store->comm->rank) return;
    store_log(r->store, DCP_LOG_WARNING, "step %llu: %d of its files were lost and are rebuilt",
              (unsigned long long)r->step, r->rebuilt);
    if (r->survives < s->lost)
        store_log(r->store, DCP_LOG_WARNING,
                  "step %llu survives the loss of %d failure domains from now on, not of %d: its "
                  "ranks are in %d domains, too few for all groups",
                  (unsigned long long)r->step, r->survives, s->lost, r->store->domains);
}

static int write_lost(restoration *r, redundancy_survey *s, dcp_error *err) {
    dcp_comm *comm = r->store->comm;
    char *members = NULL;
    int lost = count_lost(s);
    int status = collect_members(r, read_members(r, s->world), &members, err);
    if (!status) status = redundancy_reconstruct(comm, s, r->folder, err);
    r->survives = redundancy_losses_survived(s);
    if (!status) status = comm_agree(comm, add_about(r, s, members, err), err);
    free(members);
    if (status) return status;
    r->rebuilt = lost;
    log_rebuilt(r, s);
    return DCP_OK;
}

/* Collective. Checks whether a step without redundancy files lacks anything. */
static int check_complete(const restoration *r, dcp_error *err) {
    dcp_checkpoint *ckpt = NULL;
    int status = reader_open_private(r->store->comm, r->folder, &ckpt, err);
    dcp_checkpoint_close(ckpt);
    return status;
}

/* Rebuilds the lost files of step r->step. DCP_ERR_NOT_FOUND, DCP_ERR_CORRUPT: too much of the step
 * is lost. */
static int restore_step(restoration *r, dcp_error *err) {
    redundancy_survey *s = NULL;
    int status = format_name_path(r->store->dir, "", r->step, r->folder, err);
    status = comm_agree(r->store->comm, status, err);
    if (!status) status = survey(r, r->every_byte, &s, err);
    if (!status && !r->every_byte && count_lost(s)) { /* check every byte before it is used */
        redundancy_survey_close(s);
        s = NULL;
        status = survey(r, 1, &s, err);
    }
    if (!status && count_lost(s)) status = write_lost(r, s, err);
    redundancy_survey_close(s);
    if (status == DCP_ERR_NOT_FOUND &&
        !s) { /* perhaps the save had no redundancy, and nothing is lost */
        dcp_error why = {0};
        const int incomplete = check_complete(r, &why);
        if (core_fail_is_damage(incomplete)) return status;
        if (incomplete && err) *err = why;
        return incomplete;
    }
    return status;
}

static void note_lost(restoration *r, const dcp_error *why) {
    if (!r->newest.status) r->newest = *why;
    if (r->store->comm->rank == 0)
        store_log(r->store, DCP_LOG_WARNING, "step %llu is passed over: %s",
                  (unsigned long long)r->step, why->message);
}

static int restore_newest(restoration *r, const dcp_step *steps, size_t n, dcp_error *err) {
    for (uint64_t limit = UINT64_MAX;; limit = r->step) {
        dcp_error why = {0};
        uint64_t next;
        int status = format_list_newest_of_ranks(r->store->comm, steps, n, limit, &next, err);
        if (status) return status;
        if (!next) break;
        r->step = next - 1;
        status = restore_step(r, &why);
        if (core_fail_is_unread(status)) return reader_fail_unread(r->step, &why, err);
        if (!core_fail_is_damage(status)) {
            if (status && err) *err = why;
            return status;
        }
        note_lost(r, &why);
    }
    if (!r->newest.status) return core_fail(err, DCP_ERR_NOT_FOUND, "no node has a complete step");
    return core_fail_again(err, DCP_ERR_NOT_FOUND, &r->newest,
                           "no step can be made whole; the newest one: %s", r->newest.message);
}

/* Collective: checks that this process still has the store. Only a store's current writer may
 * write into its steps. */
static int check_held(dcp_store *store, dcp_error *err) {
    int status = store_leads(store) ? store_lock_check(store->lock, err) : DCP_OK;
    return comm_agree(store->comm, status, err);
}

int store_restore_step(dcp_store *store, uint64_t step, int every_byte, int *rebuilt,
                       dcp_error *err) {
    restoration r = {.store = store, .step = step, .every_byte = every_byte};
    int status = check_held(store, err);
    if (!status) status = restore_step(&r, err);
    if (!status) *rebuilt = r.rebuilt;
    return status;
}

static int check_rebuild_arguments(const dcp_store *store, int every_byte, const uint64_t *step,
                                   dcp_error *err) {
    comm_vote v = {0};
    int status = DCP_OK;
    if (!step) status = core_fail(err, DCP_ERR_ARG, "dcp_store_rebuild: step is NULL");
    if (!store->options.private_dirs)
        status = core_fail_path(
            core_fail(err, DCP_ERR_UNSUPPORTED,
                      "%s is a shared store: only private stores have redundancy", store->dir),
            store->dir, err);
    comm_vote_same(&v, "every_byte", every_byte != 0);
    return comm_vote_run(store->comm, &v, status, err);
}

int dcp_store_rebuild(dcp_store *store, int every_byte, uint64_t *step, int *rebuilt,
                      dcp_error *err) {
    if (!store) return core_fail(err, DCP_ERR_ARG, "dcp_store_rebuild: a store is needed");
    store_wait_for_save(store);
    int status = check_rebuild_arguments(store, every_byte, step, err);
    if (!status) status = check_held(store, err);
    if (status) return status;
    restoration r = {.store = store, .every_byte = every_byte};
    dcp_step *steps = NULL;
    size_t n = 0;
    status = comm_agree(store->comm, dcp_steps_list(store->dir, &steps, &n, err), err);
    if (!status) status = restore_newest(&r, steps, n, err);
    free(steps);
    if (status) return status;
    *step = r.step;
    if (rebuilt) *rebuilt = r.rebuilt;
    return DCP_OK;
}
