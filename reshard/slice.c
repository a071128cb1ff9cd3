/* Slices as Python has them: bounds may be left out, negative ones count from the end, and what
 * goes over the end is cut. A plain index must exist. */
#include "slice.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

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

/* A whole number, moved on by `size` where it is negative; -1 where there is none. */
static int parse_bound(const char **text, uint64_t size, int64_t *out) {
    char *end;
    errno = 0;
    long long value = strtoll(*text, &end, 10);
    if (end == *text || errno || size > INT64_MAX) return -1;
    *text = end;
    *out = value < 0 ? value + (int64_t)size : value;
    return 0;
}

static uint64_t clamp(int64_t value, uint64_t size) {
    if (value < 0) return 0;
    return (uint64_t)value < size ? (uint64_t)value : size;
}

static int parse_dimension(const char **text, uint64_t size, uint64_t *start, uint64_t *count) {
    int64_t from = 0, to = (int64_t)size;
    if (**text != ':' && parse_bound(text, size, &from)) return -1;
    if (**text != ':') {
        if (from < 0 || (uint64_t)from >= size) return -1;
        *start = (uint64_t)from;
        *count = 1;
        return 0;
    }
    ++*text;
    if (**text != ',' && **text != ']' && parse_bound(text, size, &to)) return -1;
    uint64_t first = clamp(from, size), last = clamp(to, size);
    *start = first;
    *count = last > first ? last - first : 0;
    return 0;
}

static int parse_box(const char *text, const dcp_tensor *tensor, dcp_box *box) {
    for (uint32_t d = 0; d < tensor->ndim; d++) {
        if (parse_dimension(&text, tensor->shape[d], &box->start[d], &box->count[d])) return -1;
        if (*text != ',') break;
        text++;
    }
    return strcmp(text, "]") ? -1 : 0;
}

int slice_parse(const dcp_checkpoint *ckpt, const char *text, const dcp_tensor **tensor,
                dcp_box *box) {
    const char *bracket = NULL;
    *tensor = find(ckpt, text, strlen(text));
    if (!*tensor && (bracket = strrchr(text, '[')))
        *tensor = find(ckpt, text, (size_t)(bracket - text));
    if (!*tensor)
        return cli_fail(CLI_USAGE, "%s: has no tensor '%s'", dcp_checkpoint_path(ckpt), text);
    *box = dcp_box_whole(*tensor);
    if (bracket && parse_box(bracket + 1, *tensor, box))
        return cli_fail(CLI_USAGE,
                        "'%s' is no slice of %s: write [0:2,:], one part a dimension of %u",
                        bracket, (*tensor)->path, (*tensor)->ndim);
    return 0;
}
