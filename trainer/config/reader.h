/* Makes a checked configuration from a file and overrides, and converts it to text that rank 0 can
 * send to the others. */
#pragma once

#include "config/config.h"

/* Reads the file, applies the overrides, checks everything and fills in the defaults, for `world`
 * ranks. An override is "key.path=VALUE"; a VALUE that is not JSON is a string. The message of an
 * error names the full path of the key, and the file or the command line as the place where it is
 * set. If there are several mistakes, the message gives only their number. *lines receives text for
 * people, or NULL; free it with free(). After an error, it is the list of mistakes, to be printed
 * after the message. Otherwise, it reports how keys were understood, in one line for each kind of
 * finding. */
int config_load(const char *path, char *const *overrides, int n_overrides, int world, config **out,
                char **lines, dcp_error *err);
/* Sets checkpoint.resume=auto and checkpoint.overwrite=false. */
int config_resume_newest(config *c, dcp_error *err);
/* Sets checkpoint.take_over=true. */
int config_take_over(config *c, dcp_error *err);

/* Converts a configuration to text for the other ranks, and back. Free the text with free(). */
int config_pack(const config *c, char **text, dcp_error *err);
int config_unpack(const char *text, config **out, dcp_error *err);
