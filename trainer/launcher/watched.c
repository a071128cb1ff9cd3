#include "launcher/watched.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/json_read.h"

/* A directory of an override: what is a JSON string, else the characters themselves. */
static json_t *dir_of_override(const char *text) {
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    if (json_is_string(value)) return value;
    json_decref(value);
    return json_string(text);
}

/* What the file or an override says of the directory and the stores. */
typedef struct found_stores {
    json_t *dir, *stores;
} found_stores;

static void replace(json_t **old, json_t *with) {
    if (!with) return;
    json_decref(*old);
    *old = with;
}

static void take_override(found_stores *f, const char *argument) {
    static const char dir[] = "checkpoint.dir=", stores[] = "checkpoint.stores=";
    if (strncmp(argument, dir, sizeof dir - 1) == 0)
        replace(&f->dir, dir_of_override(argument + sizeof dir - 1));
    if (strncmp(argument, stores, sizeof stores - 1) == 0)
        replace(&f->stores, json_loads(argument + sizeof stores - 1, 0, NULL));
}

/* As dcp-train reads it, which passes over a mark of UTF-8. */
static json_t *load_config(const char *path) {
    char begin[3];
    FILE *file = fopen(path, "re");
    if (!file) return NULL;
    if (!program_json_mark(begin, fread(begin, 1, sizeof begin, file))) rewind(file);
    json_t *config = json_loadf(file, 0, NULL);
    fclose(file);
    return config;
}

static void take_config(found_stores *f, const char *path) {
    json_t *config = load_config(path);
    const json_t *checkpoint = json_object_get(config, "checkpoint");
    json_t *dir = json_object_get(checkpoint, "dir");
    if (config && !f->dir) f->dir = json_is_string(dir) ? json_incref(dir) : json_string("ckpt");
    if (!f->stores) f->stores = json_incref(json_object_get(checkpoint, "stores"));
    json_decref(config);
}

static void add(launcher_watched *dirs, const char *path) {
    char **more = path ? realloc(dirs->at, (dirs->n + 1) * sizeof *more) : NULL;
    if (!more) return;
    dirs->at = more;
    if ((dirs->at[dirs->n] = strdup(path))) dirs->n++;
}

int launcher_watched_is_train(const char *program) {
    const char *slash = strrchr(program, '/');
    return strcmp(slash ? slash + 1 : program, "dcp-train") == 0;
}

char *const *launcher_watched_find_train(char *const *program) {
    while (*program && !launcher_watched_is_train(*program)) program++;
    return *program ? program : NULL;
}

void launcher_watched_find(launcher_watched *dirs, const char *watch, char *const *program) {
    found_stores f = {0};
    *dirs = (launcher_watched){0};
    char *const *train = launcher_watched_find_train(program);
    if (train) {
        for (char *const *arg = train + 1; *arg; arg++) take_override(&f, *arg);
        for (char *const *arg = train + 1; *arg && (!f.dir || !f.stores); arg++)
            if (!strchr(*arg, '=') && (*arg)[0] != '-') take_config(&f, *arg);
    }
    add(dirs, watch ? watch : json_string_value(f.dir));
    const json_t *store;
    size_t i;
    if (dirs->n) /* else it is no configuration */
        json_array_foreach(f.stores, i, store) {
            const char *redundancy = json_string_value(json_object_get(store, "redundancy"));
            add(dirs, json_string_value(json_object_get(store, "path")));
            dirs->has_redundancy |= redundancy && strcmp(redundancy, "none") != 0;
        }
    json_decref(f.dir);
    json_decref(f.stores);
}

void launcher_watched_free(launcher_watched *dirs) {
    for (size_t i = 0; i < dirs->n; i++) free(dirs->at[i]);
    free(dirs->at);
    *dirs = (launcher_watched){0};
}
