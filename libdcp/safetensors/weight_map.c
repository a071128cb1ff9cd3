#include "safetensors/weight_map.h"

#include <search.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/fail.h"
#include "safetensors/header.h"

#define ST_MAX_FILES 65536u

#define MAX_FILE_BYTES (4u << 10)   /* a file's name as JSON */
#define MAX_OTHER_BYTES (64u << 10) /* "metadata", which is not used */

typedef struct file_key {
    const char *name;
    size_t number;
} file_key;

typedef struct map_parser {
    const char *path;
    safetensors_map index;
    void *by_name; /* a tree of file_key */
    bool has_map;
} map_parser;

static int compare_file_keys(const void *a, const void *b) {
    return strcmp(((const file_key *)a)->name, ((const file_key *)b)->name);
}

static int compare_weights(const void *a, const void *b) {
    return strcmp(((const safetensors_place *)a)->tensor, ((const safetensors_place *)b)->tensor);
}

void safetensors_map_free(safetensors_map *index) {
    for (size_t i = 0; i < index->n; i++) free(index->places[i].tensor);
    for (size_t i = 0; i < index->n_files; i++) free(index->files[i]);
    free(index->places);
    free(index->files);
}

/* Doubles the room of the list if it is full, that is, if its length n is 0 or a power of two. */
static void *grown(void *list, size_t n, size_t size) {
    return n & (n - 1) ? list : core_array_grow(list, n ? 2 * n : 1, size);
}

static int list_file(map_parser *p, const char *name, size_t *number, dcp_error *err) {
    safetensors_map *index = &p->index;
    if (index->n_files == ST_MAX_FILES)
        return core_fail_at(err, DCP_ERR_UNSUPPORTED, p->path, "more than %u files", ST_MAX_FILES);
    char **files = grown(index->files, index->n_files, sizeof *files);
    if (files) index->files = files;
    char *copy = files ? strdup(name) : NULL;
    file_key *key = copy ? malloc(sizeof *key) : NULL;
    if (key) *key = (file_key){copy, index->n_files};
    if (!key || !tsearch(key, &p->by_name, compare_file_keys)) {
        free(key);
        free(copy);
        return core_fail_memory(err, strlen(name));
    }
    *number = index->n_files;
    files[index->n_files++] = copy;
    return DCP_OK;
}

static int find_file(map_parser *p, const char *name, size_t *number, dcp_error *err) {
    const file_key wanted = {.name = name};
    file_key *const *found = tfind(&wanted, &p->by_name, compare_file_keys);
    if (!found) return list_file(p, name, number, err);
    *number = (*found)->number;
    return DCP_OK;
}

static int add_place(map_parser *p, const char *tensor, const char *file, dcp_error *err) {
    safetensors_map *index = &p->index;
    size_t number = 0;
    if (!file || !*file || strchr(file, '/') || !strcmp(file, ".") || !strcmp(file, ".."))
        return core_fail_tensor(core_fail_at(err, DCP_ERR_CORRUPT, p->path,
                                             "tensor '%s' is not in a file of this folder: '%s'",
                                             tensor, file ? file : ""),
                                tensor, err);
    if (index->n == ST_MAX_TENSORS)
        return core_fail_at(err, DCP_ERR_UNSUPPORTED, p->path, "more than %u tensors",
                            ST_MAX_TENSORS);
    int status = find_file(p, file, &number, err);
    if (status != DCP_OK) return status;
    safetensors_place *places = grown(index->places, index->n, sizeof *places);
    if (places) index->places = places;
    char *copy = places ? strdup(tensor) : NULL;
    if (!copy) return core_fail_memory(err, strlen(tensor) + 1);
    places[index->n++] = (safetensors_place){copy, number};
    return DCP_OK;
}

static int read_weight(void *ctx, const char *tensor, safetensors_value value, dcp_error *err) {
    map_parser *p = ctx;
    char what[ST_WHAT];
    json_t *json;
    snprintf(what, sizeof what, "%s: the file of tensor '%.1024s'", p->path, tensor);
    int status = safetensors_value_parse(what, value, MAX_FILE_BYTES, &json, err);
    if (status != DCP_OK) return status;
    status = add_place(p, tensor, json_string_value(json), err);
    json_decref(json);
    return status;
}

static int read_index_member(void *ctx, const char *name, safetensors_value value, dcp_error *err) {
    map_parser *p = ctx;
    char what[ST_WHAT];
    json_t *json;
    snprintf(what, sizeof what, "%s: %.1024s", p->path, name);
    if (strcmp(name, "weight_map")) {
        int status = safetensors_value_parse(what, value, MAX_OTHER_BYTES, &json, err);
        if (status == DCP_OK) json_decref(json);
        return status;
    }
    if (p->has_map) return core_fail_at(err, DCP_ERR_CORRUPT, p->path, "duplicate weight_map");
    if (*value.text != '{') return DCP_OK;
    p->has_map = true;
    return safetensors_members_visit(what, value, read_weight, p, err);
}

static int sort_places(const map_parser *p, dcp_error *err) {
    safetensors_place *places = p->index.places;
    if (!p->has_map) return core_fail_at(err, DCP_ERR_CORRUPT, p->path, "has no weight_map");
    if (p->index.n) qsort(places, p->index.n, sizeof *places, compare_weights);
    for (size_t i = 1; i < p->index.n; i++)
        if (strcmp(places[i - 1].tensor, places[i].tensor) == 0)
            return core_fail_tensor(core_fail_at(err, DCP_ERR_CORRUPT, p->path,
                                                 "duplicate tensor '%s'", places[i].tensor),
                                    places[i].tensor, err);
    return DCP_OK;
}

int safetensors_map_parse(const char *path, safetensors_value text, safetensors_map *out,
                          dcp_error *err) {
    map_parser p = {.path = path};
    int status = safetensors_members_visit(path, text, read_index_member, &p, err);
    if (status == DCP_OK) status = sort_places(&p, err);
    tdestroy(p.by_name, free);
    if (status != DCP_OK)
        safetensors_map_free(&p.index);
    else
        *out = p.index;
    return status;
}

const safetensors_place *safetensors_map_find(const safetensors_map *index, const char *tensor) {
    const safetensors_place wanted = {.tensor = (char *)(uintptr_t)tensor};
    return index->n ? bsearch(&wanted, index->places, index->n, sizeof wanted, compare_weights)
                    : NULL;
}
