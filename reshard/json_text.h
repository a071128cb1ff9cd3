/* JSON for people: indented, reals as short as they can be. */
#ifndef RESHARD_JSON_TEXT_H
#define RESHARD_JSON_TEXT_H

#include <jansson.h>
#include <stdio.h>

/* `value` with jansson's `flags` besides; malloc'd, NULL: out of memory. */
char *json_text(const json_t *value, size_t flags);

/* Writes `value` and a newline, with jansson's `flags` besides. 0, or -1 with errno. */
int json_text_write(const json_t *value, size_t flags, FILE *out);

/* A path of the command line that JSON can hold: 0, or CLI_USAGE, having said that it can't. */
int json_text_check(const char *path);

#endif
