/* Which files a step's folder has, and which it should have. What could not be looked at is neither
 * there nor missing: DCP_ERR_IO or DCP_ERR_NO_MEMORY (io/look.h). */
#pragma once

#include <stddef.h>

#include "dcp/error.h"
#include "dcp/save.h"

/* Layout and number of files of a step's folder. DCP_ERR_CORRUPT: one is missing;
 * DCP_ERR_NOT_FOUND: the folder is. */
int step_folder_files(const char *folder, size_t *n, dcp_layout *layout, dcp_error *err);

/* The path of file i of n, malloc'd; NULL: out of memory. */
char *step_folder_path(const char *folder, dcp_layout layout, size_t i, size_t n);

/* DCP_ERR_CORRUPT: there is nothing of the name of file i of n. What it is shows when it is opened.
 */
int step_folder_check_file(const char *folder, dcp_layout layout, size_t i, size_t n,
                           dcp_error *err);

/* The largest number of shards, but less than `below`, of which the folder has some; 0: none. */
int step_folder_world(const char *folder, int below, int *world, dcp_error *err);

/* Marks in here[world] which shards of `world` the folder has, and counts them. */
int step_folder_shards(const char *folder, int world, unsigned char *here, int *n, dcp_error *err);

/* Calls fn with each entry of the folder that is no part of a step of so many files. */
int step_folder_surplus(const char *folder, dcp_layout layout, size_t files,
                        void (*fn)(void *ctx, const char *name), void *ctx, dcp_error *err);
