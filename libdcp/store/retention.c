/* Which steps stay, and the removal of the others.
 *
 * A removal is a publication backwards: the step loses its name, durably, before a byte of it goes,
 * so what has a step's name is complete at every moment. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/fail.h"
#include "store/folder.h"

int store_discard(dcp_store *store, const char *name, dcp_error *err) {
    char base[NAME_MAX + 1], trash[NAME_MAX + 1];
    snprintf(base, sizeof base, ".trash-%s", name);
    folder_free_name(store->dir_fd, base, trash);
    if (renameat(store->dir_fd, name, store->dir_fd, trash) != 0)
        return store_fail_errno(store, "cannot rename", name, err);
    if (folder_sync(store->dir_fd) != 0) return store_fail_errno(store, "cannot sync", ".", err);
    if (folder_remove(store->dir_fd, trash) != 0)
        return store_fail_errno(store, "cannot remove", trash, err);
    return DCP_OK;
}

/* Complete steps among steps[from, n). */
static size_t complete_from(const dcp_step *steps, size_t from, size_t n) {
    size_t complete = 0;
    for (size_t i = from; i < n; i++) complete += steps[i].kind == DCP_STEP_COMPLETE;
    return complete;
}

/* steps[i] of the ascending list has had its time. Complete steps of the same number stand before
 * an abandoned one in the list, but are newer than it. */
static int is_outlived(const dcp_store *store, const dcp_step *steps, size_t i, size_t n) {
    if (steps[i].kind == DCP_STEP_PARTIAL) return 0;
    int is_complete = steps[i].kind == DCP_STEP_COMPLETE;
    if (is_complete && store->has_intact && steps[i].step == store->newest_intact) return 0;
    size_t first_newer = i + (size_t)is_complete;
    while (!is_complete && first_newer > 0 && steps[first_newer - 1].step == steps[i].step)
        first_newer--;
    return complete_from(steps, first_newer, n) >= store->options.keep;
}

void store_retain(dcp_store *store) {
    if (store->options.keep == 0) return;
    dcp_step *steps;
    size_t n;
    dcp_error err;
    if (dcp_steps_list(store->dir, &steps, &n, &err) != DCP_OK) {
        store_log(store, DCP_LOG_WARNING, "old steps stay: %s", err.message);
        return;
    }
    for (size_t i = 0; i < n; i++)
        if (is_outlived(store, steps, i, n) && store_discard(store, steps[i].name, &err) != DCP_OK)
            store_log(store, DCP_LOG_WARNING, "an old step stays: %s", err.message);
    free(steps);
}

int store_abandon(dcp_store *store, dcp_error *err) {
    dcp_step *steps;
    size_t n;
    int status = dcp_steps_list(store->dir, &steps, &n, err);
    if (status != DCP_OK) return status;
    for (size_t i = 0; i < n && status == DCP_OK; i++) {
        if (steps[i].kind != DCP_STEP_COMPLETE || steps[i].step <= store->continue_from) continue;
        char base[64], name[NAME_MAX + 1];
        store_step_name(base, ".abandoned-", steps[i].step);
        folder_free_name(store->dir_fd, base, name);
        if (renameat(store->dir_fd, steps[i].name, store->dir_fd, name) != 0)
            status = store_fail_errno(store, "cannot set aside", steps[i].name, err);
        else
            store_log(store, DCP_LOG_WARNING, "this run went back: %s/%s is now %s", store->dir,
                      steps[i].name, name);
    }
    free(steps);
    return status;
}
