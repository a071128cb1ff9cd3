/* A store's directory: its entries, a writer's own folder in it, and its striping. */
#pragma once

#include <limits.h>

#include "dcp/error.h"
#include "store/store.h"

/* `DIR/.writer-<identity>`: a writer's own folder, through which it removes, replaces and sets
 * aside steps. The next writer removes it when it opens the store. So everything that a writer
 * still tries after it has lost the store fails, since the folder that it names is missing.
 *
 * When a writer is killed, the folder may contain:
 *   step-00000120            being replaced by a new step of that name: the next writer gives it
 * its name back, unless something else has that name abandoned-step-00000120  on its way to
 * .abandoned-step-...: the next writer moves it there old-...                  being removed: the
 * next writer removes it spare                    recycled files (store/retention.h): the next
 * writer removes them */

#define STORE_WRITER_FOLDER ".writer-"
#define STORE_WRITER_OLD "old-" /* begins the names of entries that are being removed */
#define STORE_TRASH ".trash-"   /* likewise, in the store's directory, those of earlier writers */
#define STORE_WRITER_FOLDER_PATH 128 /* room for the folder's name and that of an entry */

/* Writes the entry's path within the store's directory: ".writer-<identity>/<entry>". */
void store_writer_folder_entry(const dcp_store *store, const char *entry,
                               char path[STORE_WRITER_FOLDER_PATH]);

/* For leaders, when the store is opened: makes the folder, so a directory without steps shows that
 * it has a writer even if `.lock` is removed, and removing steps from a full disk needs no room. If
 * it can't be made, store_writer_folder_ready tries again. */
void store_writer_folder_make(const dcp_store *store);

/* For leaders. Makes the folder if it is missing, and then fails if the store has been lost. It
 * looks at the lock after making the folder, so a later writer finds the folder. */
int store_writer_folder_ready(const dcp_store *store, dcp_error *err);

/* For leaders: removes the folder, with what is being removed and recycled files. */
void store_writer_folder_drop(const dcp_store *store);

/* What a leader does inside a store's directory, under the lock. Names are those of entries of the
 * directory; nothing here follows a symbolic link in it. */

/* Makes `dir` with its parents, durably, opens it, and writes its absolute path (PATH_MAX bytes).
 */
int store_directory_open(const char *dir, int *dir_fd, char *absolute, dcp_error *err);

/* Opens `dir` without making it. *dir_fd is -1 if it is missing and could be made. */
int store_directory_look(const char *dir, int *dir_fd, dcp_error *err);

/* Returns true if an entry of that name exists, and false if that can't be found out: only for
 * callers to whom a wrong no causes at most an error. store_has reports failures. */
int store_directory_has(int dir_fd, const char *name);

/* Writes a name that is free into name[NAME_MAX + 1]: `prefix` and `base`, followed by ".1", ".2"
 * and so on if that exists. */
void store_directory_free_name(int dir_fd, const char *prefix, const char *base, char *name);

/* Removes the entry and everything below it. Returns 0, or -1 with errno. */
int store_directory_remove(int dir_fd, const char *name);

/* Striping of a store's files on a Lustre file system: see io/striping.h. */

/* Returns DCP_ERR_ARG if the store's options request an impossible striping. */
int store_striped_check(const dcp_store *store, dcp_error *err);

/* Not collective, once the store's directory is open: rank 0 logs if the requested striping is
 * ignored. */
void store_striped_tell(const dcp_store *store);

/* Creates a file of the store (io_create), on Lustre with its striping. One rank calls this.
 * `hosts` hosts write the file; 0: only this rank. A recycled file never gets here: it is this open
 * store's own, of the same size, so its striping is right. */
int store_striped_create(dcp_store *store, const char *path, uint64_t bytes, int hosts,
                         dcp_error *err);
