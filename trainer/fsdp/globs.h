/* Globs of parameter names, as fnmatch(3) without flags reads them: `*` is any text. */
#ifndef TRAINER_FSDP_GLOBS_H
#define TRAINER_FSDP_GLOBS_H

#include <jansson.h>

#include "fsdp/layout.h"

/* Whether one of the list's globs matches. */
int globs_match(const json_t *globs, const char *name);

/* DCP_ERR_ARG names the key and a glob that matches no parameter: a slip that would go unnoticed
 * for a whole run. */
int globs_check(const fsdp_layout *layout, const char *key, const json_t *globs, dcp_error *err);

#endif
