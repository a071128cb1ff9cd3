/* `DIR/.writer-<identity>`: a writer's own folder, by way of which it removes, replaces and sets
 * aside. The next writer takes it away when it opens the store; so whatever a writer that has lost
 * the store still tries fails: the folder that it names is not there.
 *
 * What may lie in it when a writer is killed:
 * - `step-00000120`, which has lost its name for a moment, to a new one of that name. The next
 *   writer gives the name back, where nothing else has it.
 * - `abandoned-step-00000120`, on its way to `.abandoned-step-...`. The next writer takes it there.
 * - `old-...`, being removed, and `spare` (store/recycle.h). They go. */
#pragma once

#include "store/store.h"

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
