/* Slices follow Python's rules. If a bound is negative, the dimension's size is added to it. Each
 * bound is then clipped to the range that the slice's step can reach. */
#include "inspect/slice.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/arguments.h"
#include "programs/fail.h"
#include "programs/program.h"

static const dcp_tensor *find_tensor(const dcp_checkpoint *ckpt, const char *name, size_t length) {
    static const char *const prefixes[] = {"", "/", "/model/"};
    char path[DCP_MAX_PATH + 16];
    const dcp_tensor *tensor = NULL;
    for (size_t i = 0; !tensor && i < 3 && length <= DCP_MAX_PATH; i++) {
        snprintf(path, sizeof path, "%s%.*s", prefixes[i], (int)length, name);
        tensor = dcp_checkpoint_find(ckpt, path);
    }
    return tensor;
}

/* Returns the path in its usual short form. */
static const char *short_name(const char *path) {
    static const char model[] = "/model/";
    return strncmp(path, model, sizeof model - 1) == 0 ? path + sizeof model - 1 : path;
}

/* Returns how much `name` differs from `asked`; 0 if `name` contains `asked`. */
static size_t unlikeness(const char *asked, const char *name) {
    return strstr(name, asked) ? 0 : program_word_distance(asked, name);
}

enum { MOST_NEAR = 3, NEAR_BYTES = 512 };

/* Writes the most similar names, as "; did you mean a, b", or "" if there are none. */
static void suggest_names(const dcp_checkpoint *ckpt, const char *asked, char out[NEAR_BYTES]) {
    const size_t n = dcp_checkpoint_tensors(ckpt), most = 1 + strlen(asked) / 4;
    size_t *unlike = calloc(n + 1, sizeof *unlike), at = 0;
    *out = '\0';
    for (size_t i = 0; unlike && i < n; i++)
        unlike[i] = unlikeness(asked, short_name(dcp_checkpoint_tensor(ckpt, i)->path));
    for (int found = 0; unlike && found < MOST_NEAR && at < NEAR_BYTES; found++) {
        size_t best = 0;
        for (size_t i = 1; i < n; i++)
            if (unlike[i] < unlike[best]) best = i;
        if (n == 0 || unlike[best] > most) break;
        at += (size_t)snprintf(out + at, NEAR_BYTES - at, "%s%s", found ? ", " : "; did you mean ",
                               short_name(dcp_checkpoint_tensor(ckpt, best)->path));
        unlike[best] = SIZE_MAX;
    }
    free(unlike);
}

static int refuse_name(const dcp_checkpoint *ckpt, const char *text) {
    char asked[DCP_MAX_PATH + 16], near[NEAR_BYTES];
    snprintf(asked, sizeof asked, "%.*s", (int)strcspn(text, "["), short_name(text));
    suggest_names(ckpt, asked, near);
    return program_refuse("%s: has no tensor '%s'%s%s", dcp_checkpoint_path(ckpt), text, near,
                          *near ? "?" : "; without a name, all tensors are listed");
}

/* Reads an optional integer into *out. *given: whether there is one. Returns -1 if the text is not
 * a valid integer. */
static int parse_number(const char **text, int64_t *out, bool *given) {
    char *end;
    *given = !strchr(":,]", **text);
    if (!*given) return 0;
    errno = 0;
    *out = strtoll(*text, &end, 10);
    if (end == *text || errno || *out == INT64_MIN) return -1;
    *text = end;
    return 0;
}

static int64_t clip_bound(int64_t value, int64_t size, int64_t low, int64_t high) {
    if (value < 0) value += size;
    return value < low ? low : value > high ? high : value;
}

static int set_index(inspect_slice *s, uint32_t d, int64_t index, int64_t size) {
    const int64_t from = index < 0 ? index + size : index;
    if (from < 0 || from >= size)
        return program_refuse("index %" PRId64 " of dimension %u is out of range: %s has %" PRId64
                              " indices in this dimension (%" PRId64 " to %" PRId64 ")",
                              index, d, s->tensor->path, size, -size, size - 1);
    index = from;
    s->start[d] = (uint64_t)index;
    s->count[d] = 1;
    s->step[d] = 1;
    s->is_index[d] = true;
    return 0;
}

static void set_range(inspect_slice *s, uint32_t d, int64_t size, int64_t from, int64_t to,
                      int64_t step) {
    int64_t distance = step > 0 ? to - from : from - to, stride = step > 0 ? step : -step;
    s->step[d] = step;
    s->count[d] = distance > 0 ? (uint64_t)((distance - 1) / stride) + 1 : 0;
    s->start[d] = s->count[d] && size ? (uint64_t)from : 0;
}

/* Parses the slice of dimension d. Returns 0; -1 if the text is not a slice; or an exit status
 * after a message. */
static int parse_dimension(const char **text, inspect_slice *s, uint32_t d) {
    int64_t size = (int64_t)s->tensor->shape[d], from = 0, to = 0, step = 1;
    bool has_from, has_to = false, has_step = false;
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
    from = has_from ? clip_bound(from, size, low, high) : step > 0 ? 0 : size - 1;
    to = has_to ? clip_bound(to, size, low, high) : step > 0 ? size : -1;
    set_range(s, d, size, from, to, step);
    return 0;
}

static uint32_t count_parts(const char *text) {
    uint32_t n = 1;
    for (; *text; text++) n += *text == ',';
    return n;
}

static int parse_parts(const char *text, inspect_slice *s) {
    uint32_t ndim = s->tensor->ndim, parts = count_parts(text), skipped = 0;
    for (uint32_t d = 0; d <= ndim; d++) {
        if (strncmp(text, "...", 3) == 0 && !skipped) {
            if (parts - 1 > ndim) return -1;
            skipped = 1;
            d += ndim - (parts - 1); /* skips what the dots stand for; d-- undoes d++ */
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

int inspect_slice_parse(const dcp_checkpoint *ckpt, const char *text, inspect_slice *out) {
    const char *bracket = NULL;
    *out = (inspect_slice){.tensor = find_tensor(ckpt, text, strlen(text))};
    if (!out->tensor && (bracket = strrchr(text, '[')))
        out->tensor = find_tensor(ckpt, text, (size_t)(bracket - text));
    if (!out->tensor) return refuse_name(ckpt, text);
    for (uint32_t d = 0; d < out->tensor->ndim; d++) {
        out->count[d] = out->tensor->shape[d];
        out->step[d] = 1;
    }
    int status = bracket ? parse_parts(bracket + 1, out) : 0;
    if (status < 0)
        return program_refuse("'%s' is not a slice of %s: write [0:2,:], one part for each of its "
                              "%u dimensions, as in Python",
                              bracket, out->tensor->path, out->tensor->ndim);
    return status;
}

static uint64_t count_elems(const inspect_slice *s) {
    uint64_t n = 1;
    for (uint32_t d = 0; d < s->tensor->ndim; d++) n *= s->count[d];
    return n;
}

uint32_t inspect_slice_shape(const inspect_slice *s, uint64_t *shape) {
    uint32_t n = 0;
    for (uint32_t d = 0; d < s->tensor->ndim; d++)
        if (!s->is_index[d]) shape[n++] = s->count[d];
    return n;
}

int inspect_slice_element(dcp_checkpoint *ckpt, const inspect_slice *s, const uint64_t *index,
                          void *out, dcp_error *err) {
    dcp_box box = {.count = {1}};
    for (uint32_t d = 0; d < s->tensor->ndim; d++) {
        box.start[d] = (uint64_t)((int64_t)s->start[d] + (int64_t)index[d] * s->step[d]);
        box.count[d] = 1;
    }
    return dcp_checkpoint_read(ckpt, s->tensor->path, &box, out, err);
}

/* How a slice is read. The last dimension with a step other than 1 is decisive. Dimensions after it
 * are read as whole ranges. If the rows of the decisive dimension are short, the decisive dimension
 * is also read as a range, from which the elements of the slice are then picked. In the dimensions
 * before the decisive one, one index is read at a time. */

enum { PIECE_BYTES = 16 << 20, LONG_ROW = 1 << 20 };

typedef struct slice_reading {
    dcp_checkpoint *ckpt;
    const inspect_slice *s;
    uint32_t lead; /* the number of dimensions in which one index is read at a time */
    uint64_t size; /* bytes per element */
    char *data;
    inspect_slice_fn fn;
    void (*on_read)(void *ctx, uint64_t done, uint64_t total);
    void *ctx;
    uint64_t done;
} slice_reading;

static uint64_t stride_of(const inspect_slice *s, uint32_t d) {
    return (uint64_t)(s->step[d] < 0 ? -s->step[d] : s->step[d]);
}

/* Returns the lowest index of the slice in a dimension. */
static uint64_t lowest(const inspect_slice *s, uint32_t d) {
    if (s->step[d] > 0 || !s->count[d]) return s->start[d];
    return s->start[d] - (s->count[d] - 1) * stride_of(s, d);
}

static uint32_t count_lead(const inspect_slice *s, uint64_t size) {
    uint32_t d = s->tensor->ndim;
    uint64_t row = size;
    while (d > 0 && stride_of(s, d - 1) == 1) row *= s->count[--d];
    if (!d) return 0;
    return row * stride_of(s, d - 1) > LONG_ROW || row > LONG_ROW ? d : d - 1;
}

/* Picks, from the n elements of the piece, those whose index in dimension r->lead is in the slice.
 * Returns their number. */
static uint64_t pick(const slice_reading *r, const dcp_box *piece, uint64_t n) {
    uint32_t d = r->lead, ndim = r->s->tensor->ndim;
    uint64_t inner = 1, kept = 0;
    if (d == ndim || stride_of(r->s, d) == 1) return n;
    for (uint32_t e = d + 1; e < ndim; e++) inner *= piece->count[e];
    for (uint64_t k = 0; k < n / inner; k++) {
        uint64_t index = piece->start[d] + k % piece->count[d];
        if ((index - lowest(r->s, d)) % stride_of(r->s, d)) continue;
        memmove(r->data + kept * r->size, r->data + k * inner * r->size, inner * r->size);
        kept += inner;
    }
    return kept;
}

static int read_slice_box(slice_reading *r, const dcp_box *box, dcp_error *err) {
    uint32_t ndim = r->s->tensor->ndim;
    uint64_t elems = dcp_box_elems(box, ndim);
    for (uint64_t first = 0, n; first < elems; first += n) {
        dcp_box piece;
        n = dcp_box_slice(ndim, box, first, PIECE_BYTES / r->size, &piece);
        int status = dcp_checkpoint_read(r->ckpt, r->s->tensor->path, &piece, r->data, err);
        if (status) return status;
        uint64_t kept = pick(r, &piece, n);
        r->fn(r->ctx, r->data, kept);
        r->done += kept;
        if (r->on_read) r->on_read(r->ctx, r->done, count_elems(r->s));
    }
    return DCP_OK;
}

/* Returns the box to read at `index`, which has an index for each leading dimension. */
static dcp_box box_at(const slice_reading *r, const uint64_t *index) {
    const inspect_slice *s = r->s;
    dcp_box box = {.count = {1}};
    for (uint32_t d = 0; d < s->tensor->ndim; d++) {
        box.start[d] = lowest(s, d) + (d < r->lead ? index[d] * stride_of(s, d) : 0);
        box.count[d] = d < r->lead ? 1 : (s->count[d] - 1) * stride_of(s, d) + 1;
    }
    return box;
}

int inspect_slice_read(dcp_checkpoint *ckpt, const inspect_slice *s, inspect_slice_fn fn,
                       void (*on_read)(void *ctx, uint64_t done, uint64_t total), void *ctx,
                       dcp_error *err) {
    uint64_t index[DCP_MAX_DIMS] = {0}, size = dcp_dtype_bytes(s->tensor->dtype);
    if (!count_elems(s)) return DCP_OK;
    slice_reading r = {ckpt, s, count_lead(s, size), size, malloc(PIECE_BYTES), fn, on_read,
                       ctx,  0};
    int status = DCP_OK;
    if (!r.data) return core_fail_memory(err, PIECE_BYTES);
    for (uint32_t d = 0; !status && d != UINT32_MAX;) {
        const dcp_box box = box_at(&r, index);
        status = read_slice_box(&r, &box, err);
        for (d = r.lead - 1; d != UINT32_MAX && ++index[d] == s->count[d]; d--) index[d] = 0;
    }
    free(r.data);
    return status;
}
