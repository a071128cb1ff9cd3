/* The weight map of an index, such as model.safetensors.index.json: which file of a folder contains
 * which tensor. Its names are not trusted until they have been checked here. After the check, a
 * file's name cannot lead out of the folder. Targets of links are checked when files are opened. */
#pragma once

#include <stddef.h>

#include "dcp/error.h"
#include "safetensors/header.h"

typedef struct safetensors_place {
    char *tensor; /* the name */
    size_t file;  /* index in `files` */
} safetensors_place;

typedef struct safetensors_map {
    safetensors_place *places; /* sorted by name, without duplicates */
    size_t n;
    char **files; /* each once, in order of appearance; plain names in this folder */
    size_t n_files;
} safetensors_map;

/* Parses the text of the index `path` (for messages). On failure *out is unchanged. */
int safetensors_map_parse(const char *path, safetensors_value text, safetensors_map *out,
                          dcp_error *err);
void safetensors_map_free(safetensors_map *map);
/* Returns NULL if the index does not name the tensor. */
const safetensors_place *safetensors_map_find(const safetensors_map *map, const char *tensor);
