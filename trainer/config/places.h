/* The directories and files that a configuration names. */
#pragma once

#include "config/config.h"

/* DCP_ERR_ARG: two stores are one directory; braces in a store's path or domain hold what is
 * unknown; checkpoint.resume is neither there nor a word. */
int config_places_check(const config *c, dcp_error *err);

/* DCP_ERR_ARG: a path or domain has an {env:NAME} that this rank's environment does not have. */
int config_places_check_environment(const config *c, dcp_error *err);

/* Whether a run could begin to write the file, in a folder that is there or that its stores bring;
 * nothing is made. DCP_ERR_ARG, with a message that begins with `what`. */
int config_places_check_writable(const config *c, const char *what, const char *path,
                                 dcp_error *err);

/* Whether so many ranks on so many hosts are enough for the stores' redundancy. */
int config_places_check_hosts(const config *c, int hosts, int world, dcp_error *err);

/* Whether a store's directory cannot be used whatever is tried: this user may not write to it, or
 * to the nearest one above it that is there. */
int config_places_are_closed(const config *c);

/* The same as an error, DCP_ERR_ARG, that names key and directory. */
int config_places_check_open(const config *c, dcp_error *err);
