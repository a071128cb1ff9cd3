/* Python's rules: a bound is moved on by the size where it is negative, then cut to what the step's
 * direction can reach. */
#include "inspect/slice.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/program.h"

static const dcp_tensor *find(const dcp_checkpoint *ckpt, const char *name, size_t length) {
    static const char *const prefixes[] = {"", "/", "/model/"};
    char path[DCP_MAX_PATH + 16];
    const dcp_tensor *tensor = NULL;
    for (size_t i = 0; !tensor && i < 3 && length <= DCP_MAX_PATH; i++) {
        snprintf(path, sizeof path, "%s%.*s", prefixes[i], (int)length, name);
        tensor = dcp_checkpoint_find(ckpt, path);
    }
    return tensor;
}

/* A whole number into *out, where there is one; -1 where there is something else. */
static int parse_number(const char **text, int64_t *out, int *given) {
    char *end;
    *given = !strchr(":,]", **text);
    if (!*given) return 0;
    errno = 0;
    *out = strtoll(*text, &end, 10);
    if (end == *text || errno || *out == INT64_MIN) return -1;
    *text = end;
    return 0;
}

static int64_t cut(int64_t value, int64_t size, int64_t low, int64_t high) {
    if (value < 0) value += size;
    return value < low ? low : value > high ? high : value;
}

static int set_index(slice *s, uint32_t d, int64_t index, int64_t size) {
    const int64_t from = index < 0 ? index + size : index;
    if (from < 0 || from >= size)
        return program_fail(PROGRAM_USAGE,
                            "index %" PRId64 " of dimension %u is out of range: %s has %" PRId64
                            " there (%" PRId64 " to %" PRId64 ")",
                            index, d, s->tensor->path, size, -size, size - 1);
    index = from;
    s->start[d] = (uint64_t)index;
    s->count[d] = 1;
    s->step[d] = s->is_index[d] = 1;
    return 0;
}

static void set_range(slice *s, uint32_t d, int64_t size, int64_t from, int64_t to, int64_t step) {
    int64_t distance = step > 0 ? to - from : from - to, stride = step > 0 ? step : -step;
    s->step[d] = step;
    s->count[d] = distance > 0 ? (uint64_t)((distance - 1) / stride) + 1 : 0;
    s->start[d] = s->count[d] && size ? (uint64_t)from : 0;
}

/* 0; -1: no slice; or an exit status, what is wrong being told. */
static int parse_dimension(const char **text, slice *s, uint32_t d) {
    int64_t size = (int64_t)s->tensor->shape[d], from = 0, to = 0, step = 1;
    int has_from, has_to = 0, has_step = 0;
    if (parse_number(text, &from, &has_from)) return -1;
    if (**text != ':') return has_from ? set_index(s, d, from, size) : -1;
    ++*text;
    if (parse_number(text, &to, &has_to)) return -1;
    if (**text == ':') {
        ++*text;
        if (parse_number(text, &step, &has_step)) return -1;
    }
    if (step == 0) return -1;
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
    from = has_from ? cut(from, size, low, high) : step > 0 ? 0 : size - 1;
    to = has_to ? cut(to, size, low, high) : step > 0 ? size : -1;
    set_range(s, d, size, from, to, step);
    return 0;
}

static uint32_t count_parts(const char *text) {
    uint32_t n = 1;
    for (; *text; text++) n += *text == ',';
    return n;
}

static int parse_parts(const char *text, slice *s) {
    uint32_t ndim = s->tensor->ndim, parts = count_parts(text), skipped = 0;
    for (uint32_t d = 0; d <= ndim; d++) {
        if (strncmp(text, "...", 3) == 0 && !skipped) {
            if (parts - 1 > ndim) return -1;
            skipped = 1;
            d += ndim - (parts - 1); /* d++ is for the dots themselves */
            text += 3;
            d--;
        } else {
            int status = d == ndim ? -1 : parse_dimension(&text, s, d);
            if (status) return status;
        }
        if (*text != ',') break;
        text++;
    }
    return strcmp(text, "]") ? -1 : 0;
}

int slice_parse(const dcp_checkpoint *ckpt, const char *text, slice *out) {
    const char *bracket = NULL;
    *out = (slice){.tensor = find(ckpt, text, strlen(text))};
    if (!out->tensor && (bracket = strrchr(text, '[')))
        out->tensor = find(ckpt, text, (size_t)(bracket - text));
    if (!out->tensor)
        return program_fail(PROGRAM_USAGE, "%s: has no tensor '%s'", dcp_checkpoint_path(ckpt),
                            text);
    for (uint32_t d = 0; d < out->tensor->ndim; d++) {
        out->count[d] = out->tensor->shape[d];
        out->step[d] = 1;
    }
    int status = bracket ? parse_parts(bracket + 1, out) : 0;
    if (status < 0)
        return program_fail(
            PROGRAM_USAGE,
            "'%s' is no slice of %s: write [0:2,:], one part a dimension of %u, as in "
            "Python",
            bracket, out->tensor->path, out->tensor->ndim);
    return status;
}

uint64_t slice_elems(const slice *s) {
    uint64_t n = 1;
    for (uint32_t d = 0; d < s->tensor->ndim; d++) n *= s->count[d];
    return n;
}

uint32_t slice_shape(const slice *s, uint64_t *shape) {
    uint32_t n = 0;
    for (uint32_t d = 0; d < s->tensor->ndim; d++)
        if (!s->is_index[d]) shape[n++] = s->count[d];
    return n;
}

int slice_element(dcp_checkpoint *ckpt, const slice *s, const uint64_t *index, void *out,
                  dcp_error *err) {
    dcp_box box = {.count = {1}};
    for (uint32_t d = 0; d < s->tensor->ndim; d++) {
        box.start[d] = (uint64_t)((int64_t)s->start[d] + (int64_t)index[d] * s->step[d]);
        box.count[d] = 1;
    }
    return dcp_checkpoint_read(ckpt, s->tensor->path, &box, out, err);
}
