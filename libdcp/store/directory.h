/* Inside a store's directory: what its leader does there, under the lock. Names are those of
 * entries of the directory; nothing here follows a symbolic link that it finds in it. */
#pragma once

#include <limits.h>

#include "dcp/error.h"

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
