/* Members are compared as deep as both are objects. What is shown of a key or value is bounded:
 * meta may have 16 MiB. */
#include <stdio.h>
#include <string.h>

#include "inspect/diff.h"

enum { KEY = 400, DEPTH = 32 };

typedef struct found {
    json_t *list;
    size_t most, n;
    int depth;
} found;

static void add(found *f, const char *key, json_t *a, json_t *b) {
    if (f->n++ >= f->most) return;
    json_t *entry = json_object();
    json_object_set_new(entry, "key", json_string(key));
    if (a) json_object_set(entry, "a", a);
    if (b) json_object_set(entry, "b", b);
    json_array_append_new(f->list, entry);
}

static void compare(found *f, const char *key, json_t *a, json_t *b);

/* A key that would be too long or too deep stands for all that is below it. */
static void compare_member(found *f, const char *key, const char *name, json_t *a, json_t *b) {
    char path[KEY];
    int length = snprintf(path, sizeof path, "%s%s%s", key, key[0] ? "." : "", name);
    if (length >= KEY || f->depth >= DEPTH) {
        if (!json_equal(a, b)) add(f, key, a, b);
        return;
    }
    f->depth++;
    compare(f, path, a, b);
    f->depth--;
}

static void compare(found *f, const char *key, json_t *a, json_t *b) {
    const char *name;
    json_t *value;
    if (json_equal(a, b)) return;
    if (!json_is_object(a) || !json_is_object(b)) {
        add(f, key, a, b);
        return;
    }
    json_object_foreach(a, name, value)
        compare_member(f, key, name, value, json_object_get(b, name));
    json_object_foreach(b, name, value) if (!json_object_get(a, name))
        compare_member(f, key, name, NULL, value);
}

json_t *diff_meta(const dcp_checkpoint *a, const dcp_checkpoint *b, size_t most, size_t *n) {
    found f = {.list = json_array(), .most = most};
    const char *texts[] = {dcp_checkpoint_json(a), dcp_checkpoint_json(b)};
    if (strcmp(texts[0], texts[1]) != 0) {
        json_t *x = json_loads(texts[0], 0, NULL), *y = json_loads(texts[1], 0, NULL);
        compare(&f, "", x, y);
        json_decref(x);
        json_decref(y);
    }
    *n = f.n;
    return f.list;
}
