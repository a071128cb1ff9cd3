/* Publication: a step is written under a temporary name, and one rename gives it its own name.
 *
 * Everything in the folder is durable before the rename, and the rename is durable before the save
 * returns. So a folder with a step's name is complete at every moment, whichever processes are
 * killed.
 *
 * With one node, a replaced step has its name until the new step takes it. With several nodes, each
 * of which has a directory, all leaders first rename the old step. They give the new step its name
 * only when all of them have done so; if one fails, all undo their renames. A rank that cannot find
 * out whether a leader has failed changes nothing more, as if the rank had been killed: other ranks
 * may know that no leader has failed, and may have removed older steps. The next writer decides
 * which of the two steps remains (store/open.c). */
#include "store/publication.h"

#include <errno.h>
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
#include "core/fail.h"
#include "format/about.h"
#include "format/folder.h"
#include "io/entries.h"
#include "io/file.h"
#include "io/publish.h"
#include "store/directory.h"
#include "store/lock.h"
#include "store/retention.h"
#include "store/returned.h"

void store_allow_replacement(dcp_store *store, uint64_t step) {
    store->unread = step;
    store->has_unread = true;
}

int store_has_step(dcp_store *store, uint64_t step, uint64_t *is_there, dcp_error *err) {
    char name[64];
    format_name_write(name, "", step);
    *is_there = !store_leads(store) || (store_lock_check(store->lock, NULL) == DCP_OK &&
                                        store_directory_has(store->dir_fd, name));
    return comm_allreduce(store->comm, is_there, 1, DCP_REDUCE_MIN, err);
}

/* Returns DCP_ERR_STATE if a later step exists: the next start would load that step, and `keep`
 * would count it. `newest` is one more than the newest step, or 0. If the newest step is this step,
 * which is not an error, some node lacks it. */
static int check_newest(const dcp_store *store, uint64_t step, uint64_t newest, dcp_error *err) {
    if (store->options.replace || store->options.keep_latest || newest <= step + 1) return DCP_OK;
    return core_fail_path(
        core_fail(err, DCP_ERR_STATE,
                  "step %llu is older than step %llu, which %s holds: a run that goes back must "
                  "call continue_from, which sets later steps aside",
                  (unsigned long long)step, (unsigned long long)newest - 1, store->dir),
        store->dir, err);
}

/* Returns DCP_ERR_STATE if the step exists on every node and must not be replaced. A step that only
 * some nodes have is left over from an interrupted publication. */
static int check_free(const dcp_store *store, uint64_t step, const store_found *found,
                      dcp_error *err) {
    char name[64];
    if (!found->exists) return check_newest(store, step, found->newest, err);
    if (store->options.replace || (store->has_unread && store->unread == step)) return DCP_OK;
    format_name_write(name, "", step);
    return store_fail_entry(
        store, name,
        core_fail(err, DCP_ERR_STATE,
                  "%s/%s exists already: save another step, remove this one, or have it replaced "
                  "(the option replace)",
                  store->dir, name),
        err);
}

/* Returns DCP_ERR_STATE if a file, a symbolic link, or a folder with somebody else's files has the
 * step's name. It is not a step, so it is not set aside as one, and the store can't know how
 * valuable it is. */
static int check_is_step(const dcp_store *store, const char *name, dcp_error *err) {
    struct stat st;
    bool is_foreign = false;
    int status = io_stat(store->dir_fd, name, &st, err);
    if (status == DCP_ERR_NOT_FOUND) return DCP_OK;
    if (!status && S_ISDIR(st.st_mode))
        status = format_folder_is_foreign(store->dir_fd, name, store->dir, &is_foreign, err);
    if (status) return store_fail_entry(store, name, status, err);
    if (is_foreign) return store_fail_foreign(store, name, err);
    if (S_ISDIR(st.st_mode) || store->options.replace) return DCP_OK;
    return store_fail_entry(store, name,
                            core_fail(err, DCP_ERR_STATE,
                                      "%s/%s is no folder, so it is no step of this store: move it "
                                      "away, or have it replaced (the option replace)",
                                      store->dir, name),
                            err);
}

/* For a leader: fills in store->found from its own directory. */
static int look_for_step(dcp_store *store, uint64_t step, dcp_error *err) {
    char name[64];
    dcp_step *steps = NULL;
    size_t n = 0;
    format_name_write(name, "", step);
    const bool goes_aside = store->abandon_pending && step > store->continue_from;
    bool is_there;
    int status = store_has(store, name, &is_there, err);
    store->found.exists = !goes_aside && is_there;
    store->found.is_absent = !is_there;
    if (!status && is_there) status = check_is_step(store, name, err);
    if (!status && !store->options.replace && !store->options.keep_latest)
        status = dcp_steps_list(store->dir, &steps, &n, err);
    store->found.newest = format_list_newest_below(steps, n, store_newest_limit(store));
    free(steps);
    return status;
}

/* Writes the name of the temporary folder. No other writer uses it: in a contested store it
 * contains the writer's identity (store/lock.h). */
static void name_tmp(const dcp_store *store, uint64_t step, char name[NAME_MAX + 1]) {
    format_name_write(name, ".tmp-", step);
    if (!store->is_contested) return;
    strcat(name, ".");
    strcat(name, store->writer);
}

static int make_tmp(dcp_store *store, uint64_t step, dcp_error *err) {
    char tmp[NAME_MAX + 1];
    name_tmp(store, step, tmp);
    int status = store_clear(store, tmp, err);
    if (status != DCP_OK) return status;
    if (mkdirat(store->dir_fd, tmp, 0777) != 0)
        return store_fail_errno(store, "cannot make directory", tmp, err);
    store->has_tmp = true;
    return store_writer_folder_ready(store, err);
}

static void tmp_path_of(const dcp_store *store, uint64_t step, char *path) {
    char tmp[NAME_MAX + 1];
    name_tmp(store, step, tmp);
    snprintf(path, PATH_MAX, "%s/%s", store->dir, tmp); /* directory.c limits its length */
}

int store_begin(dcp_store *store, uint64_t step, char *tmp_path, dcp_error *err) {
    store->found = (store_found){.exists = true,
                                 .is_absent = true,
                                 .sets_none_aside = !store->abandon_pending,
                                 .newest = UINT64_MAX,
                                 .intact = store->has_intact ? store->newest_intact + 1 : 0};
    store->has_tmp = false;
    tmp_path_of(store, step, tmp_path);
    if (!store_leads(store)) return DCP_OK;
    int status = store_lock_check(store->lock, err);
    if (status == DCP_OK) status = look_for_step(store, step, err);
    if (status == DCP_OK && store->nodes == 1) status = check_free(store, step, &store->found, err);
    return status != DCP_OK ? status : make_tmp(store, step, err);
}

/* Collective, with several nodes: checks the result of the vote on what the leaders have found. */
static int check_nodes(dcp_store *store, uint64_t step, store_found *found, dcp_error *err) {
    dcp_step *steps = NULL;
    size_t n;
    int status = DCP_OK;
    bool any;
    store->clears_way = !found->is_absent || !found->sets_none_aside;
    if (!found->has_same_newest && !found->exists && !store->options.replace &&
        !store->options.keep_latest) {
        uint64_t newest = store_newest_limit(store);
        status = store_newest(store, &steps, &n, &newest, &any, err);
        found->newest = any ? newest + 1 : 0;
        free(steps);
    }
    if (found->newest < found->intact) found->newest = found->intact; /* some nodes may lack it */
    if (status == DCP_OK) status = check_free(store, step, found, err);
    return status == DCP_OK && !found->exists ? DCP_OK : comm_agree(store->comm, status, err);
}

int store_begin_agree(dcp_store *store, int status, uint64_t step, comm_vote *v, dcp_error *err) {
    store_found *found = &store->found;
    const bool has_nodes = store->nodes > 1;
    if (has_nodes) {
        comm_vote_all(v, &found->exists);
        comm_vote_all(v, &found->is_absent);
        comm_vote_all(v, &found->sets_none_aside);
        comm_vote_equal(v, store_leads(store), &found->newest, &found->has_same_newest);
        comm_vote_max(v, &found->intact, 1);
    }
    status = comm_vote_run(store->comm, v, status, err);
    return status || !has_nodes ? status : check_nodes(store, step, found, err);
}

/* Writes about.json, and makes the folder's entries durable. */
static int finish_folder(dcp_store *store, uint64_t step, const char *members_json,
                         dcp_error *err) {
    char path[PATH_MAX];
    tmp_path_of(store, step, path);
    int status =
        format_about_write(path, store->options.tool, store->comm->size, members_json, err);
    return status != DCP_OK ? status : io_sync_folder(path, err);
}

/* A step's folder that is about to get its name. */
typedef struct renaming {
    char tmp[NAME_MAX + 1], name[64];
    char aside[STORE_WRITER_FOLDER_PATH];  /* for the entry that had `name` before */
    char old[NAME_MAX + 1];                /* where that entry is now; "": there was none */
    char absent[STORE_WRITER_FOLDER_PATH]; /* the mark that there was none; "": no mark */
    bool taken;
} renaming;

static renaming plan_renaming(const dcp_store *store, uint64_t step) {
    renaming r = {.taken = false};
    name_tmp(store, step, r.tmp);
    format_name_write(r.name, "", step);
    store_writer_folder_entry(store, r.name, r.aside);
    return r;
}

/* Used if other nodes have an old step: if they get it back, this node discards the new step. */
static int mark_absent(const dcp_store *store, renaming *r, dcp_error *err) {
    char entry[NAME_MAX + 1], own[STORE_WRITER_FOLDER_PATH], folder[PATH_MAX];
    snprintf(entry, sizeof entry, STORE_WRITER_ABSENT "%s", r->name);
    store_writer_folder_entry(store, entry, r->absent);
    if (mkdirat(store->dir_fd, r->absent, 0777) != 0 && errno != EEXIST)
        return store_fail_errno(store, "cannot make directory", r->absent, err);
    store_writer_folder_entry(store, "", own);
    snprintf(folder, sizeof folder, "%s/%s", store->dir, own);
    const int status = io_sync_folder(folder, err);
    return status == DCP_OK ? store_sync(store, err) : status;
}

/* Used if there are several nodes: takes the name away from the old step. All nodes do this first;
 * otherwise one node could have the old step and another one the new step, which would pass for one
 * step because they have the same name. */
static int set_aside(const dcp_store *store, renaming *r, dcp_error *err) {
    int fd = store->dir_fd;
    bool is_there;
    int status = store_writer_folder_ready(store, err);
    if (status == DCP_OK) status = store_has(store, r->name, &is_there, err);
    if (status != DCP_OK) return status;
    if (!is_there) return store->found.is_absent ? DCP_OK : mark_absent(store, r, err);
    status = check_is_step(store, r->name, err); /* somebody may have made a folder meanwhile */
    if (status != DCP_OK) return status;
    if (renameat(fd, r->name, fd, r->aside) != 0)
        return store_fail_errno(store, "cannot rename", r->name, err);
    strcpy(r->old, r->aside);
    return store_sync(store, err);
}

/* Gives the step's name to the temporary folder. */
static int take_name(const dcp_store *store, renaming *r, dcp_error *err) {
    int fd = store->dir_fd;
    bool is_there;
    int status = store_has(store, r->name, &is_there, err);
    if (status != DCP_OK) return status;
    if (!is_there) {
        if (renameat(fd, r->tmp, fd, r->name) != 0)
            return store_fail_errno(store, "cannot rename", r->tmp, err);
        return DCP_OK;
    }
    status = check_is_step(store, r->name, err); /* somebody may have made a folder meanwhile */
    if (status != DCP_OK) return status;
    const int exchanged = io_publish_replace(fd, r->tmp, r->name, r->aside);
    if (exchanged < 0) return store_fail_errno(store, "cannot replace", r->name, err);
    snprintf(r->old, sizeof r->old, "%s", exchanged ? r->tmp : r->aside);
    return DCP_OK;
}

/* Gives the step its name. Checks the lock before the renames, so a writer that has lost the store
 * changes nothing, and again after them, since the store may be lost in between. If the next writer
 * has already removed the temporary folder or the writer's folder, the renames fail; otherwise this
 * writer undoes them. A directory that is moved in between contains the complete step. */
static int make_visible(const dcp_store *store, renaming *r, dcp_error *err) {
    int status = store_writer_folder_ready(store, err);
    if (status == DCP_OK) status = take_name(store, r, err);
    if (status != DCP_OK) return status;
    r->taken = true;
    status = store_sync(store, err);
    return status != DCP_OK ? status : store_lock_check_name(store->lock, err);
}

/* Undoes the renames, unless the store has been lost since. Collective if there are several nodes:
 * old steps get their names back only when no node has the new step. */
static void return_name(const dcp_store *store, const renaming *r) {
    char undone[STORE_WRITER_FOLDER_PATH];
    int fd = store->dir_fd, status = DCP_OK;
    const bool is_exchanged = strcmp(r->old, r->tmp) == 0;
    dcp_error why;
    store_writer_folder_entry(store, "old-undone", undone);
    if (is_exchanged)
        renameat2(fd, r->tmp, fd, r->name, RENAME_EXCHANGE);
    else if (r->taken && renameat(fd, r->name, fd, undone) != 0)
        status = store_fail_errno(store, "cannot rename", r->name, &why);
    if (store->nodes > 1) status = comm_agree(store->comm, status, &why);
    if (status != DCP_OK && store->nodes > 1) return; /* the next start decides */
    if (!is_exchanged && r->old[0]) renameat(fd, r->old, fd, r->name);
    if (r->absent[0]) unlinkat(fd, r->absent, AT_REMOVEDIR);
    if (!is_exchanged && r->taken && status == DCP_OK) store_directory_remove(fd, undone);
}

/* Makes the link in the writer's folder and moves it from there. */
void store_point_latest(const dcp_store *store, uint64_t step) {
    dcp_error err;
    char name[64], link[STORE_WRITER_FOLDER_PATH];
    format_name_write(name, "", step);
    store_writer_folder_entry(store, "latest", link);
    unlinkat(store->dir_fd, link, 0);
    if (symlinkat(name, store->dir_fd, link) == 0 &&
        renameat(store->dir_fd, link, store->dir_fd, "latest") == 0)
        return;
    store_fail_errno(store, "cannot point to the new step with", "latest", &err);
    unlinkat(store->dir_fd, link, 0);
    store_log(store, DCP_LOG_WARNING, "%s", err.message);
}

void store_drop_latest(const dcp_store *store) {
    char link[STORE_WRITER_FOLDER_PATH];
    store_writer_folder_entry(store, "latest", link);
    if (renameat(store->dir_fd, "latest", store->dir_fd, link) == 0)
        unlinkat(store->dir_fd, link, 0);
}

static void follow_publication(const dcp_store *store, uint64_t published) {
    char path[PATH_MAX];
    uint64_t newest = published; /* with several nodes, some may lack a newer step */
    if (store->options.keep_latest) return;
    if (store->nodes == 1 && format_list_newest(store->dir, path, &newest, NULL)) return;
    store_point_latest(store, newest);
}

int store_finish(dcp_store *store, uint64_t step, const char *members_json, dcp_error *err) {
    if (!store_leads(store)) return DCP_OK;
    int status = store_lock_check(store->lock, err);
    return status == DCP_OK ? finish_folder(store, step, members_json, err) : status;
}

/* For a leader: sets later steps aside if the run went back and, if there are several nodes, takes
 * the name away from the old step. */
static int clear_way(dcp_store *store, renaming *r, dcp_error *err) {
    int status = store->abandon_pending ? store_abandon(store, err) : DCP_OK;
    return status == DCP_OK && store->nodes > 1 ? set_aside(store, r, err) : status;
}

/* Collective: when all leaders have cleared the way, they give the step its name. The agreement in
 * between is omitted if there is only one leader, or if all ranks know that there is nothing to
 * clear. */
static int give_name(dcp_store *store, renaming *r, store_retention *own, dcp_error *err) {
    const bool leads = store_leads(store);
    int status = DCP_OK;
    if (leads && (store->nodes == 1 || store->clears_way)) status = clear_way(store, r, err);
    if (store->nodes > 1 && store->clears_way) status = comm_agree(store->comm, status, err);
    if (status == DCP_OK && leads) status = make_visible(store, r, err);
    if (status == DCP_OK && store->nodes > 1) store_retain_list(store, own);
    comm_vote v = {0};
    comm_vote_all(&v, &own->is_listed);
    comm_vote_equal(&v, own->takes_part, &own->fingerprint, &own->are_same);
    return comm_vote_run(store->comm, &v, status, err);
}

/* Removes the replaced step and repoints `latest`, after the publication. Failures are logged. */
static void tidy_up(dcp_store *store, uint64_t step, const renaming *r) {
    dcp_error err;
    if (r->absent[0]) unlinkat(store->dir_fd, r->absent, AT_REMOVEDIR);
    if (r->old[0] && store_discard(store, r->old, &err) != DCP_OK)
        store_log(store, DCP_LOG_WARNING, "the replaced step stays: %s", err.message);
    follow_publication(store, step);
}

int store_publish(dcp_store *store, uint64_t step, dcp_error *err) {
    renaming r = plan_renaming(store, step);
    store_retention own = {.is_listed = true};
    store->save_number++;
    int status = give_name(store, &r, &own, err);
    if (status != DCP_OK) {
        free(own.steps);
        if (status == DCP_ERR_COMM)
            return core_fail_add(status, err,
                                 "; other ranks may know that step %llu is saved in %s: the next "
                                 "start finds out",
                                 (unsigned long long)step, store->dir);
        return_name(store, &r);
        return status;
    }
    store_returned_record(store);
    store->abandon_pending = false;
    store->has_tmp = false;
    if (store_leads(store)) tidy_up(store, step, &r);
    store->has_unread = false;
    store->newest_intact = step;
    store->has_intact = true;
    if (store->nodes == 1) store_retain_list(store, &own);
    status = store_retain(store, step, &own, err);
    free(own.steps);
    store_remove_released(store);
    return status;
}

int store_find_cause(dcp_store *store, int status, dcp_error *err) {
    dcp_error why;
    if (status == DCP_ERR_COMM) return status;
    int lost = store_leads(store) ? store_lock_check(store->lock, &why) : DCP_OK;
    lost = comm_agree(store->comm, lost, &why);
    if (lost != DCP_ERR_BUSY && lost != DCP_ERR_NOT_FOUND) return status;
    if (err) *err = why;
    return lost;
}

void store_rollback(dcp_store *store, uint64_t step) {
    if (!store_leads(store)) return;
    store_recycle_remove(store); /* the save may have failed because the disk is full */
    char tmp[NAME_MAX + 1];
    dcp_error err;
    if (!store->has_tmp) return;
    store->has_tmp = false;
    name_tmp(store, step, tmp);
    if (store_clear(store, tmp, &err) == DCP_OK) return;
    store_log(store, DCP_LOG_WARNING, "an unfinished save stays: %s", err.message);
}
