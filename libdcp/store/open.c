/* Opening a store, and handling what other writers left in its directory. */
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/comm.h"
#include "comm/vote.h"
#include "core/bytes.h"
#include "core/checks.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "dcp/inspect.h"
#include "format/folder.h"
#include "io/entries.h"
#include "redundancy/groups.h"
#include "store/directory.h"
#include "store/domains.h"
#include "store/lock.h"
#include "store/retention.h"
#include "store/returned.h"
#include "store/store.h"

/* A writer may have been killed at any moment, or may still run without knowing that it has lost
 * the store. So its folders are first renamed, and from then on its operations on the old names
 * fail. Then the folders are searched for steps. A folder that can't be searched is not changed. It
 * may contain the newest step, so the store can't be opened until somebody has repaired or moved
 * the folder.
 *
 * A step that was about to be replaced has lost its name, and gets it back if nothing else has that
 * name. In a private store either all nodes give the name back or none does; otherwise one node
 * could have the old step and another one the new step. If the old step has lost its name on any
 * node that has no new step, all nodes first move new steps away, and then give the old step its
 * name back. A node that had no old step has a mark instead of it (store/directory.h), and
 * afterwards has no step of that name, as before. */

#define TMP ".tmp-"
#define ABANDONED "abandoned-"

/* Steps that have lost their names. */
typedef struct nameless {
    struct lost_step {
        uint64_t step;
        bool was_absent;             /* only a mark: the node had no such step */
        char path[2 * NAME_MAX + 2]; /* relative to the store's directory */
    } * list;
    size_t n;
} nameless;

static bool begins_with(const char *name, const char *start) {
    return strncmp(name, start, strlen(start)) == 0;
}

/* Calls fn for each entry of a folder of the store; "" is the store's directory. */
static int look_through(const dcp_store *store, const char *name, io_entry_fn fn, void *ctx,
                        dcp_error *err) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, *name ? "%s/%s" : "%s", store->dir, name);
    return io_visit_entries(store->dir_fd, *name ? name : ".", path, fn, ctx, err);
}

/* The context of a search that concerns the entries whose names begin with `start`. */
typedef struct clearing {
    dcp_store *store;
    nameless *all;
    const char *start;
    const char *folder; /* the folder that is searched */
} clearing;

static bool is_meant(const clearing *c, const struct dirent *e) {
    return begins_with(e->d_name, c->start) && !strstr(e->d_name, c->store->writer);
}

static int fail_unseen(const dcp_store *store, const char *name, const dcp_error *why,
                       dcp_error *err) {
    return core_fail_again(
        err, why->status, why,
        "what an earlier writer left may contain the newest step, but can't be "
        "read: %s; make it readable, or move %s/%s to another folder to continue "
        "without its contents",
        why->message, store->dir, name);
}

static int pass_entry(void *ctx, DIR *of, const struct dirent *e, dcp_error *err) {
    (void)ctx, (void)of, (void)e, (void)err;
    return DCP_OK;
}

/* Renames an entry. An entry that can't be renamed is searched, and possibly removed, under its old
 * name. An unfinished save that can't be searched remains; unfinished saves contain no step. */
static int take_away_entry(void *ctx, DIR *of, const struct dirent *e, dcp_error *err) {
    const clearing *c = ctx;
    char trash[NAME_MAX + 1];
    dcp_error why;
    (void)of;
    if (!is_meant(c, e)) return DCP_OK;
    int status = look_through(c->store, e->d_name, pass_entry, NULL, &why);
    if (core_fail_is_unread(status) && strcmp(c->start, TMP) != 0)
        return fail_unseen(c->store, e->d_name, &why, err);
    if (core_fail_is_unread(status)) {
        store_log(c->store, DCP_LOG_WARNING, "an unfinished save stays: %s", why.message);
        return DCP_OK;
    }
    store_directory_free_name(c->store->dir_fd, STORE_TRASH, e->d_name, trash);
    status = store_lock_check(c->store->lock, err);
    if (!status) renameat(c->store->dir_fd, e->d_name, c->store->dir_fd, trash);
    return status;
}

static int take_away(dcp_store *store, const char *start, dcp_error *err) {
    clearing c = {.store = store, .start = start};
    return look_through(store, "", take_away_entry, &c, err);
}

static int note_nameless(nameless *all, uint64_t step, const char *folder, const char *entry,
                         dcp_error *err) {
    struct lost_step *grown = core_array_grow(all->list, all->n + 1, sizeof *grown);
    if (!grown) return core_fail_memory(err, (all->n + 1) * sizeof *grown);
    all->list = grown;
    grown[all->n].step = step;
    grown[all->n].was_absent = entry && begins_with(entry, STORE_WRITER_ABSENT);
    snprintf(grown[all->n++].path, sizeof grown->path, entry ? "%s/%s" : "%s", folder, entry);
    return DCP_OK;
}

/* Reads the step from the name of a complete step's folder. Returns false for any other name. */
static bool is_step_name(const char *name, uint64_t *step) {
    char made[sizeof((dcp_step *)0)->name];
    if (!begins_with(name, "step-") || !format_name_read(name, step)) return false;
    format_name_write(made, "", *step);
    return strcmp(made, name) == 0;
}

/* Records the step unless it is known to be incomplete: earlier versions used the same name for
 * steps that were being removed and for steps that were being replaced. */
static int note_if_whole(const dcp_store *store, nameless *all, uint64_t step, const char *name,
                         dcp_error *err) {
    char path[PATH_MAX];
    dcp_glance glance = DCP_GLANCE_INIT;
    dcp_error why;
    snprintf(path, sizeof path, "%s/%s", store->dir, name); /* directory.c limits its length */
    const int status = dcp_step_glance(path, &glance, &why);
    if (core_fail_is_damage(status)) return DCP_OK;
    return status ? fail_unseen(store, name, &why, err) : note_nameless(all, step, name, NULL, err);
}

/* Sets aside a step that an earlier writer had begun to set aside. */
static int abandon(const dcp_store *store, const char *folder, const char *entry, dcp_error *err) {
    char path[2 * NAME_MAX + 2], name[NAME_MAX + 1];
    snprintf(path, sizeof path, "%s/%s", folder, entry);
    store_directory_free_name(store->dir_fd, "." ABANDONED, entry + strlen(ABANDONED), name);
    if (renameat(store->dir_fd, path, store->dir_fd, name) != 0)
        return store_fail_errno(store, "cannot set aside", path, err);
    return DCP_OK;
}

static int take_nameless(void *ctx, DIR *of, const struct dirent *e, dcp_error *err) {
    const clearing *c = ctx;
    const char *entry = e->d_name;
    uint64_t step;
    (void)of;
    const bool is_mark = begins_with(entry, STORE_WRITER_ABSENT);
    if (is_step_name(entry + (is_mark ? strlen(STORE_WRITER_ABSENT) : 0), &step))
        return note_nameless(c->all, step, c->folder, entry, err);
    if (begins_with(entry, ABANDONED) && is_step_name(entry + strlen(ABANDONED), &step))
        return abandon(c->store, c->folder, entry, err);
    return DCP_OK;
}

static int find_nameless_in(void *ctx, DIR *of, const struct dirent *e, dcp_error *err) {
    clearing *c = ctx;
    dcp_error why;
    uint64_t step;
    (void)of;
    if (!is_meant(c, e)) return DCP_OK;
    if (is_step_name(e->d_name + strlen(c->start), &step))
        return note_if_whole(c->store, c->all, step, e->d_name, err);
    clearing in = {.store = c->store, .all = c->all, .folder = e->d_name};
    const int status = look_through(c->store, e->d_name, take_nameless, &in, &why);
    if (!status || status == DCP_ERR_NOT_FOUND) return DCP_OK; /* NOT_FOUND: not a folder */
    return fail_unseen(c->store, e->d_name, &why, err);
}

static int find_nameless(dcp_store *store, const char *start, nameless *all, dcp_error *err) {
    clearing c = {.store = store, .all = all, .start = start};
    return look_through(store, "", find_nameless_in, &c, err);
}

/* Returns this node's nameless step with that number; NULL if there is none. */
static const struct lost_step *find_step(const nameless *all, uint64_t step) {
    for (size_t i = all->n; i > 0; i--)
        if (all->list[i - 1].step == step) return &all->list[i - 1];
    return NULL;
}

/* Returns one more than the newest step below the limit, or 0 if there is none. */
static uint64_t next_below(const nameless *all, uint64_t limit) {
    uint64_t next = 0;
    for (size_t i = 0; i < all->n; i++)
        if (all->list[i].step < limit && all->list[i].step >= next) next = all->list[i].step + 1;
    return next;
}

static int give_name_back(dcp_store *store, const struct lost_step *lost, const char *name,
                          dcp_error *err) {
    int status = store_lock_check(store->lock, err);
    if (status) return status;
    if (renameat(store->dir_fd, lost->path, store->dir_fd, name) != 0)
        return store_fail_errno(store, "cannot give its name back to", name, err);
    store_log(store, DCP_LOG_WARNING,
              "%s/%s has its name again, which a killed writer had taken away", store->dir, name);
    return store_sync(store, err);
}

/* Moves the nameless steps with that number to the trash, so they never get the name back. Their
 * removal may take a long time, since readers may hold them. */
static int forget_nameless(const dcp_store *store, const nameless *all, uint64_t step,
                           const char *name, dcp_error *err) {
    char trash[NAME_MAX + 1];
    int status = DCP_OK;
    for (size_t i = 0; i < all->n && !status; i++) {
        if (all->list[i].step != step) continue;
        store_directory_free_name(store->dir_fd, STORE_TRASH STORE_WRITER_OLD, name, trash);
        status = store_lock_check(store->lock, err);
        if (!status) renameat(store->dir_fd, all->list[i].path, store->dir_fd, trash);
    }
    return status;
}

/* Gives the step its name back or discards it. Collective if there are several nodes, which all
 * handle the same step. A node that has given the name back keeps no trace of that. If another node
 * was then killed while it still had the new step, the next start would keep the new step there. So
 * all nodes first move new steps away. */
static int settle_step(dcp_store *store, const nameless *all, uint64_t step, dcp_error *err) {
    char name[sizeof((dcp_step *)0)->name];
    const struct lost_step *lost = find_step(all, step);
    format_name_write(name, "", step);
    bool is_there = true, is_foreign = false;
    int status = lost ? store_has(store, name, &is_there, err) : DCP_OK;
    if (!status && lost && is_there)
        status = format_folder_is_foreign(store->dir_fd, name, store->dir, &is_foreign, err);
    if (is_foreign) status = store_fail_foreign(store, name, err);
    uint64_t stands = is_there != 0;
    if (store->nodes > 1) status = comm_agree_min(store->comm, status, &stands, 1, err);
    if (!status && store->nodes > 1 && !stands) {
        if (lost && is_there) status = store_discard(store, name, err);
        status = comm_agree(store->comm, status, err);
    }
    if (status) return status;
    if (lost && !lost->was_absent && !stands) status = give_name_back(store, lost, name, err);
    if (!status) status = forget_nameless(store, all, step, name, err);
    return store->nodes > 1 ? comm_agree(store->comm, status, err) : status;
}

/* Calls settle_step for all nameless steps of all nodes, the newest first. Collective if there are
 * several nodes. */
static int give_names_back(dcp_store *store, const nameless *all, dcp_error *err) {
    for (uint64_t limit = UINT64_MAX;;) {
        uint64_t next = next_below(all, limit);
        int status = DCP_OK;
        if (store->nodes > 1) status = comm_allreduce(store->comm, &next, 1, DCP_REDUCE_MAX, err);
        if (status || !next) return status;
        limit = next - 1;
        status = settle_step(store, all, limit, err);
        if (status) return status;
    }
}

static int remove_entry(void *ctx, DIR *of, const struct dirent *e, dcp_error *err) {
    const clearing *c = ctx;
    dcp_error why;
    (void)of;
    if (!is_meant(c, e)) return DCP_OK;
    const int status = store_lock_check(c->store->lock, err);
    if (status) return status;
    if (store_remove_trash(c->store, e->d_name, &why))
        store_log(c->store, DCP_LOG_WARNING, "cannot remove what a killed writer left: %s",
                  why.message);
    else if (!store_directory_has(c->store->dir_fd, e->d_name)) /* else a reader holds it */
        store_log(c->store, DCP_LOG_INFO, "removed %s/%s, which a killed writer left",
                  c->store->dir, e->d_name);
    return DCP_OK;
}

/* Removes the entries whose names begin with `start`. Entries that may contain a step were searched
 * before. */
static int remove_all(dcp_store *store, const char *start, dcp_error *err) {
    clearing c = {.store = store, .start = start};
    return look_through(store, "", remove_entry, &c, err);
}

static int collect(dcp_store *store, nameless *all, dcp_error *err) {
    int status = take_away(store, STORE_WRITER_FOLDER, err);
    if (!status) status = take_away(store, TMP, err);
    if (!status) status = find_nameless(store, STORE_TRASH, all, err);
    return status ? status : find_nameless(store, STORE_WRITER_FOLDER, all, err);
}

/* Collective; called by the writer that has just taken the store. Renames the folders that earlier
 * writers left, so a writer that still runs can no longer use them. Gives their names back to steps
 * that had lost them temporarily. Removes and logs the rest. DCP_ERR_BUSY: the store was lost
 * again. */
static int store_leftovers_clear(dcp_store *store, dcp_error *err) {
    nameless all = {0};
    bool leads = store_leads(store);
    int status = comm_agree(store->comm, leads ? collect(store, &all, err) : DCP_OK, err);
    if (!status) status = comm_agree(store->comm, give_names_back(store, &all, err), err);
    free(all.list);
    if (status) return status;
    if (leads) status = remove_all(store, TMP, err);
    if (leads && !status) status = remove_all(store, STORE_TRASH, err);
    if (leads && !status) status = remove_all(store, STORE_WRITER_FOLDER, err);
    return comm_agree(store->comm, status, err);
}

/* All ranks take part in opening a store. Only the leader of a node accesses the directory, and
 * holds its lock as long as the store is open. Other ranks know only the directory's absolute path.
 * A shared store is treated like a private store with a single node. */

/* Identifies a rank's directory, by its host, the file system's device and the inode. */
typedef struct directory_id {
    comm_location host;
    uint64_t device, inode, rank;
} directory_id;

static int compare_directories(const directory_id *x, const directory_id *y) {
    return memcmp(x, y, offsetof(directory_id, rank));
}

static int by_directory(const void *a, const void *b) {
    const directory_id *x = a, *y = b;
    int order = compare_directories(x, y);
    return order ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

/* On rank 0: sets leaders[r] to rank r's leader, and leaders[n] to the number of nodes. */
static void choose_leaders(directory_id *ids, size_t n, uint64_t *leaders) {
    leaders[n] = 0;
    qsort(ids, n, sizeof *ids, by_directory);
    for (size_t i = 0, first = 0; i < n; i++) {
        if (i == 0 || compare_directories(&ids[i], &ids[first]) != 0) {
            first = i;
            leaders[n]++;
        }
        leaders[ids[i].rank] = ids[first].rank;
    }
}

/* Collective: sets *leader to the lowest rank that has the same directory as this rank (`dir_fd`),
 * and *nodes to the number of different directories. `dir` is for messages. */
static int find_nodes(dcp_comm *comm, int dir_fd, const char *dir, int *leader, int *nodes,
                      dcp_error *err) {
    size_t n = (size_t)comm->size;
    struct stat st;
    directory_id own = {.rank = (uint64_t)comm->rank};
    directory_id *ids = comm->rank == 0 ? calloc(n, sizeof *ids) : NULL;
    uint64_t *leaders = calloc(n + 1, sizeof *leaders);
    int status = DCP_OK;
    if (!leaders || (comm->rank == 0 && !ids)) status = core_fail_memory(err, n * sizeof own);
    if (!status && fstat(dir_fd, &st) != 0) status = core_fail_errno(err, "cannot look at", dir);
    status = comm_agree(comm, status, err);
    if (status) goto free_all;
    own.host = comm->location;
    own.device = st.st_dev;
    own.inode = st.st_ino;
    status = comm_gather(comm, &own, sizeof own, ids, 0, err);
    if (status) goto free_all;
    if (comm->rank == 0) choose_leaders(ids, n, leaders);
    status = comm_broadcast(comm, leaders, (n + 1) * sizeof *leaders, 0, err);
    if (status) goto free_all;
    *leader = (int)leaders[comm->rank];
    *nodes = (int)leaders[n];
free_all:
    free(ids);
    free(leaders);
    return status;
}

static dcp_store *make_store(dcp_comm *comm, const dcp_store_options *options) {
    dcp_store *store = calloc(1, sizeof *store);
    if (!store) return NULL;
    store->comm = comm;
    store->process = getpid();
    store->dir_fd = -1;
    store->nodes = 1;
    store->options = *options;
    store->options.redundancy = NULL;
    store->options.tool = strdup(options->tool ? options->tool : "libdcp");
    store->options.domain = options->domain ? strdup(options->domain) : NULL;
    store->options.keep_metric = options->keep_metric ? strdup(options->keep_metric) : NULL;
    store->dir = calloc(1, PATH_MAX);
    store->pins = store_pins_make();
    if (store->options.tool && store->dir && store->pins &&
        !options->domain == !store->options.domain &&
        !options->keep_metric == !store->options.keep_metric)
        return store;
    dcp_store_close(store);
    return NULL;
}

static int open_directory(dcp_store *store, const char *dir, dcp_error *err) {
    if (!store->options.private_dirs && store->comm->rank != 0) return DCP_OK;
    if (!dir) return core_fail(err, DCP_ERR_ARG, "dcp_store_open: dir is NULL");
    return store_directory_open(dir, &store->dir_fd, store->dir, err);
}

/* On leaders, takes the directory's lock. If several hosts see one directory, each host has a
 * leader, and all leaders but one find the directory locked. */
static int take_directory(dcp_store *store, dcp_error *err) {
    if (!store_leads(store)) {
        if (store->dir_fd >= 0) close(store->dir_fd);
        store->dir_fd = -1;
        return DCP_OK;
    }
    dcp_error why;
    int status = store_lock_acquire(store->dir_fd, store->dir, store->writer,
                                    store->options.take_over, &store->lock, &why);
    if (status == DCP_ERR_BUSY && store->nodes > 1)
        return core_fail_again(err, status, &why,
                               "%s; a private store needs a directory of its own per node",
                               why.message);
    if (status != DCP_OK) return core_fail_again(err, status, &why, "%s", why.message);
    if (!store_lock_excludes(store->lock))
        store_log(
            store, DCP_LOG_WARNING,
            "%s: its file system has no locks that exclude others: a second writer is noticed "
            "only at a save",
            store->dir);
    return DCP_OK;
}

/* Collective: makes the identity that all leaders use and all ranks know. */
static int make_writer(dcp_store *store, dcp_error *err) {
    int status = store->comm->rank == 0 ? store_writer_make_id(store->writer, err) : DCP_OK;
    status = comm_agree(store->comm, status, err);
    if (status) return status;
    return comm_broadcast(store->comm, store->writer, sizeof store->writer, 0, err);
}

/* Collective: determines whether the store's temporary names must contain its identity. */
static int agree_on_names(dcp_store *store, dcp_error *err) {
    uint64_t contested = store->lock && store_lock_is_contested(store->lock);
    int status = comm_allreduce(store->comm, &contested, 1, DCP_REDUCE_MAX, err);
    store->is_contested = contested != 0;
    return status;
}

static int read_redundancy(const dcp_store *store, const char *text, redundancy_spec *spec,
                           dcp_error *err) {
    int status = redundancy_parse(text, spec, err);
    if (status == DCP_OK && spec->kind != REDUNDANCY_NONE && !store->options.private_dirs)
        status = core_fail(err, DCP_ERR_ARG,
                           "redundancy \"%s\" is for private stores (private_dirs): a shared one "
                           "is not lost with a node",
                           text);
    return status;
}

/* Returns a checksum of the options that decide which steps remain in addition to the newest
 * ones. */
static uint64_t hash_policies(const dcp_store_options *o) {
    const uint64_t numbers[] = {o->keep_every, o->keep_seconds, o->keep_best, o->keep_highest != 0};
    const char *metric = o->keep_metric ? o->keep_metric : "";
    const uint64_t raw = core_crc64_raw(~0ULL, numbers, sizeof numbers);
    return core_crc64_raw(raw, metric, strlen(metric));
}

/* Checks the options that must be the same on all ranks of a private store. */
static int agree_on_options(dcp_store *store, const redundancy_spec *spec, dcp_error *err) {
    const bool is_private = store->options.private_dirs != 0;
    comm_vote v = {0};
    comm_vote_same(&v, "private_dirs", is_private);
    comm_vote_same(&v, "keep", is_private ? store->options.keep : 0);
    comm_vote_same(&v, "replace", is_private && store->options.replace);
    comm_vote_same(&v, "keep_latest", is_private && store->options.keep_latest);
    comm_vote_same_hash(&v, "the members keep_every to keep_metric",
                        is_private ? hash_policies(&store->options) : 0);
    comm_vote_same_hash(&v, "redundancy", (uint64_t)spec->kind << 32 | (uint64_t)spec->lost);
    return comm_vote_run(store->comm, &v, DCP_OK, err);
}

/* Names the folders whose names are those of steps, but which are no steps. */
static void warn_of_foreign(const dcp_store *store) {
    dcp_step *steps = NULL;
    size_t n = 0;
    if (store_leads(store)) format_list_foreign(store->dir, &steps, &n, NULL);
    for (size_t i = 0; i < n; i++)
        store_log(store, DCP_LOG_WARNING,
                  "%s/%s has none of the files of a step: it does not count as a step, and stays",
                  store->dir, steps[i].name);
    free(steps);
}

static int open_store(dcp_store *store, const char *dir, const char *redundancy, dcp_error *err) {
    dcp_comm *comm = store->comm;
    redundancy_spec spec = {REDUNDANCY_NONE, 0};
    int status = read_redundancy(store, redundancy, &spec, err);
    if (status == DCP_OK) status = store_striped_check(store, err);
    status = comm_agree(comm, status, err);
    if (status == DCP_OK) status = agree_on_options(store, &spec, err);
    if (status == DCP_OK) status = comm_agree(comm, open_directory(store, dir, err), err);
    if (status == DCP_OK && store->options.private_dirs)
        status = find_nodes(comm, store->dir_fd, store->dir, &store->leader, &store->nodes, err);
    if (status == DCP_OK && store->options.private_dirs)
        status = store_domains_find(store, store->options.domain, err);
    if (status == DCP_OK && spec.kind != REDUNDANCY_NONE)
        status = redundancy_groups_collect(comm, &spec, store->domain, &store->groups, err);
    if (status == DCP_OK) status = make_writer(store, err);
    if (status == DCP_OK) status = comm_agree(comm, take_directory(store, err), err);
    if (status == DCP_OK) status = agree_on_names(store, err);
    if (status == DCP_OK && store_leads(store)) store_writer_folder_make(store);
    if (status == DCP_OK) status = store_leftovers_clear(store, err);
    if (status == DCP_OK) status = store_returned_reconcile(store, err);
    if (status == DCP_OK && !store->options.private_dirs)
        status = comm_broadcast(comm, store->dir, PATH_MAX, 0, err);
    if (status == DCP_OK) status = store_host_names_find(store, err);
    if (status == DCP_OK) store_striped_log_ignored(store);
    if (status == DCP_OK) warn_of_foreign(store);
    return status;
}

int dcp_store_open(dcp_comm *comm, const char *dir, const dcp_store_options *options,
                   dcp_store **out, dcp_error *err) {
    if (!comm) return core_fail(err, DCP_ERR_ARG, "dcp_store_open: comm is NULL");
    dcp_store_options own;
    int status = core_sized_copy_in(&own, sizeof own, options, "DCP_STORE_OPTIONS_INIT", err);
    dcp_store *store = make_store(comm, &own);
    if (!status && !store) status = core_fail_memory(err, PATH_MAX + sizeof *store);
    if (!status && !out) status = core_fail(err, DCP_ERR_ARG, "dcp_store_open: out is NULL");
    if (!status) status = core_path_check(NULL, dir, err);
    if (!status) status = core_option_check_text("dcp_store_options.tool", own.tool, err);
    if (!status) status = core_option_check_text("the domain", own.domain, err);
    if (!status) status = store_retention_check(&own, err);
    status = comm_agree(comm, status, err);
    if (status == DCP_OK) status = open_store(store, dir, own.redundancy, err);
    if (status != DCP_OK) {
        dcp_store_close(store);
        return status;
    }
    *out = store;
    return DCP_OK;
}

/* Ends saves and frees the attachment, in the process that opened the store. A forked process must
 * not do this: it has neither the threads of the saves nor their devices and kernel objects. */
static void end_work(dcp_store *store) {
    store_wait_for_save(store);
    if (store->attachment) store->attachment->free(store->attachment);
    store_remove_released(store);
    if (store->lock) store_writer_folder_drop(store);
}

void dcp_store_close(dcp_store *store) {
    if (!store) return;
    if (store_is_own(store)) end_work(store);
    store_lock_release(store->lock);
    if (store->dir_fd >= 0) close(store->dir_fd);
    redundancy_groups_free(store->groups);
    free((char *)store->options.tool);
    free((char *)store->options.domain);
    free((char *)store->options.keep_metric);
    free(store->host_names);
    free(store->dir);
    store_pins_free(store->pins);
    free(store);
}

int dcp_store_check_free(const char *dir, dcp_error *err) {
    int fd;
    if (!dir) return core_fail(err, DCP_ERR_ARG, "dcp_store_check_free: dir is NULL");
    int status = core_path_check(NULL, dir, err);
    if (status == DCP_OK) status = store_directory_open_existing(dir, &fd, err);
    if (status != DCP_OK || fd < 0) return status;
    status = store_lock_check_free(fd, dir, err);
    close(fd);
    return status;
}
