/* The names of steps' folders, and the files in them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "dcp/error.h"
#include "dcp/save.h"
#include "dcp/store.h"

/* The names of steps' folders, and the steps of a directory. */

/* Returns true if the folder's name is the name of a complete, partial or abandoned step. *step
 * becomes the number in the name. */
bool format_name_read(const char *path, uint64_t *step);

/* Like dcp_steps_list, but for an open directory, which may have been moved. `dir` is its path, for
 * messages. */
int format_list_at(int dir_fd, const char *dir, dcp_step **out, size_t *n_out, dcp_error *err);

/* Lists the folders in `dir` that have a complete step's name, but are no steps
 * (format_folder_is_foreign). */
int format_list_foreign(const char *dir, dcp_step **out, size_t *n_out, dcp_error *err);

/* Returns the number of the newest complete step below `limit`, plus 1; 0 if there is none. `steps`
 * must be in ascending order. */
uint64_t format_list_newest_below(const dcp_step *steps, size_t n, uint64_t limit);

/* Collective. *next becomes the largest result of format_list_newest_below on any rank. */
int format_list_newest_of_ranks(dcp_comm *comm, const dcp_step *steps, size_t n, uint64_t limit,
                                uint64_t *next, dcp_error *err);

/* Writes the end of the message which says that no step exists. If steps in `dir` were set aside by
 * a run that went back and has saved nothing since, the text names the newest of these steps and
 * how to continue from it. Otherwise it names the newest folder that format_list_foreign lists, or
 * is "". */
void format_list_describe_others(const char *dir, char *text, size_t size);

/* Writes "step-00000120", preceded by `prefix` ("", ".tmp-", ".abandoned-"), into name[64]. */
void format_name_write(char *name, const char *prefix, uint64_t step);

/* Writes "dir/step-00000120", with the prefix before the step's name, into path[PATH_MAX]. Returns
 * DCP_ERR_ARG if it is too long. */
int format_name_path(const char *dir, const char *prefix, uint64_t step, char *path,
                     dcp_error *err);

/* Finds the path of the newest complete step's folder in dir. Returns DCP_ERR_NOT_FOUND if there is
 * none. */
int format_list_newest(const char *dir, char *path /* PATH_MAX */, uint64_t *step, dcp_error *err);

/* Functions that determine which files a step's folder has, and which are missing. A file that
 * cannot be looked up counts neither as present nor as missing: the status is DCP_ERR_IO or
 * DCP_ERR_NO_MEMORY (io/entries.h). */

/* Finds the layout and the number of files of a step's folder. Returns DCP_ERR_CORRUPT if a file is
 * missing, DCP_ERR_NOT_FOUND if the folder is missing. */
int format_folder_files(const char *folder, size_t *n, dcp_layout *layout, dcp_error *err);

/* Returns the path of file i of n, malloc'd; NULL: out of memory. */
char *format_folder_path(const char *folder, dcp_layout layout, size_t i, size_t n);

/* Returns DCP_ERR_CORRUPT if the folder has no entry with the name of file i of n. Does not check
 * that the entry is a valid file: opening it does. */
int format_folder_check_file(const char *folder, dcp_layout layout, size_t i, size_t n,
                             dcp_error *err);

/* *world becomes the largest number n below `below` for which the folder has at least one file
 * "shard-...-of-n.h5"; 0 if there is none. */
int format_folder_world(const char *folder, int below, int *world, dcp_error *err);

/* Marks in here[world] which of the `world` shards the folder has, and counts them. */
int format_folder_shards(const char *folder, int world, unsigned char *here, int *n,
                         dcp_error *err);

/* Calls fn for each entry of the folder that does not belong to a step with `files` files. */
int format_folder_surplus(const char *folder, dcp_layout layout, size_t files,
                          void (*fn)(void *ctx, const char *name), void *ctx, dcp_error *err);

/* *is becomes true if the entry `name` of the open directory, a folder with a step's name, holds
 * something, but none of the files that the library writes for a step: somebody else made it. An
 * empty folder is not foreign: it is a step that has lost its files. If *is could not be
 * determined, it is false, and the function fails. `dir` is the directory's path, for messages. */
int format_folder_is_foreign(int dir_fd, const char *name, const char *dir, bool *is,
                             dcp_error *err);
