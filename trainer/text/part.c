/* Parts of a tokenizer.json, and their members one by one. */
#include "text/part.h"

#include <string.h>

#include "programs/fail.h"

enum { MOST_DEPTH = 8 }; /* of Sequences in Sequences */

int text_part_fail(const text_part *part, int status, dcp_error *err, const char *fmt, ...) {
    char what[512];
    va_list args;
    va_start(args, fmt);
    core_format(what, sizeof what, fmt, args);
    va_end(args);
    return core_fail(err, status, "%s: %s%s%s: %s", part->file, part->key, part->type ? " " : "",
                     part->type ? part->type : "", what);
}

static int each(const text_part *part, const char *list, unsigned depth, text_part_fn fn, void *ctx,
                dcp_error *err) {
    text_part here = *part;
    if (!json_is_object(part->value))
        return text_part_fail(part, DCP_ERR_ARG, err, "it is not an object");
    here.type = json_string_value(json_object_get(part->value, "type"));
    if (!here.type) return text_part_fail(part, DCP_ERR_ARG, err, "it has no type");
    if (strcmp(here.type, "Sequence") != 0) return fn(ctx, &here, err);
    if (depth == MOST_DEPTH)
        return text_part_fail(&here, DCP_ERR_UNSUPPORTED, err, "it is in %d others", MOST_DEPTH);
    const json_t *members = json_object_get(part->value, list);
    if (!json_is_array(members))
        return text_part_fail(&here, DCP_ERR_ARG, err, "it has no list %s", list);
    for (size_t i = 0; i < json_array_size(members); i++) {
        const text_part member = {here.file, here.key, NULL, json_array_get(members, i)};
        const int status = each(&member, list, depth + 1, fn, ctx, err);
        if (status) return status;
    }
    return DCP_OK;
}

int text_part_each(const text_part *part, const char *list, text_part_fn fn, void *ctx,
                   dcp_error *err) {
    if (!part->value || json_is_null(part->value)) return DCP_OK;
    return each(part, list, 0, fn, ctx, err);
}

int text_part_flag(const text_part *part, const char *member, int absent, int *out,
                   dcp_error *err) {
    const json_t *value = json_object_get(part->value, member);
    if (value && !json_is_null(value) && !json_is_boolean(value))
        return text_part_fail(part, DCP_ERR_ARG, err, "%s is neither true nor false", member);
    *out = json_is_boolean(value) ? json_is_true(value) : absent;
    return DCP_OK;
}

int text_part_string(const text_part *part, const char *member, const char *absent,
                     const char **out, dcp_error *err) {
    const json_t *value = json_object_get(part->value, member);
    const int is_absent = !value || json_is_null(value);
    const char *text = is_absent ? absent : json_string_value(value);
    if (is_absent && !absent)
        return text_part_fail(part, DCP_ERR_ARG, err, "%s is missing", member);
    if (!text) return text_part_fail(part, DCP_ERR_ARG, err, "%s is not a string", member);
    if (!is_absent && strlen(text) != json_string_length(value))
        return text_part_fail(part, DCP_ERR_UNSUPPORTED, err, "%s holds a NUL", member);
    *out = text;
    return DCP_OK;
}

int text_part_number(const text_part *part, const char *member, json_int_t most, json_int_t *out,
                     dcp_error *err) {
    const json_t *value = json_object_get(part->value, member);
    *out = json_integer_value(value);
    if (json_is_integer(value) && *out >= 0 && *out <= most) return DCP_OK;
    return text_part_fail(part, DCP_ERR_ARG, err, "%s is not an integer of 0 to %lld", member,
                          (long long)most);
}
