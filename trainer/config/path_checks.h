/* Checks the directories and files that a configuration names. */
#pragma once

#include "config/config.h"

/* Returns DCP_ERR_ARG if two stores are the same directory, if braces in a store's path or domain
 * contain something unknown, or if checkpoint.resume is neither an existing path nor a word. */
int config_paths_check(const config *c, dcp_error *err);

/* Returns DCP_ERR_ARG if a path or domain contains an {env:NAME} that this rank's environment
 * lacks. */
int config_paths_check_environment(const config *c, dcp_error *err);

/* Checks whether a run could create the file, in a folder that exists or that its stores will
 * create; creates nothing. Returns DCP_ERR_ARG, with a message that begins with `what`. */
int config_paths_check_writable(const config *c, const char *what, const char *path,
                                dcp_error *err);

/* Checks whether this number of ranks on this number of hosts is enough for the stores'
 * redundancy. */
int config_paths_check_hosts(const config *c, int hosts, int world, dcp_error *err);

/* Returns true if no retry can make a store's directory usable: this user may not write to it, or
 * to its nearest existing parent. */
int config_paths_are_closed(const config *c);

/* Makes the same check, and returns it as an error, DCP_ERR_ARG, that names key and directory. */
int config_paths_check_open(const config *c, dcp_error *err);
