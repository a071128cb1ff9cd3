/* A store's directory: its entries, a writer's own folder in it, and the striping of its files. */
#pragma once

#include <limits.h>
#include <stdbool.h>

#include "dcp/error.h"
#include "store/store.h"

/* `DIR/.writer-<identity>`: a writer's own folder, through which it removes, replaces and sets
 * aside steps. The next writer removes the folder when it opens the store. So a writer that has
 * lost the store can change nothing in its directory: its renames name a missing folder and fail.
 *
 * When a writer is killed, the folder may contain:
 *   step-00000120            a step that was being replaced: the next writer gives its name back,
 *                            unless something else has that name
 *   absent-step-00000120     a mark: this node had no step of that name when other nodes' steps
 *                            were being replaced
 *   abandoned-step-00000120  a step that was being set aside: the next writer moves it to
 *                            .abandoned-step-...
 *   old-...                  an entry that was being removed: the next writer removes it
 *   spare                    recycled files (store/retention.h): the next writer removes them */

#define STORE_WRITER_FOLDER ".writer-"
#define STORE_WRITER_OLD "old-" /* begins the names of entries that are being removed */
#define STORE_WRITER_ABSENT "absent-"
#define STORE_TRASH ".trash-" /* likewise for earlier writers' entries in the store's directory */
#define STORE_WRITER_FOLDER_PATH 128 /* room for the folder's name and an entry's name */

/* Writes the entry's path within the store's directory: ".writer-<identity>/<entry>". */
void store_writer_folder_entry(const dcp_store *store, const char *entry,
                               char path[STORE_WRITER_FOLDER_PATH]);

/* For leaders, when the store is opened. Makes the folder: then even a directory without steps or
 * `.lock` shows that it has a writer, and steps can be removed from a full disk. If the folder
 * can't be made, store_writer_folder_ready tries again. */
void store_writer_folder_make(const dcp_store *store);

/* For leaders. Makes the folder if it is missing, and then fails if the store has been lost. The
 * lock is checked after the folder is made, so a later writer finds the folder. */
int store_writer_folder_ready(const dcp_store *store, dcp_error *err);

/* For leaders: removes recycled files and the folder. The folder remains if it contains anything
 * else, such as a step. */
void store_writer_folder_drop(const dcp_store *store);

/* Functions for leaders, which hold the lock of the store's directory. Each `name` is the name of
 * an entry in the directory. None of these functions follows a symbolic link in it. */

/* Makes `dir` with its parents, durably, opens it, and writes its absolute path (PATH_MAX bytes).
 */
int store_directory_open(const char *dir, int *dir_fd, char *absolute, dcp_error *err);

/* Opens `dir` without making it. If `dir` is missing and could be made, sets *dir_fd to -1. */
int store_directory_open_existing(const char *dir, int *dir_fd, dcp_error *err);

/* Returns true if an entry of that name exists. Also returns false if that can't be determined, so
 * only callers for which a wrong answer causes nothing worse than an error may use it. store_has
 * reports failures. */
bool store_directory_has(int dir_fd, const char *name);

/* Writes an unused name into name[NAME_MAX + 1]: `prefix` and `base`, followed by ".1", ".2" and so
 * on if an entry of that name exists. */
void store_directory_free_name(int dir_fd, const char *prefix, const char *base, char *name);

/* Removes the entry and everything below it. Returns 0, or -1 with errno. */
int store_directory_remove(int dir_fd, const char *name);

/* Striping of a store's files on a Lustre file system: see io/striping.h. */

/* Checks the striping that the store's options request. DCP_ERR_ARG: it is impossible. */
int store_striped_check(const dcp_store *store, dcp_error *err);

/* On rank 0, logs if the requested striping is ignored. Not collective; called once the store's
 * directory is open. */
void store_striped_log_ignored(const dcp_store *store);

/* Creates a file of the store like io_create; on Lustre, with the store's striping. One rank calls
 * this. `hosts` is the number of hosts that write the file; 0: only this rank writes it. Not needed
 * for recycled files, which have the right striping: this open store has written them, with the
 * same size. */
int store_striped_create(dcp_store *store, const char *path, uint64_t bytes, int hosts,
                         dcp_error *err);
