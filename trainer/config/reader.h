/* From a file and overrides to a checked configuration, and from rank 0 to the others. */
#pragma once

#include "config/config.h"

/* Reads the file, applies the overrides ("key.path=value": a JSON value, else a string), checks
 * everything and fills in the defaults, for `world` ranks. The message names the file, or the
 * command line, and the key's full path; of several mistakes their number. *lines: text for people,
 * NULL for none, freed with free(): the mistakes, to go on the message with; or, of a file with
 * keys of DeepSpeed's that is taken, how they were understood, lines with a newline between them.
 */
int config_load(const char *path, char *const *overrides, int n_overrides, int world, config **out,
                char **lines, dcp_error *err);
/* Sets checkpoint.resume=auto and checkpoint.overwrite=false. */
int config_resume_newest(config *c, dcp_error *err);
/* Sets checkpoint.take_over=true. */
int config_take_over(config *c, dcp_error *err);

/* One text for the other ranks, and back. The text is freed with free(). */
int config_pack(const config *c, char **text, dcp_error *err);
int config_unpack(const char *text, config **out, dcp_error *err);
