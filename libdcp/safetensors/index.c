/* Parsing an index. Its names are hostile until checked here: a file's name leads nowhere out of
 * the folder by itself; where links lead is checked when files are opened. */
#include "safetensors/index.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/fail.h"
#include "safetensors/header.h"

#define MAX_FILE_BYTES (4u << 10)   /* a file's name as JSON */
#define MAX_OTHER_BYTES (64u << 10) /* "metadata", which nothing is taken from */

typedef struct file_key {
    const char *name;
    size_t number;
} file_key;

typedef struct parsing {
    const char *path;
    st_index index;
    size_t room;
    void *by_name; /* a tree of file_key */
    int has_map;
} parsing;

static int by_name(const void *a, const void *b) {
    return strcmp(((const file_key *)a)->name, ((const file_key *)b)->name);
}

static int by_tensor(const void *a, const void *b) {
    return strcmp(((const st_place *)a)->tensor, ((const st_place *)b)->tensor);
}

void st_index_free(st_index *index) {
    for (size_t i = 0; i < index->n; i++) free(index->places[i].tensor);
    for (size_t i = 0; i < index->n_files; i++) free(index->files[i]);
    free(index->places);
    free(index->files);
}

/* Doubles at powers of two. */
static void *grown(void *list, size_t n, size_t size) {
    return n & (n - 1) ? list : realloc(list, (n ? 2 * n : 1) * size);
}

static int add_file(parsing *p, const char *name, size_t *number, dcp_error *err) {
    st_index *index = &p->index;
    if (index->n_files == ST_MAX_FILES)
        return core_fail(err, DCP_ERR_UNSUPPORTED, "%s: more than %u files", p->path, ST_MAX_FILES);
    char **files = grown(index->files, index->n_files, sizeof *files);
    if (files) index->files = files;
    char *copy = files ? strdup(name) : NULL;
    file_key *key = copy ? malloc(sizeof *key) : NULL;
    if (key) *key = (file_key){copy, index->n_files};
    if (!key || !tsearch(key, &p->by_name, by_name)) {
        free(key);
        free(copy);
        return core_fail_memory(err, strlen(name));
    }
    *number = index->n_files;
    files[index->n_files++] = copy;
    return DCP_OK;
}

static int find_file(parsing *p, const char *name, size_t *number, dcp_error *err) {
    const file_key wanted = {.name = name};
    file_key *const *found = tfind(&wanted, &p->by_name, by_name);
    if (!found) return add_file(p, name, number, err);
    *number = (*found)->number;
    return DCP_OK;
}

static int add_place(parsing *p, const char *tensor, const char *file, dcp_error *err) {
    st_index *index = &p->index;
    size_t number = 0;
    if (!file || !*file || strchr(file, '/') || !strcmp(file, ".") || !strcmp(file, ".."))
        return core_fail(err, DCP_ERR_CORRUPT,
                         "%s: tensor '%s' is not in a file of this folder: '%s'", p->path, tensor,
                         file ? file : "");
    if (index->n == ST_MAX_TENSORS)
        return core_fail(err, DCP_ERR_UNSUPPORTED, "%s: more than %u tensors", p->path,
                         ST_MAX_TENSORS);
    int status = find_file(p, file, &number, err);
    if (status != DCP_OK) return status;
    st_place *places = grown(index->places, index->n, sizeof *places);
    if (places) index->places = places;
    char *copy = places ? strdup(tensor) : NULL;
    if (!copy) return core_fail_memory(err, strlen(tensor) + 1);
    places[index->n++] = (st_place){copy, number};
    return DCP_OK;
}

static int take_place(void *ctx, const char *tensor, st_value value, dcp_error *err) {
    parsing *p = ctx;
    char what[ST_WHAT];
    json_t *json;
    snprintf(what, sizeof what, "%s: the file of tensor '%.1024s'", p->path, tensor);
    int status = st_value_parse(what, value, MAX_FILE_BYTES, &json, err);
    if (status != DCP_OK) return status;
    status = add_place(p, tensor, json_string_value(json), err);
    json_decref(json);
    return status;
}

static int take_member(void *ctx, const char *name, st_value value, dcp_error *err) {
    parsing *p = ctx;
    char what[ST_WHAT];
    json_t *json;
    snprintf(what, sizeof what, "%s: %.1024s", p->path, name);
    if (strcmp(name, "weight_map")) {
        int status = st_value_parse(what, value, MAX_OTHER_BYTES, &json, err);
        if (status == DCP_OK) json_decref(json);
        return status;
    }
    if (p->has_map) return core_fail(err, DCP_ERR_CORRUPT, "%s: duplicate weight_map", p->path);
    if (*value.text != '{') return DCP_OK;
    p->has_map = 1;
    return st_members(what, value, take_place, p, err);
}

static int sort_places(const parsing *p, dcp_error *err) {
    st_place *places = p->index.places;
    if (!p->has_map) return core_fail(err, DCP_ERR_CORRUPT, "%s: has no weight_map", p->path);
    if (p->index.n) qsort(places, p->index.n, sizeof *places, by_tensor);
    for (size_t i = 1; i < p->index.n; i++)
        if (strcmp(places[i - 1].tensor, places[i].tensor) == 0)
            return core_fail(err, DCP_ERR_CORRUPT, "%s: duplicate tensor '%s'", p->path,
                             places[i].tensor);
    return DCP_OK;
}

int st_index_parse(const char *path, st_value text, st_index *out, dcp_error *err) {
    parsing p = {.path = path};
    int status = st_members(path, text, take_member, &p, err);
    if (status == DCP_OK) status = sort_places(&p, err);
    tdestroy(p.by_name, free);
    if (status != DCP_OK)
        st_index_free(&p.index);
    else
        *out = p.index;
    return status;
}

const st_place *st_index_find(const st_index *index, const char *tensor) {
    const st_place wanted = {.tensor = (char *)(uintptr_t)tensor};
    return index->n ? bsearch(&wanted, index->places, index->n, sizeof wanted, by_tensor) : NULL;
}
