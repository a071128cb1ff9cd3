/* The entries of these lists are small objects with their own keys, so they are checked here and
 * not by the table of keys in schema.c. */
#include "config/lists.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "programs/fail.h"

#define MOST_STORES (DCP_MAX_TIERS - 1) /* checkpoint.dir is an additional store */
#define MOST_LOST 16                    /* the largest K of rs(K) */
#define MAX_INT 2147483647
#define MOST_STRIPES 2000 /* the limit of dcp_store_options */

/* Returns NULL if the value of an entry's key is valid, "" if the key is unknown, otherwise a text
 * that says what the key requires. */
typedef const char *check_value(const char *key, const json_t *value);

/* What a list may contain. Each entry requires a path. */
typedef struct list_rules {
    const char *kind, *keys; /* an entry's kind and keys, for messages */
    size_t most;
    check_value *what_is_wrong;
} list_rules;

static int check_entry(const list_rules *rules, const char *path, size_t i, const json_t *entry,
                       dcp_error *err) {
    const char *key;
    json_t *value;
    if (!json_is_object(entry))
        return core_fail(err, DCP_ERR_ARG,
                         "%s[%zu]: not an object; an object with keys is required", path, i);
    json_object_foreach((json_t *)entry, key, value) {
        const char *wanted = rules->what_is_wrong(key, value);
        if (wanted && !*wanted)
            return core_fail(err, DCP_ERR_ARG,
                             "%s[%zu].%.100s: unknown key; the keys of a %s are %s", path, i, key,
                             rules->kind, rules->keys);
        if (wanted)
            return core_fail(err, DCP_ERR_ARG, "%s[%zu].%s is not %s", path, i, key, wanted);
        char what[96];
        snprintf(what, sizeof what, "%s[%zu].path", path, i);
        if (strcmp(key, "path") == 0 && core_path_check(what, json_string_value(value), err))
            return DCP_ERR_UNSUPPORTED;
    }
    if (json_object_get(entry, "path")) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG, "%s[%zu].path: missing; it has no default: set it", path, i);
}

static int check_list(const list_rules *rules, const char *path, const json_t *list,
                      dcp_error *err) {
    const size_t n = json_array_size(list);
    if (n > rules->most)
        return core_fail(err, DCP_ERR_ARG, "%s: %zu %ss; at most %zu are possible", path, n,
                         rules->kind, rules->most);
    int status = DCP_OK;
    for (size_t i = 0; i < n && status == DCP_OK; i++)
        status = check_entry(rules, path, i, json_array_get(list, i), err);
    return status;
}

static const char *what_is_wrong_in_source(const char *key, const json_t *value) {
    const double weight = json_number_value(value);
    if (strcmp(key, "path") == 0)
        return json_string_length(value) > 0 ? NULL : "a non-empty string";
    if (strcmp(key, "weight") == 0)
        return json_is_number(value) && weight > 0 && weight <= 1e6 ? NULL
                                                                    : "a number above 0, up to 1e6";
    return "";
}

int config_sources_check(const char *path, const json_t *list, dcp_error *err) {
    const list_rules rules = {.kind = "source",
                              .keys = "path and weight",
                              .most = CONFIG_MAX_SOURCES,
                              .what_is_wrong = what_is_wrong_in_source};
    return check_list(&rules, path, list, err);
}

size_t config_sources_fill(const json_t *list, config_source *out) {
    const size_t n = json_array_size(list);
    for (size_t i = 0; i < n; i++) {
        const json_t *entry = json_array_get(list, i), *weight = json_object_get(entry, "weight");
        out[i] = (config_source){json_string_value(json_object_get(entry, "path")),
                                 weight ? json_number_value(weight) : 1};
    }
    return n;
}

int config_stores_survivable(const char *redundancy) {
    if (!redundancy || strcmp(redundancy, "none") == 0) return 0;
    if (strcmp(redundancy, "partner") == 0) return 1;
    char text[sizeof "rs()" + 11];
    for (int lost = 1; lost <= MOST_LOST; lost++) {
        snprintf(text, sizeof text, "rs(%d)", lost);
        if (strcmp(redundancy, text) == 0) return lost;
    }
    return -1;
}

static bool is_redundancy(const json_t *value) {
    return json_is_string(value) && config_stores_survivable(json_string_value(value)) >= 0;
}

static bool is_within(const json_t *value, json_int_t least, json_int_t most) {
    return json_is_integer(value) && json_integer_value(value) >= least &&
           json_integer_value(value) <= most;
}

static const char *what_is_wrong_in_store(const char *key, const json_t *value) {
    if (strcmp(key, "path") == 0)
        return json_string_length(value) > 0 ? NULL : "a non-empty string";
    if (strcmp(key, "every") == 0)
        return is_within(value, 1, MAX_INT) ? NULL : "an integer from 1 to 2147483647";
    if (strcmp(key, "keep") == 0)
        return is_within(value, 0, MAX_INT) ? NULL : "an integer from 0 to 2147483647";
    if (strcmp(key, "redundancy") == 0)
        return is_redundancy(value) ? NULL : "none, partner or rs(1) to rs(16)";
    if (strcmp(key, "domain") == 0)
        return json_is_null(value) || json_string_length(value) > 0 ? NULL
                                                                    : "null, or a non-empty string";
    if (strcmp(key, "stripe_count") == 0)
        return is_within(value, -1, MOST_STRIPES) ? NULL : "an integer from -1 to 2000";
    if (strcmp(key, "stripe_bytes") == 0)
        return is_within(value, 0, UINT32_MAX) && json_integer_value(value) % STRIPE_UNIT == 0
                   ? NULL
                   : "a multiple of 65536 from 0 to 4294901760";
    return "";
}

int config_stores_check(const char *path, const json_t *list, dcp_error *err) {
    const list_rules rules = {
        .kind = "store",
        .keys = "path, every, keep, redundancy, domain, stripe_count and stripe_bytes",
        .most = MOST_STORES,
        .what_is_wrong = what_is_wrong_in_store};
    return check_list(&rules, path, list, err);
}

int config_stores_complete(json_t *list) {
    int failed = 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *defaults =
            json_pack("{s:i, s:i, s:s, s:n, s:i, s:i}", "every", 1, "keep", 2, "redundancy", "none",
                      "domain", "stripe_count", 0, "stripe_bytes", 0);
        failed |= json_object_update_missing(json_array_get(list, i), defaults);
        json_decref(defaults);
    }
    return failed ? -1 : 0;
}

size_t config_stores_fill(const json_t *list, const char *domain, dcp_tier *out) {
    const size_t n = json_array_size(list);
    for (size_t i = 0; i < n; i++) {
        const json_t *entry = json_array_get(list, i);
        out[i] = (dcp_tier){
            .size = sizeof(dcp_tier),
            .path = json_string_value(json_object_get(entry, "path")),
            .every = (uint64_t)json_integer_value(json_object_get(entry, "every")),
            .keep = (uint32_t)json_integer_value(json_object_get(entry, "keep")),
            .is_private = 1,
            .redundancy = json_string_value(json_object_get(entry, "redundancy")),
            .domain = json_string_value(json_object_get(entry, "domain")),
            .stripe_count = json_integer_value(json_object_get(entry, "stripe_count")),
            .stripe_bytes = (uint64_t)json_integer_value(json_object_get(entry, "stripe_bytes"))};
        if (!out[i].domain) out[i].domain = domain;
    }
    return n;
}
