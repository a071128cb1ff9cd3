/* A store's directory: its entries, a writer's own folder in it, and its striping. */
#pragma once

#include <limits.h>

#include "dcp/error.h"
#include "store/store.h"

/* `DIR/.writer-<identity>`: a writer's own folder, by way of which it removes, replaces and sets
 * aside. The next writer takes it away when it opens the store; so whatever a writer that has lost
 * the store still tries fails: the folder that it names is not there.
 *
 * What may lie in it when a writer is killed:
 * - `step-00000120`, which has lost its name for a moment, to a new one of that name. The next
 *   writer gives the name back, where nothing else has it.
 * - `abandoned-step-00000120`, on its way to `.abandoned-step-...`. The next writer takes it there.
 * - `old-...`, being removed, and `spare` (store/retention.h). They go. */

#define STORE_WRITER_FOLDER ".writer-"
#define STORE_WRITER_OLD "old-" /* begins the names of what is being removed */
#define STORE_TRASH ".trash-"   /* and, in the store's directory, of what earlier writers left */
#define STORE_WRITER_FOLDER_PATH 128 /* room for the folder's name and that of an entry */

/* The entry's path from the store's directory: ".writer-<identity>/<entry>". */
void store_writer_folder_entry(const dcp_store *store, const char *entry,
                               char path[STORE_WRITER_FOLDER_PATH]);

/* Of leaders, when the store is opened: a directory without steps shows that it has a writer, also
 * where `.lock` is removed, and removing steps from a full disk takes no room. Where it can't be
 * made, store_writer_folder_ready tries again. */
void store_writer_folder_make(const dcp_store *store);

/* Of leaders. The folder is there, made where it was missing, and the store has not been lost: the
 * look at the lock comes after the making, so that a later writer finds the folder. */
int store_writer_folder_ready(const dcp_store *store, dcp_error *err);

/* Of leaders: removes it, with what is being removed and recycled files. */
void store_writer_folder_drop(const dcp_store *store);

/* Inside a store's directory: what its leader does there, under the lock. Names are those of
 * entries of the directory; nothing here follows a symbolic link that it finds in it. */

/* Makes `dir` with its parents, durably, opens it, and gives its absolute path (PATH_MAX bytes). */
int store_directory_open(const char *dir, int *dir_fd, char *absolute, dcp_error *err);

/* Opens `dir` as it is. *dir_fd is -1 where it is missing and could be made. */
int store_directory_look(const char *dir, int *dir_fd, dcp_error *err);

/* Whether there is an entry of that name, where nothing worse than an error comes of a wrong no:
 * where that can't be found out. store_has tells. */
int store_directory_has(int dir_fd, const char *name);

/* A name that is free: `prefix` and `base`, or where that is taken with ".1", ".2" and so on after
 * them, into name[NAME_MAX + 1]. */
void store_directory_free_name(int dir_fd, const char *prefix, const char *base, char *name);

/* Removes the entry and all below it. 0, or -1 with errno. */
int store_directory_remove(int dir_fd, const char *name);

/* How a store's files are striped, where it lies on a Lustre file system: see io/striping.h. */

/* DCP_ERR_ARG: the store's options ask for what cannot be. */
int store_striped_check(const dcp_store *store, dcp_error *err);

/* Not collective, once the store's directory is open: rank 0 logs where what was asked for is
 * ignored. */
void store_striped_tell(const dcp_store *store);

/* io_create of a file of the store, which one rank calls: on Lustre with its layout. It is written
 * by `hosts` hosts; 0: by this rank alone. A recycled file never gets here, and keeps its layout:
 * it is this open store's own, of the same size, so the layout is the same. */
int store_striped_create(dcp_store *store, const char *path, uint64_t bytes, int hosts,
                         dcp_error *err);
