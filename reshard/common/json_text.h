/* JSON for people: indented, and reals as short as possible. */
#pragma once

#include <jansson.h>
#include <stdio.h>

/* `value` with jansson's `flags` besides; malloc'd, NULL: out of memory. */
char *json_text(const json_t *value, size_t flags);

/* Writes `value` and a newline, with jansson's `flags` besides. 0, or -1 with errno. */
int json_text_write(const json_t *value, size_t flags, FILE *out);

/* The same, sorted by keys, as the new file `path`; releases `value`. An exit status. */
int json_text_write_file(json_t *value, const char *path);
