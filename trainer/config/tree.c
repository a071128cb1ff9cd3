#include "config/tree.h"

#include <string.h>

#include "config/schema.h"

json_t *config_at(const json_t *tree, const char *path) {
    char part[CONFIG_PATH_MAX];
    const json_t *node = tree;
    for (const char *from = path; node;) {
        const size_t length = strcspn(from, ".");
        memcpy(part, from, length);
        part[length] = '\0';
        node = json_object_get(node, part);
        if (from[length] == '\0') return (json_t *)node;
        from += length + 1;
    }
    return NULL;
}

uint64_t config_count(const json_t *tree, const char *path) {
    return (uint64_t)json_integer_value(config_at(tree, path));
}

double config_number(const json_t *tree, const char *path) {
    return json_number_value(config_at(tree, path));
}

const char *config_text(const json_t *tree, const char *path) {
    return json_string_value(config_at(tree, path));
}

int config_is_true(const json_t *tree, const char *path) {
    return json_is_true(config_at(tree, path));
}
