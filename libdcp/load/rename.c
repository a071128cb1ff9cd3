/* Names that pairs with a star in common give to each other. */
#include "load/rename.h"

#include <string.h>

#include "core/fail.h"
#include "core/state_dict.h"

static int bad_rename(const dcp_rename *pair, const char *why, dcp_error *err) {
    return core_fail(err, DCP_ERR_ARG, "renames: {\"%s\", \"%s\"}: %s",
                     pair->from ? pair->from : "(null)", pair->to ? pair->to : "(null)", why);
}

static int stars(const char *pattern) {
    int n = 0;
    for (; *pattern; pattern++) n += *pattern == '*';
    return n;
}

int rename_check(const dcp_rename *pairs, size_t n, dcp_error *err) {
    for (size_t i = 0; i < n; i++) {
        const dcp_rename *pair = &pairs[i];
        if (!pair->from || !pair->to) return bad_rename(pair, "two names are needed", err);
        if (stars(pair->from) > 1 || stars(pair->to) > 1)
            return bad_rename(pair, "there can be one * on a side", err);
        if (stars(pair->from) != stars(pair->to))
            return bad_rename(pair, "a * has to be on both sides or on none", err);
    }
    return DCP_OK;
}

/* 1 where path is `pattern` with some text, of which *star is the beginning, for its star. */
static int match(const char *pattern, const char *path, const char **star, size_t *star_bytes) {
    const char *at = strchr(pattern, '*');
    *star = path;
    *star_bytes = 0;
    if (!at) return !strcmp(pattern, path);
    size_t before = (size_t)(at - pattern), after = strlen(at + 1), length = strlen(path);
    if (length < before + after || memcmp(path, pattern, before) ||
        memcmp(path + length - after, at + 1, after))
        return 0;
    *star = path + before;
    *star_bytes = length - before - after;
    return 1;
}

/* `pattern` with that text for its star; 0: longer than a path may be. */
static int fill(const char *pattern, const char *star, size_t star_bytes, path_text out) {
    size_t before = strcspn(pattern, "*"), length = strlen(pattern);
    size_t after = before < length ? length - before - 1 : 0;
    if (before + star_bytes + after > DCP_MAX_PATH) return 0;
    memcpy(out, pattern, before);
    if (before < length)
        memcpy(out + before, star, star_bytes);
    else
        star_bytes = 0;
    memcpy(out + before + star_bytes, pattern + length - after, after);
    out[before + star_bytes + after] = 0;
    return 1;
}

int rename_to_stored(const dcp_rename *pairs, size_t n, const char *path, path_text out,
                     dcp_error *err) {
    const char *star, *why = "it is longer than 1,024 bytes";
    size_t star_bytes;
    for (size_t i = 0; i < n; i++) {
        if (!match(pairs[i].from, path, &star, &star_bytes)) continue;
        if (fill(pairs[i].to, star, star_bytes, out) && core_path_valid(out, &why)) return DCP_OK;
        return core_fail(err, DCP_ERR_ARG,
                         "renames: {\"%s\", \"%s\"}: tensor %s gets no valid name: %s",
                         pairs[i].from, pairs[i].to, path, why);
    }
    strcpy(out, path);
    return DCP_OK;
}

int rename_from_stored(const dcp_rename *pair, const char *stored, path_text out) {
    const char *star;
    size_t star_bytes;
    return match(pair->to, stored, &star, &star_bytes) && fill(pair->from, star, star_bytes, out);
}
