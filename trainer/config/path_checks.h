/* Checks the directories and files that a configuration names. */
#pragma once

#include <stdbool.h>

#include "config/config.h"

/* Returns DCP_ERR_ARG if two stores are the same directory, if braces in a store's path or domain
 * contain something unknown, or if checkpoint.resume is a missing path that resembles one of the
 * key's words, such as "atuo". */
int config_paths_check(const config *c, dcp_error *err);

/* Returns DCP_ERR_ARG if a path or domain contains an {env:NAME} that this rank's environment
 * lacks. */
int config_paths_check_environment(const config *c, dcp_error *err);

/* Checks whether a run could write the file, without creating anything. The folder must exist,
 * unless the run's stores create it. Returns DCP_ERR_ARG if the run could not write it, or
 * DCP_ERR_IO if that may pass (program_path_is_wrong); the message begins with `what`. */
int config_paths_check_writable(const config *c, const char *what, const char *path,
                                dcp_error *err);

/* Returns DCP_ERR_ARG if `world` ranks on `hosts` hosts are not enough for the stores'
 * redundancy. */
int config_paths_check_hosts(const config *c, int hosts, int world, dcp_error *err);

/* Returns true if no retry can make a store's directory usable, for example because this user may
 * not write to the directory, or to its nearest existing parent. */
bool config_paths_are_closed(const config *c);

/* Returns DCP_ERR_ARG if config_paths_are_closed; the message names the key and the directory. */
int config_paths_check_open(const config *c, dcp_error *err);
