/* Reading a tree of keys by dotted paths. */
#ifndef TRAINER_CONFIG_TREE_H
#define TRAINER_CONFIG_TREE_H

#include <jansson.h>
#include <stdint.h>

/* The value at "a.b.c"; NULL where there is none. */
json_t *config_at(const json_t *tree, const char *path);

uint64_t config_count(const json_t *tree, const char *path);   /* null: 0 */
double config_number(const json_t *tree, const char *path);    /* null: 0 */
const char *config_text(const json_t *tree, const char *path); /* null: NULL */
int config_is_true(const json_t *tree, const char *path);

#endif
