/* Which key was meant: the one at the smallest edit distance. A key of the same name in another
 * group counts as one edit, since a wrong place is as likely a slip as a wrong letter. */
#include "schema.h"

#include <string.h>

enum { LONGEST = CONFIG_PATH_MAX }; /* what is longer than that resembles no key anyway */

static size_t min3(size_t a, size_t b, size_t c) {
    const size_t ab = a < b ? a : b;
    return ab < c ? ab : c;
}

/* One row of the table at a time. */
size_t config_distance(const char *a, const char *b) {
    size_t row[LONGEST + 1];
    const size_t n = strnlen(b, LONGEST);
    for (size_t j = 0; j <= n; j++) row[j] = j;
    for (size_t i = 0; a[i] && i < LONGEST; i++) {
        size_t diagonal = row[0];
        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            const size_t above = row[j + 1];
            row[j + 1] = min3(above + 1, row[j] + 1, diagonal + (a[i] != b[j]));
            diagonal = above;
        }
    }
    return row[n];
}

static const char *last_part(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

typedef struct search {
    const char *path;
    char *best; /* [CONFIG_PATH_MAX] */
    size_t least;
} search;

static void consider(search *s, const char *candidate, size_t length) {
    char name[CONFIG_PATH_MAX];
    memcpy(name, candidate, length);
    name[length] = '\0';
    const size_t whole = config_distance(s->path, name);
    const size_t moved = config_distance(last_part(s->path), last_part(name)) + 1;
    const size_t d = whole < moved ? whole : moved;
    if (d >= s->least) return;
    s->least = d;
    memcpy(s->best, name, length + 1);
}

void config_key_nearest(const char *path, char best[CONFIG_PATH_MAX]) {
    search s = {.path = path, .best = best, .least = (size_t)-1};
    for (size_t i = 0; i < config_keys_count; i++) {
        const char *key = config_keys[i].path;
        consider(&s, key, strlen(key));
        for (const char *dot = strchr(key, '.'); dot; dot = strchr(dot + 1, '.'))
            consider(&s, key, (size_t)(dot - key));
    }
}
