/* A writer may have been killed at any moment, or may even run on without knowing that it has lost
 * the store. So its folders are first renamed, which ends what it does by their names, and looked
 * into only then.
 *
 * A step that was about to be replaced has lost its name, and gets it back where
 * nothing else has it. In a private store that is so on all nodes or on none: where any of them has
 * nothing of that name in the old step's place, each gives the old one its name, in the place of a
 * new one if need be, since of several nodes none may have the old step while another has the new
 * one. */
#include "store/leftovers.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "core/fail.h"
#include "dcp/inspect.h"
#include "step/list.h"
#include "store/directory.h"
#include "store/lock.h"
#include "store/retention.h"
#include "store/writer_folder.h"

#define TMP ".tmp-"
#define ABANDONED "abandoned-"

/* Steps that have lost their names. */
typedef struct nameless {
    struct lost_step {
        uint64_t step;
        char path[2 * NAME_MAX + 2]; /* from the store's directory */
    } * list;
    size_t n;
} nameless;

static int begins_with(const char *name, const char *start) {
    return strncmp(name, start, strlen(start)) == 0;
}

/* The next entry of the directory whose name begins so, or NULL. */
static const char *next_entry(DIR *dir, const char *start) {
    struct dirent *e = readdir(dir);
    while (e && !begins_with(e->d_name, start)) e = readdir(dir);
    return e ? e->d_name : NULL;
}

static DIR *open_entries(int dir_fd, const char *name) {
    int fd = openat(dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir && fd >= 0) close(fd);
    return dir;
}

/* Renames all entries of that kind. One that can't be renamed keeps its name, and is removed, or
 * not, under that. */
static int take_away(const dcp_store *store, const char *start, dcp_error *err) {
    const char *name;
    int status = DCP_OK;
    DIR *dir = open_entries(store->dir_fd, ".");
    if (!dir) return store_fail_errno(store, "cannot list", "", err);
    while (!status && (name = next_entry(dir, start))) {
        char trash[NAME_MAX + 1];
        if (strstr(name, store->writer)) continue;
        store_directory_free_name(store->dir_fd, STORE_TRASH, name, trash);
        status = store_lock_check(store->lock, err);
        if (!status) renameat(store->dir_fd, name, store->dir_fd, trash);
    }
    closedir(dir);
    return status;
}

static int note_nameless(nameless *all, uint64_t step, const char *folder, const char *entry,
                         dcp_error *err) {
    struct lost_step *grown = realloc(all->list, (all->n + 1) * sizeof *grown);
    if (!grown) return core_fail_memory(err, (all->n + 1) * sizeof *grown);
    all->list = grown;
    grown[all->n].step = step;
    snprintf(grown[all->n++].path, sizeof grown->path, entry ? "%s/%s" : "%s", folder, entry);
    return DCP_OK;
}

/* The step of a folder that is named as a complete one; 0 where it is named otherwise. */
static int is_step_name(const char *name, uint64_t *step) {
    char made[sizeof((dcp_step *)0)->name];
    if (!begins_with(name, "step-") || !step_name_read(name, step)) return 0;
    step_name_write(made, "", *step);
    return strcmp(made, name) == 0;
}

/* Earlier versions removed steps, too, under the name that they had while they were replaced. */
static int is_whole(const dcp_store *store, const char *name) {
    char path[PATH_MAX];
    dcp_glance glance = DCP_GLANCE_INIT;
    return snprintf(path, sizeof path, "%s/%s", store->dir, name) < (int)sizeof path &&
           dcp_step_glance(path, &glance, NULL) == DCP_OK;
}

/* Ends what the writer began. */
static int abandon(const dcp_store *store, const char *folder, const char *entry, dcp_error *err) {
    char path[2 * NAME_MAX + 2], name[NAME_MAX + 1];
    snprintf(path, sizeof path, "%s/%s", folder, entry);
    store_directory_free_name(store->dir_fd, "." ABANDONED, entry + strlen(ABANDONED), name);
    if (renameat(store->dir_fd, path, store->dir_fd, name) != 0)
        return store_fail_errno(store, "cannot set aside", path, err);
    return DCP_OK;
}

static int find_nameless_in(const dcp_store *store, const char *folder, nameless *all,
                            dcp_error *err) {
    const char *entry;
    uint64_t step;
    int status = DCP_OK;
    if (is_step_name(folder + strlen(STORE_TRASH), &step))
        return is_whole(store, folder) ? note_nameless(all, step, folder, NULL, err) : DCP_OK;
    DIR *dir = open_entries(store->dir_fd, folder);
    while (dir && !status && (entry = next_entry(dir, ""))) {
        if (is_step_name(entry, &step)) status = note_nameless(all, step, folder, entry, err);
        if (begins_with(entry, ABANDONED) && is_step_name(entry + strlen(ABANDONED), &step))
            status = abandon(store, folder, entry, err);
    }
    if (dir) closedir(dir);
    return status;
}

static int find_nameless(const dcp_store *store, nameless *all, dcp_error *err) {
    const char *name;
    int status = DCP_OK;
    DIR *dir = open_entries(store->dir_fd, ".");
    if (!dir) return store_fail_errno(store, "cannot list", "", err);
    while (!status && (name = next_entry(dir, STORE_TRASH)))
        status = find_nameless_in(store, name, all, err);
    closedir(dir);
    return status;
}

/* Of this node's; NULL: it has none of that number. */
static const struct lost_step *find_step(const nameless *all, uint64_t step) {
    for (size_t i = all->n; i > 0; i--)
        if (all->list[i - 1].step == step) return &all->list[i - 1];
    return NULL;
}

/* One more than the newest below the limit; 0: there is none. */
static uint64_t next_below(const nameless *all, uint64_t limit) {
    uint64_t next = 0;
    for (size_t i = 0; i < all->n; i++)
        if (all->list[i].step < limit && all->list[i].step >= next) next = all->list[i].step + 1;
    return next;
}

static int give_name_back(dcp_store *store, const struct lost_step *lost, const char *name,
                          dcp_error *err) {
    int status = DCP_OK;
    if (store_directory_has(store->dir_fd, name)) status = store_discard(store, name, err);
    if (!status) status = store_lock_check(store->lock, err);
    if (status) return status;
    if (renameat(store->dir_fd, lost->path, store->dir_fd, name) != 0)
        return store_fail_errno(store, "cannot give its name back to", name, err);
    store_log(store, DCP_LOG_WARNING, "%s/%s has its name again, which a killed writer took",
              store->dir, name);
    return store_sync(store, err);
}

/* What has no name by now never gets it: it may take long to remove, as readers hold it. */
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

/* Collective where there are several nodes; all deal with the same step. */
static int settle_step(dcp_store *store, const nameless *all, uint64_t step, dcp_error *err) {
    char name[sizeof((dcp_step *)0)->name];
    const struct lost_step *lost = find_step(all, step);
    step_name_write(name, "", step);
    uint64_t stands = !lost || store_directory_has(store->dir_fd, name);
    int status = DCP_OK;
    if (store->nodes > 1) status = comm_allreduce(store->comm, &stands, 1, DCP_REDUCE_MIN, err);
    if (status) return status;
    if (lost && !stands) status = give_name_back(store, lost, name, err);
    if (!status) status = forget_nameless(store, all, step, name, err);
    return store->nodes > 1 ? comm_agree(store->comm, status, err) : status;
}

/* Collective where there are several nodes. */
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

/* Removes the entries of that kind. */
static int remove_all(dcp_store *store, const char *start, dcp_error *err) {
    const char *name;
    dcp_error why;
    int status = DCP_OK;
    DIR *dir = open_entries(store->dir_fd, ".");
    if (!dir) return store_fail_errno(store, "cannot list", "", err);
    while (!status && (name = next_entry(dir, start))) {
        if (strstr(name, store->writer)) continue;
        status = store_lock_check(store->lock, err);
        if (status) break;
        if (store_remove_trash(store, name, &why))
            store_log(store, DCP_LOG_WARNING, "a killed writer's rest stays: %s", why.message);
        else if (!store_directory_has(store->dir_fd, name)) /* or a reader holds it */
            store_log(store, DCP_LOG_INFO, "removed %s/%s, which a killed writer left", store->dir,
                      name);
    }
    closedir(dir);
    return status;
}

static int collect(const dcp_store *store, nameless *all, dcp_error *err) {
    int status = take_away(store, STORE_WRITER_FOLDER, err);
    if (!status) status = take_away(store, TMP, err);
    return status ? status : find_nameless(store, all, err);
}

int store_leftovers_clear(dcp_store *store, dcp_error *err) {
    nameless all = {0};
    int leads = store_leads(store);
    int status = comm_agree(store->comm, leads ? collect(store, &all, err) : DCP_OK, err);
    if (!status) status = comm_agree(store->comm, give_names_back(store, &all, err), err);
    free(all.list);
    if (status) return status;
    if (leads) status = remove_all(store, TMP, err);
    if (leads && !status) status = remove_all(store, STORE_TRASH, err);
    if (leads && !status) status = remove_all(store, STORE_WRITER_FOLDER, err);
    return comm_agree(store->comm, status, err);
}
