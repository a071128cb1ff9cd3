/* JSON for people: indented, reals as short as they can be. */
#ifndef RESHARD_JSON_TEXT_H
#define RESHARD_JSON_TEXT_H

#include <jansson.h>
#include <stdio.h>

#include "programs/program.h"

/* `value` with jansson's `flags` besides; malloc'd, NULL: out of memory. */
char *json_text(const json_t *value, size_t flags);

/* Writes `value` and a newline, with jansson's `flags` besides. 0, or -1 with errno. */
int json_text_write(const json_t *value, size_t flags, FILE *out);

#endif
