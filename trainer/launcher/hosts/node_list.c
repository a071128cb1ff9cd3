#include "launcher/hosts/node_list.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 256, NAME_DIGITS = 9 };

typedef struct node_visit {
    size_t left; /* names that may still come */
    int (*take)(void *ctx, const char *name);
    void *ctx;
    char name[NAME_BYTES]; /* what stands before the place that is looked at */
} node_visit;

static int visit_rest(node_visit *v, size_t length, const char *at, const char *end);

/* A number of at most NAME_DIGITS digits; how many it has, 0: none. */
static size_t read_digits(const char *at, unsigned long *value) {
    const size_t n = strspn(at, "0123456789");
    if (n > NAME_DIGITS) return 0;
    *value = strtoul(at, NULL, 10);
    return n;
}

/* "1-3" or "07", up to `comma`: the numbers keep the width of the first one. */
static int visit_range(node_visit *v, size_t length, const char *range, const char *comma,
                       const char *rest, const char *end) {
    unsigned long first, last;
    const size_t width = read_digits(range, &first);
    if (width == 0) return -1;
    last = first;
    range += width;
    if (*range == '-') {
        const size_t n = read_digits(++range, &last);
        if (n == 0) return -1;
        range += n;
    }
    if (range != comma || last < first) return -1;
    for (unsigned long i = first; i <= last; i++) {
        const int n = snprintf(v->name + length, sizeof v->name - length, "%0*lu", (int)width, i);
        if (n < 0 || (size_t)n >= sizeof v->name - length) return -1;
        if (visit_rest(v, length + (size_t)n, rest, end) != 0) return -1;
    }
    return 0;
}

/* v->name has `length` bytes of a name; what follows goes from `at` to `end`. */
static int visit_rest(node_visit *v, size_t length, const char *at, const char *end) {
    while (at < end && *at != '[') {
        if (length + 1 >= sizeof v->name || *at == ']' || isspace((unsigned char)*at)) return -1;
        v->name[length++] = *at++;
    }
    if (at == end) {
        v->name[length] = '\0';
        if (length == 0 || v->left == 0) return -1;
        v->left--;
        return v->take(v->ctx, v->name);
    }
    const char *close = memchr(at, ']', (size_t)(end - at));
    if (!close) return -1;
    while (at < close) { /* it stands on '[' or ',' */
        const char *range = at + 1;
        at = range + strcspn(range, ",]");
        if (visit_range(v, length, range, at, close + 1, end) != 0) return -1;
    }
    return 0;
}

/* The comma that ends the first name, or the end; those in brackets end none. */
static const char *end_of_name(const char *at) {
    int inside = 0;
    for (; *at && (inside || *at != ','); at++) {
        if (*at == '[') inside = 1;
        if (*at == ']') inside = 0;
    }
    return at;
}

int launcher_node_list_visit(const char *list, size_t max, int (*take)(void *ctx, const char *name),
                             void *ctx) {
    node_visit v = {.left = max, .take = take, .ctx = ctx};
    for (const char *at = list;; at++) {
        const char *end = end_of_name(at);
        if (visit_rest(&v, 0, at, end) != 0) return -1;
        if (*end == '\0') return 0;
        at = end;
    }
}

long launcher_node_list_count(const char *counts, size_t i) {
    for (const char *at = counts;;) {
        unsigned long value, times = 1;
        size_t n = read_digits(at, &value);
        if (n == 0) return -1;
        at += n;
        if (strncmp(at, "(x", 2) == 0) {
            n = read_digits(at + 2, &times);
            at += 2 + n;
            if (n == 0 || *at++ != ')') return -1;
        }
        if (i < times || *at == '\0') return (long)value;
        i -= times;
        if (*at++ != ',') return -1;
    }
}
