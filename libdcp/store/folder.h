/* Inside a store's directory: what its leader does there, under the lock. Names are those of
 * entries of the directory; nothing here follows a symbolic link that it finds in it. */
#ifndef DCP_STORE_FOLDER_H
#define DCP_STORE_FOLDER_H

#include <limits.h>

#include "store/store.h"

/* Makes `dir` with its parents, durably, opens it, and gives its absolute path (PATH_MAX bytes). */
int folder_open(const char *dir, int *dir_fd, char *absolute, dcp_error *err);

/* Makes the directory's entries durable. 0, or -1 with errno. */
int folder_sync(int dir_fd);

/* Whether there is an entry of that name. */
int folder_has(int dir_fd, const char *name);

/* `base`, or where that is taken "base.1", "base.2" and so on, into name[NAME_MAX + 1]. */
void folder_free_name(int dir_fd, const char *base, char *name);

/* Removes the entry and all below it. 0, or -1 with errno. */
int folder_remove(int dir_fd, const char *name);

/* Takes the lock file `.lock`; the lock lives as long as *lock_fd is open. DCP_ERR_BUSY: another
 * writer holds it. `dir` is for messages. */
int store_lock(int dir_fd, const char *dir, int *lock_fd, dcp_error *err);

/* Removes what a killed writer left, and logs it. */
void store_clean(dcp_store *store);

/* Sets the steps after store->continue_from aside, and logs it. */
int store_abandon(dcp_store *store, dcp_error *err);

/* Moves the entry out of the way so that it is no step any more, durably, then removes it. */
int store_discard(dcp_store *store, const char *name, dcp_error *err);

/* Collective: leaders remove the steps that options.keep does not keep, and log where that fails.
 */
int store_retain(dcp_store *store, dcp_error *err);

/* core_fail_errno with the path of the entry `name`. */
int store_fail_errno(const dcp_store *store, const char *what, const char *name, dcp_error *err);

void store_log(const dcp_store *store, dcp_log_level level, const char *fmt, ...) DCP_PRINTF(3, 4);

#endif
