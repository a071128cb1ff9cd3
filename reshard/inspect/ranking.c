/* Tensors arrive sorted, so the tensors of a module follow each other. Therefore a stack of the
 * modules that contain the last tensor is sufficient. */
#include "inspect/ranking.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

const char *inspect_modules_kind(const char *path, size_t *length) {
    static const char optimizer[] = "/optimizer/";
    const char *start = path + 1;
    if (strncmp(path, optimizer, sizeof optimizer - 1) == 0 &&
        strchr(path + sizeof optimizer - 1, '/'))
        start = path + sizeof optimizer - 1;
    *length = strcspn(start, "/");
    return start;
}

static int push(inspect_modules *m, const char *path, size_t own, size_t length) {
    if ((m->n & (m->n - 1)) == 0) { /* at 0 and at powers of two the array is full */
        inspect_module *grown = realloc(m->list, (m->n ? 2 * m->n : 1) * sizeof *grown);
        if (!grown) return -1;
        m->list = grown;
    }
    m->open[m->depth] = m->n;
    m->list[m->n++] =
        (inspect_module){.path = path, .length = length, .own = own, .depth = ++m->depth};
    return 0;
}

/* Returns the number of open modules that contain the path. */
static unsigned shared(const inspect_modules *m, const char *path) {
    unsigned depth = 0;
    while (depth < m->depth) {
        const inspect_module *open = &m->list[m->open[depth]];
        if (strncmp(open->path, path, open->length) || !strchr("./", path[open->length])) break;
        depth++;
    }
    return depth;
}

int inspect_modules_add(inspect_modules *m, const dcp_tensor *tensor) {
    const char *path = tensor->path;
    size_t length;
    size_t at = (size_t)(inspect_modules_kind(path, &length) - path) + length + 1;
    m->depth = shared(m, path);
    if (m->depth) at = m->list[m->open[m->depth - 1]].length + 1;
    while (m->depth < m->most) {
        size_t end = at + strcspn(path + at, "./");
        if (!path[end] && m->depth) break; /* the rest is the tensor's own name */
        if (push(m, path, at, end)) return -1;
        if (!path[end]) break;
        at = end + 1;
    }
    for (unsigned d = 0; d < m->depth; d++) {
        inspect_module *in = &m->list[m->open[d]];
        in->tensors++;
        in->bytes += dcp_tensor_bytes(tensor);
        in->elems += dcp_tensor_bytes(tensor) / dcp_dtype_bytes(tensor->dtype);
    }
    return 0;
}

void inspect_modules_free(inspect_modules *m) {
    free(m->list);
    *m = (inspect_modules){0};
}

const char *const inspect_ranking_names[RANKS] = {
    [RANK_RELATIVE] = "relative",
    [RANK_MAX] = "max",
    [RANK_MEAN] = "mean",
    [RANK_DIFFERING] = "differing",
};

static bool is_alike(const inspect_diff_row *row) { return row->kind == DIFF_SAME; }

static const char *row_path(const inspect_diff_row *row) {
    return (row->a ? row->a : row->b)->path;
}

/* Returns the amount by which rows are sorted, in descending order. */
static double amount(const inspect_diff_sums *s, inspect_rank by) {
    double value = 0;
    if (s->nonfinite) return INFINITY;
    if (by == RANK_RELATIVE) value = inspect_differences_relative(s);
    if (by == RANK_MAX) value = s->max;
    if (by == RANK_MEAN) value = inspect_differences_mean(s);
    if (by == RANK_DIFFERING) value = (double)s->differing;
    return isnan(value) ? INFINITY : value;
}

static double row_amount(const inspect_diff_row *row, inspect_rank by) {
    if (is_alike(row)) return -1;
    return row->measured && row->kind != DIFF_SHAPE ? amount(&row->sums, by) : INFINITY;
}

static int order_rows(const void *x, const void *y, void *rank) {
    const inspect_diff_row *a = *(const inspect_diff_row *const *)x;
    const inspect_diff_row *b = *(const inspect_diff_row *const *)y;
    const inspect_rank by = *(const inspect_rank *)rank;
    const double of_a = by ? row_amount(a, by) : 0, of_b = by ? row_amount(b, by) : 0;
    if (of_a != of_b) return of_a > of_b ? -1 : 1;
    return strcmp(row_path(a), row_path(b));
}

const inspect_diff_row **inspect_ranking_rows(const inspect_differences *d, inspect_rank by) {
    const inspect_diff_row **rows = calloc(d->n + 1, sizeof *rows);
    if (!rows) return NULL;
    for (size_t i = 0; i < d->n; i++) rows[i] = &d->rows[i];
    qsort_r(rows, d->n, sizeof *rows, order_rows, &by);
    return rows;
}

/* Returns the length of the part of the path that names its module, `depth` levels deep. A tensor
 * outside of modules is a module itself. */
static size_t module_length(const char *path, unsigned depth) {
    size_t kind;
    const char *start = inspect_modules_kind(path, &kind);
    size_t end = (size_t)(start - path) + kind;
    for (unsigned d = 0; d < depth && path[end]; d++) {
        const size_t next = end + 1 + strcspn(path + end + 1, "./");
        if (!path[next] && d > 0) break; /* the rest is the tensor's own name */
        end = next;
    }
    return end;
}

static int order_names(const void *x, const void *y) {
    const inspect_ranked_module *a = x, *b = y;
    const int order = memcmp(a->path, b->path, a->length < b->length ? a->length : b->length);
    return order ? order : (a->length > b->length) - (a->length < b->length);
}

/* Orders by module, and then by tensor, so that sums are always added in the same order. */
static int order_tensors_in(const void *x, const void *y) {
    const inspect_ranked_module *a = x, *b = y;
    const int order = order_names(x, y);
    return order ? order : strcmp(a->path, b->path);
}

static double module_amount(const inspect_ranked_module *m, inspect_rank by) {
    if (m->unmeasured) return INFINITY;
    return m->unlike ? amount(&m->sums, by) : -1;
}

static int order_modules(const void *x, const void *y, void *rank) {
    const inspect_ranked_module *a = x, *b = y;
    const inspect_rank by = *(const inspect_rank *)rank;
    const double of_a = by ? module_amount(a, by) : 0, of_b = by ? module_amount(b, by) : 0;
    if (of_a != of_b) return of_a > of_b ? -1 : 1;
    return order_names(x, y);
}

static inspect_ranked_module module_of(const inspect_diff_row *row, unsigned depth) {
    const char *path = row_path(row);
    const bool is_measured = row->measured && !is_alike(row) && row->a;
    inspect_ranked_module m = {.path = path,
                               .length = module_length(path, depth),
                               .tensors = 1,
                               .unlike = !is_alike(row),
                               .unmeasured = !is_alike(row) && !is_measured};
    if (!is_measured) return m;
    m.elems = dcp_tensor_bytes(row->a) / dcp_dtype_bytes(row->a->dtype);
    m.sums = row->sums;
    return m;
}

/* Joins modules of the same name, which follow each other. Returns the number of distinct
 * modules. */
static size_t join_modules(inspect_ranked_module *list, size_t n) {
    size_t kept = 0;
    for (size_t i = 0; i < n; i++) {
        if (kept == 0 || order_names(&list[kept - 1], &list[i]) != 0) {
            list[kept++] = list[i];
            continue;
        }
        inspect_ranked_module *m = &list[kept - 1];
        m->tensors += list[i].tensors;
        m->unlike += list[i].unlike;
        m->unmeasured += list[i].unmeasured;
        m->elems += list[i].elems;
        inspect_differences_add(&m->sums, &list[i].sums);
    }
    return kept;
}

int inspect_ranking_modules(const inspect_differences *d, unsigned depth, inspect_rank by, bool all,
                            inspect_ranked_module **out, size_t *n) {
    inspect_ranked_module *list = calloc(d->n + 1, sizeof *list);
    if (!list) return -1;
    for (size_t i = 0; i < d->n; i++) list[i] = module_of(&d->rows[i], depth);
    qsort(list, d->n, sizeof *list, order_tensors_in);
    const size_t joined = join_modules(list, d->n);
    *n = 0;
    for (size_t i = 0; i < joined; i++)
        if (all || list[i].unlike) list[(*n)++] = list[i];
    qsort_r(list, *n, sizeof *list, order_modules, &by);
    *out = list;
    return 0;
}
