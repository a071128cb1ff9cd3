/* The names of steps' folders, and the files in them. */
#pragma once

#include <stddef.h>

#include "dcp/error.h"
#include "dcp/save.h"
#include "dcp/store.h"

/* The names of steps' folders, and the steps of a directory. */

/* 1 where the folder is named as a step is, whatever state it is in, with the step of that name. */
int format_name_read(const char *path, uint64_t *step);

/* dcp_steps_list of an open directory, wherever that is by now; `dir` names it in messages. */
int format_list_at(int dir_fd, const char *dir, dcp_step **out, size_t *n_out, dcp_error *err);

/* One more than the newest complete step below `limit`, of steps in ascending order; 0: none. */
uint64_t format_list_newest_below(const dcp_step *steps, size_t n, uint64_t limit);

/* Collective: the same in *next, of the steps that any rank has. */
int format_list_newest_of_ranks(dcp_comm *comm, const dcp_step *steps, size_t n, uint64_t limit,
                                uint64_t *next, dcp_error *err);

/* What the message that there is no step ends with: where some were set aside in `dir`, by a run
 * that went back and has saved nothing since, the newest of them and how it is taken; else "". */
void format_list_tell_set_aside(const char *dir, char *text, size_t size);

/* "step-00000120" with the given prefix ("", ".tmp-", ".abandoned-") into name[64]. */
void format_name_write(char *name, const char *prefix, uint64_t step);

/* "dir/step-00000120", with such a prefix, into path[PATH_MAX]. DCP_ERR_ARG: it is too long. */
int format_name_path(const char *dir, const char *prefix, uint64_t step, char *path,
                     dcp_error *err);

/* The path of the newest complete step's folder in dir, or DCP_ERR_NOT_FOUND. */
int format_list_newest(const char *dir, char *path /* PATH_MAX */, uint64_t *step, dcp_error *err);

/* Which files a step's folder has, and which it should have. What could not be looked at is neither
 * there nor missing: DCP_ERR_IO or DCP_ERR_NO_MEMORY (io/look.h). */

/* Layout and number of files of a step's folder. DCP_ERR_CORRUPT: one is missing;
 * DCP_ERR_NOT_FOUND: the folder is. */
int format_folder_files(const char *folder, size_t *n, dcp_layout *layout, dcp_error *err);

/* The path of file i of n, malloc'd; NULL: out of memory. */
char *format_folder_path(const char *folder, dcp_layout layout, size_t i, size_t n);

/* DCP_ERR_CORRUPT: there is nothing of the name of file i of n. What it is shows when it is opened.
 */
int format_folder_check_file(const char *folder, dcp_layout layout, size_t i, size_t n,
                             dcp_error *err);

/* The largest number of shards, but less than `below`, of which the folder has some; 0: none. */
int format_folder_world(const char *folder, int below, int *world, dcp_error *err);

/* Marks in here[world] which shards of `world` the folder has, and counts them. */
int format_folder_shards(const char *folder, int world, unsigned char *here, int *n,
                         dcp_error *err);

/* Calls fn with each entry of the folder that is no part of a step of so many files. */
int format_folder_surplus(const char *folder, dcp_layout layout, size_t files,
                          void (*fn)(void *ctx, const char *name), void *ctx, dcp_error *err);
