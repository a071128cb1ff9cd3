/* The weight map of model.safetensors.index.json: which of a folder's files holds which tensor. */
#ifndef DCP_SAFETENSORS_INDEX_H
#define DCP_SAFETENSORS_INDEX_H

#include <stddef.h>

#include "safetensors/members.h"

#define ST_MAX_FILES 65536u

typedef struct st_place {
    char *tensor; /* the name */
    size_t file;  /* of `files` */
} st_place;

typedef struct st_index {
    st_place *places; /* ascending by name, each name once */
    size_t n;
    char **files; /* each once, in the order they came; plain names, of this folder */
    size_t n_files;
} st_index;

/* Parses the text of the index `path` (for messages). On failure *out holds nothing. */
int st_index_parse(const char *path, st_value text, st_index *out, dcp_error *err);
void st_index_free(st_index *index);
/* The place of a tensor; NULL where there is none. */
const st_place *st_index_find(const st_index *index, const char *tensor);

#endif
