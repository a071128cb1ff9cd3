/* Publication: a step is written under a temporary name and gets its own by one rename.
 *
 * Everything in the folder is durable before the rename, and the rename before the save returns. So
 * at every moment, whatever is killed, what has a step's name is whole; and the step that a save
 * replaces keeps its name until the new one takes it. Only rank 0 touches the directory. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/comm.h"
#include "core/fail.h"
#include "store/about.h"
#include "store/folder.h"

#define LATEST_TMP ".tmp-latest"

static int is_free(const dcp_store *store, uint64_t step, const char *name, dcp_error *err) {
    int goes_aside = store->abandon_pending && step > store->continue_from;
    if (goes_aside || store->options.replace || !folder_has(store->dir_fd, name)) return DCP_OK;
    return core_fail(err, DCP_ERR_STATE,
                     "%s/%s exists already: save another step, remove this one or allow it to be "
                     "replaced",
                     store->dir, name);
}

static int make_tmp(dcp_store *store, uint64_t step, dcp_error *err) {
    char tmp[64], name[64];
    store_step_name(tmp, ".tmp-", step);
    store_step_name(name, "", step);
    int status = is_free(store, step, name, err);
    if (status != DCP_OK) return status;
    if (folder_remove(store->dir_fd, tmp) != 0)
        return store_fail_errno(store, "cannot remove", tmp, err);
    if (mkdirat(store->dir_fd, tmp, 0777) != 0)
        return store_fail_errno(store, "cannot make directory", tmp, err);
    return DCP_OK;
}

static void tmp_path_of(const dcp_store *store, uint64_t step, char *path) {
    char tmp[64];
    store_step_name(tmp, ".tmp-", step);
    snprintf(path, PATH_MAX, "%s/%s", store->dir, tmp);
}

int store_begin(dcp_store *store, uint64_t step, char *tmp_path, dcp_error *err) {
    int status = store->comm->rank == 0 ? make_tmp(store, step, err) : DCP_OK;
    status = comm_agree(store->comm, status, err);
    if (status == DCP_OK) tmp_path_of(store, step, tmp_path);
    return status;
}

/* about.json, and the folder's entries durable. */
static int finish_folder(dcp_store *store, uint64_t step, const char *members_json,
                         dcp_error *err) {
    char path[PATH_MAX];
    tmp_path_of(store, step, path);
    int status = about_write(path, store->options.tool, store->comm->size, members_json, err);
    if (status != DCP_OK) return status;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return core_fail_errno(err, "cannot open directory", path);
    if (folder_sync(fd) != 0) status = core_fail_errno(err, "cannot sync", path);
    close(fd);
    return status;
}

/* The step's name goes to `tmp`'s folder; `old` gets the name of what had it before, or "". */
static int take_name(dcp_store *store, const char *tmp, const char *name, char *old,
                     dcp_error *err) {
    int fd = store->dir_fd;
    old[0] = '\0';
    if (!folder_has(fd, name)) {
        if (renameat(fd, tmp, fd, name) != 0)
            return store_fail_errno(store, "cannot rename", tmp, err);
        return DCP_OK;
    }
    if (renameat2(fd, tmp, fd, name, RENAME_EXCHANGE) == 0) {
        snprintf(old, NAME_MAX + 1, "%s", tmp);
        return DCP_OK;
    }
    if (errno != EINVAL && errno != ENOSYS)
        return store_fail_errno(store, "cannot replace", name, err);
    /* A file system without exchange: for a moment neither has the name. */
    char base[NAME_MAX + 1];
    snprintf(base, sizeof base, ".trash-%s", name);
    folder_free_name(fd, base, old);
    if (renameat(fd, name, fd, old) != 0)
        return store_fail_errno(store, "cannot rename", name, err);
    if (renameat(fd, tmp, fd, name) != 0) {
        int status = store_fail_errno(store, "cannot rename", tmp, err);
        renameat(fd, old, fd, name);
        return status;
    }
    return DCP_OK;
}

/* After take_name: the name goes back, so that a rollback removes what was to be new. */
static void return_name(const dcp_store *store, const char *tmp, const char *name,
                        const char *old) {
    int fd = store->dir_fd;
    if (strcmp(old, tmp) == 0) {
        renameat2(fd, tmp, fd, name, RENAME_EXCHANGE);
        return;
    }
    renameat(fd, name, fd, tmp);
    if (old[0]) renameat(fd, old, fd, name);
}

static int make_visible(dcp_store *store, const char *tmp, const char *name, dcp_error *err) {
    char old[NAME_MAX + 1];
    int status = take_name(store, tmp, name, old, err);
    if (status != DCP_OK) return status;
    if (folder_sync(store->dir_fd) != 0) {
        status = store_fail_errno(store, "cannot sync", ".", err);
        return_name(store, tmp, name, old);
        return status;
    }
    dcp_error removal;
    if (old[0] && store_discard(store, old, &removal) != DCP_OK)
        store_log(store, DCP_LOG_WARNING, "the replaced step stays: %s", removal.message);
    return DCP_OK;
}

/* For people; programs look for the newest complete step. So a failure here is only logged. */
static void point_latest(dcp_store *store) {
    dcp_error err;
    char path[PATH_MAX], name[64];
    uint64_t newest;
    if (store->options.keep_latest || store_newest(store->dir, path, &newest, NULL)) return;
    store_step_name(name, "", newest);
    unlinkat(store->dir_fd, LATEST_TMP, 0);
    if (symlinkat(name, store->dir_fd, LATEST_TMP) == 0 &&
        renameat(store->dir_fd, LATEST_TMP, store->dir_fd, "latest") == 0)
        return;
    store_fail_errno(store, "cannot point to the new step with", "latest", &err);
    unlinkat(store->dir_fd, LATEST_TMP, 0);
    store_log(store, DCP_LOG_WARNING, "%s", err.message);
}

static int publish_on_rank_0(dcp_store *store, uint64_t step, const char *members_json,
                             dcp_error *err) {
    char tmp[64], name[64];
    store_step_name(tmp, ".tmp-", step);
    store_step_name(name, "", step);
    int status = finish_folder(store, step, members_json, err);
    if (status != DCP_OK) return status;
    if (store->abandon_pending && (status = store_abandon(store, err)) != DCP_OK) return status;
    store->abandon_pending = 0;
    status = make_visible(store, tmp, name, err);
    if (status != DCP_OK) return status;
    dcp_store_mark_intact(store, step, NULL);
    point_latest(store);
    store_retain(store);
    return DCP_OK;
}

int store_publish(dcp_store *store, uint64_t step, const char *members_json, dcp_error *err) {
    int status = DCP_OK;
    if (store->comm->rank == 0) status = publish_on_rank_0(store, step, members_json, err);
    status = comm_agree(store->comm, status, err);
    if (status != DCP_OK) return status;
    store->abandon_pending = 0;
    return dcp_store_mark_intact(store, step, err);
}

void store_rollback(dcp_store *store, uint64_t step) {
    if (store->comm->rank != 0) return;
    char tmp[64];
    dcp_error err;
    store_step_name(tmp, ".tmp-", step);
    if (folder_remove(store->dir_fd, tmp) == 0) return;
    store_fail_errno(store, "cannot remove", tmp, &err);
    store_log(store, DCP_LOG_WARNING, "an unfinished save stays: %s", err.message);
}
