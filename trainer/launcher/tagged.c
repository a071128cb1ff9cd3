/* A tag is "[1,3]<stdout>:", before each line of rank 3, and again where mpirun goes on with a line
 * after it has written something else. */
#include "launcher/tagged.h"

#include <string.h>

enum { TAG_DIGITS = 9 };

/* What stands at a place. */
enum { NO_TAG = 0, CUT_TAG = -1 };

/* Whether `at` begins with `text`: its length, or CUT_TAG where it ends too early to tell. */
static int match_text(const char *at, const char *end, const char *text) {
    const size_t n = strlen(text), there = (size_t)(end - at);
    if (there < n) return memcmp(at, text, there) == 0 ? CUT_TAG : NO_TAG;
    return memcmp(at, text, n) == 0 ? (int)n : NO_TAG;
}

static int match_number(const char *at, const char *end, int *value) {
    int n = 0;
    *value = 0;
    for (; at + n < end && at[n] >= '0' && at[n] <= '9'; n++) {
        if (n == TAG_DIGITS) return NO_TAG;
        *value = *value * 10 + (at[n] - '0');
    }
    return at + n == end ? CUT_TAG : n;
}

static int match_stream(const char *at, const char *end) {
    static const char *const streams[] = {"<stdout>:", "<stderr>:", "<stddiag>:"};
    int n = NO_TAG;
    for (size_t i = 0; i < sizeof streams / sizeof *streams && n == NO_TAG; i++)
        n = match_text(at, end, streams[i]);
    return n;
}

/* The length of the tag at `at`, and its rank; NO_TAG, or CUT_TAG. */
static int match_tag(const char *at, const char *end, const char *tag_end, int *rank) {
    const char *from = at;
    const int parts = *tag_end ? 7 : 6;
    int job = 0;
    for (int part = 0; part < parts; part++) {
        const int n = part == 0   ? match_text(at, end, "[")
                      : part == 1 ? match_number(at, end, &job)
                      : part == 2 ? match_text(at, end, ",")
                      : part == 3 ? match_number(at, end, rank)
                      : part == 4 ? match_text(at, end, "]")
                      : part == 5 ? match_stream(at, end)
                                  : match_text(at, end, tag_end);
        if (n <= 0) return n;
        at += n;
    }
    return (int)(at - from);
}

/* Goes through `bytes`; returns how many of them are done: the rest may be a tag's begin. */
static size_t split(launcher_tagged *tagged, const char *bytes, size_t n, launcher_tagged_fn take,
                    void *ctx) {
    const char *at = bytes, *end = bytes + n, *text = bytes;
    while (at < end) {
        int rank = -1, length;
        if (*at == '\n') {
            take(ctx, tagged->rank, text, (size_t)(++at - text));
            tagged->rank = -1;
            text = at;
            continue;
        }
        length = *at == '[' ? match_tag(at, end, tagged->tag_end, &rank) : NO_TAG;
        if (length == NO_TAG || (length > 0 && rank >= tagged->ranks)) {
            at++;
            continue;
        }
        if (at > text) take(ctx, tagged->rank, text, (size_t)(at - text));
        if (length == CUT_TAG) return (size_t)(at - bytes);
        tagged->rank = rank;
        text = at += length;
    }
    if (at > text) take(ctx, tagged->rank, text, (size_t)(at - text));
    return n;
}

void launcher_tagged_take(launcher_tagged *tagged, const char *bytes, size_t n,
                          launcher_tagged_fn take, void *ctx) {
    while (n > 0 && tagged->n_held > 0) { /* one byte more, until it is clear what it is */
        char held[LAUNCHER_TAG_BYTES];
        const size_t n_held = tagged->n_held + 1;
        memcpy(held, tagged->held, tagged->n_held);
        held[n_held - 1] = *bytes++;
        n--;
        tagged->n_held = 0;
        const size_t done = split(tagged, held, n_held, take, ctx);
        tagged->n_held = n_held - done;
        memcpy(tagged->held, held + done, tagged->n_held);
    }
    const size_t done = split(tagged, bytes, n, take, ctx);
    if (done == n) return;
    tagged->n_held = n - done;
    memcpy(tagged->held, bytes + done, tagged->n_held);
}

void launcher_tagged_end(launcher_tagged *tagged, launcher_tagged_fn take, void *ctx) {
    if (tagged->n_held > 0) take(ctx, tagged->rank, tagged->held, tagged->n_held);
    tagged->n_held = 0;
}
