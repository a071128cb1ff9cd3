/* The weight map of an index, model.safetensors.index.json or another: which of a folder's files
 * holds which tensor. Its names are hostile until they are checked here: a file's name leads
 * nowhere out of the folder by itself; where links lead is checked when files are opened. */
#pragma once

#include <stddef.h>

#include "dcp/error.h"
#include "safetensors/header.h"

typedef struct safetensors_place {
    char *tensor; /* the name */
    size_t file;  /* of `files` */
} safetensors_place;

typedef struct safetensors_map {
    safetensors_place *places; /* ascending by name, each name once */
    size_t n;
    char **files; /* each once, in the order they came; plain names, of this folder */
    size_t n_files;
} safetensors_map;

/* Parses the text of the index `path` (for messages). On failure *out holds nothing. */
int safetensors_map_parse(const char *path, safetensors_value text, safetensors_map *out,
                          dcp_error *err);
void safetensors_map_free(safetensors_map *map);
/* NULL: the index does not name it. */
const safetensors_place *safetensors_map_find(const safetensors_map *map, const char *tensor);
