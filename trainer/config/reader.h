/* Makes a checked configuration from a file and overrides, and sends it from rank 0 to the
 * others. */
#pragma once

#include "config/config.h"

/* Reads the file, applies the overrides, checks everything and fills in the defaults, for `world`
 * ranks. An override is "key.path=VALUE"; a VALUE that is not JSON is a string. The message of an
 * error names the full path of the key and where it is set, the file or the command line; if there
 * are several mistakes, it says how many. *lines: text for people, or NULL; free it with free().
 * After an error: the list of mistakes, to be printed after the message. Otherwise, if the file has
 * keys of DeepSpeed: how they were understood, one per line. */
int config_load(const char *path, char *const *overrides, int n_overrides, int world, config **out,
                char **lines, dcp_error *err);
/* Sets checkpoint.resume=auto and checkpoint.overwrite=false. */
int config_resume_newest(config *c, dcp_error *err);
/* Sets checkpoint.take_over=true. */
int config_take_over(config *c, dcp_error *err);

/* Converts a configuration to text for the other ranks, and back. Free the text with free(). */
int config_pack(const config *c, char **text, dcp_error *err);
int config_unpack(const char *text, config **out, dcp_error *err);
