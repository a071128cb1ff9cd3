/* dcp-inspect show: prints the table of tensors, or the numbers of one tensor. */
#include "inspect/commands.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/element.h"
#include "common/launch.h"
#include "inspect/slice.h"
#include "inspect/stats.h"
#include "inspect/text.h"
#include "programs/arguments.h"
#include "programs/json_read.h"
#include "programs/program.h"

enum { BATCH = 2048, VALUES = 64, MOST_VALUES = 10000000, EDGE = 3 };

static void print_table_json(const dcp_checkpoint *ckpt) {
    json_t *tensors = json_array(), *root = inspect_checkpoint_json(ckpt);
    for (size_t i = 0; i < dcp_checkpoint_tensors(ckpt); i++)
        json_array_append_new(tensors, inspect_tensor_json(dcp_checkpoint_tensor(ckpt, i)));
    json_object_set_new(root, "tensors", tensors);
    json_object_set_new(
        root, "meta",
        core_json_read(dcp_checkpoint_json(ckpt), strlen(dcp_checkpoint_json(ckpt)), NULL));
    inspect_text_print_json(root);
}

static void print_table(const dcp_checkpoint *ckpt) {
    char shape[TEXT_SHAPE], bytes[32], name[TEXT_PATH];
    uint64_t total = 0;
    for (size_t i = 0; i < dcp_checkpoint_tensors(ckpt); i++) {
        const dcp_tensor *t = dcp_checkpoint_tensor(ckpt, i);
        printf("%-7s %-18s %9s  %s\n", dcp_dtype_name(t->dtype),
               inspect_text_shape(t->shape, t->ndim, shape),
               program_bytes_text(dcp_tensor_bytes(t), bytes), inspect_text_name(t->path, name));
        total += dcp_tensor_bytes(t);
    }
    printf("step %" PRIu64 ", %s in %d file%s: %zu tensors, %s\n", dcp_checkpoint_step(ckpt),
           inspect_text_layout(ckpt), dcp_checkpoint_files(ckpt),
           dcp_checkpoint_files(ckpt) == 1 ? "" : "s", dcp_checkpoint_tensors(ckpt),
           program_bytes_text(total, bytes));
}

typedef struct show_view {
    dcp_checkpoint *ckpt;
    inspect_slice slice;
    inspect_stats stats;
    uint64_t values; /* the most values to print */
    progress_bar bar;
} show_view;

static void add_elements(void *ctx, const void *data, uint64_t n) {
    show_view *v = ctx;
    double batch[BATCH];
    dcp_dtype dtype = v->slice.tensor->dtype;
    for (uint64_t i = 0, m; i < n; i += m) {
        m = n - i < BATCH ? n - i : BATCH;
        element_to_f64(dtype, (const char *)data + i * dcp_dtype_bytes(dtype), m, batch);
        inspect_stats_add(&v->stats, batch, m);
    }
}

static void on_read(void *ctx, uint64_t done, uint64_t total) {
    const show_view *v = ctx;
    uint64_t size = dcp_dtype_bytes(v->slice.tensor->dtype);
    progress_bar_update(&((show_view *)ctx)->bar, done * size, total * size);
}

static int read_view(show_view *v) {
    dcp_error err = {0};
    progress_bar_start(&v->bar, "reading");
    int status = inspect_slice_read(v->ckpt, &v->slice, add_elements, on_read, v, &err);
    progress_bar_end(&v->bar);
    return status ? program_report(&err) : 0;
}

/* Formats one element of the slice. Failures are rare, because the element's block was checked a
 * moment ago. */
static int element_text(const show_view *v, const uint64_t *index, char *text) {
    char element[ELEMENT_BYTES];
    dcp_error err = {0};
    if (inspect_slice_element(v->ckpt, &v->slice, index, element, &err))
        return program_report(&err);
    element_print(v->slice.tensor->dtype, element, text);
    return 0;
}

/* Prints dimension d of the slice as numpy does. If the dimension is long, prints only `edge`
 * elements at each end. */
static int print_dimension(const show_view *v, uint32_t d, uint64_t *index, uint64_t edge) {
    char text[ELEMENT_TEXT];
    const inspect_slice *s = &v->slice;
    int status = 0;
    if (d == s->tensor->ndim) {
        status = element_text(v, index, text);
        if (!status) fputs(text, stdout);
        return status;
    }
    if (s->is_index[d]) {
        index[d] = 0;
        return print_dimension(v, d + 1, index, edge);
    }
    putchar('[');
    for (uint64_t i = 0; i < s->count[d] && !status; i++) {
        if (i) fputs(", ", stdout);
        if (i == edge && s->count[d] > 2 * edge) {
            fputs("..., ", stdout);
            i = s->count[d] - edge;
        }
        index[d] = i;
        status = print_dimension(v, d + 1, index, edge);
    }
    putchar(']');
    return status;
}

static int print_view(const show_view *v) {
    char shape[TEXT_SHAPE], bytes[32], name[TEXT_PATH], zeros[32];
    uint64_t kept[DCP_MAX_DIMS], index[DCP_MAX_DIMS] = {0};
    const dcp_tensor *t = v->slice.tensor;
    const inspect_stats *s = &v->stats;
    uint32_t ndim = inspect_slice_shape(&v->slice, kept);
    printf("%s: %s %s, %s\n", inspect_text_name(t->path, name), dcp_dtype_name(t->dtype),
           inspect_text_shape(t->shape, t->ndim, shape),
           program_bytes_text(dcp_tensor_bytes(t), bytes));
    printf("shown: %s, %" PRIu64 " elements\n", inspect_text_shape(kept, ndim, shape), s->n);
    if (inspect_stats_finite(s))
        printf("min %.9g  max %.9g  mean %.9g  std %.9g\n", s->min, s->max, s->mean,
               inspect_stats_std(s));
    printf("zeros %s", inspect_text_count(s->zeros, zeros));
    printf("  NaN %s", inspect_text_count(s->nan, zeros));
    printf("  Inf %s\n", inspect_text_count(s->inf, zeros));
    int status = print_dimension(v, 0, index,
                                 s->n <= v->values ? UINT64_MAX / 2
                                 : ndim > 3        ? 1
                                                   : EDGE);
    putchar('\n');
    return status;
}

static json_t *value_json(const char *text) {
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    return value ? value : json_string(text);
}

/* Adds the first values, in row-major order. */
static int values_json(const show_view *v, json_t *values) {
    uint64_t index[DCP_MAX_DIMS] = {0};
    char text[ELEMENT_TEXT];
    int status = 0;
    for (uint64_t i = 0; i < v->stats.n && i < v->values && !status; i++) {
        status = element_text(v, index, text);
        if (!status) json_array_append_new(values, value_json(text));
        for (uint32_t d = v->slice.tensor->ndim; d-- && ++index[d] == v->slice.count[d];)
            index[d] = 0;
    }
    return status;
}

static json_t *steps_json(const inspect_slice *s) {
    json_t *array = json_array();
    for (uint32_t d = 0; d < s->tensor->ndim; d++)
        json_array_append_new(array, json_integer((json_int_t)s->step[d]));
    return array;
}

static int view_json(const show_view *v, json_t **out) {
    const inspect_slice *s = &v->slice;
    uint64_t kept[DCP_MAX_DIMS];
    uint32_t ndim = inspect_slice_shape(s, kept);
    json_t *values = json_array(), *root = inspect_tensor_json(s->tensor);
    json_object_set_new(root, "start", inspect_shape_json(s->start, s->tensor->ndim));
    json_object_set_new(root, "count", inspect_shape_json(s->count, s->tensor->ndim));
    json_object_set_new(root, "step", steps_json(s));
    json_object_set_new(root, "shown", inspect_shape_json(kept, ndim));
    json_object_set_new(root, "zeros", inspect_count_json(v->stats.zeros));
    json_object_set_new(root, "nan", inspect_count_json(v->stats.nan));
    json_object_set_new(root, "inf", inspect_count_json(v->stats.inf));
    if (inspect_stats_finite(&v->stats)) {
        json_object_set_new(root, "min", inspect_real_json(v->stats.min));
        json_object_set_new(root, "max", inspect_real_json(v->stats.max));
        json_object_set_new(root, "mean", inspect_real_json(v->stats.mean));
        json_object_set_new(root, "std", inspect_real_json(inspect_stats_std(&v->stats)));
    }
    int status = values_json(v, values);
    json_object_set_new(root, "values", values);
    *out = root;
    return status;
}

/* Prints one tensor. If json is not NULL, stores an object in *json instead. */
static int show_tensor(dcp_checkpoint *ckpt, const char *name, uint64_t values, json_t **json) {
    show_view v = {.ckpt = ckpt, .values = values};
    int status = inspect_slice_parse(ckpt, name, &v.slice);
    if (!status) status = read_view(&v);
    if (status) return status;
    return json ? view_json(&v, json) : print_view(&v);
}

static int show_one(dcp_checkpoint *ckpt, const char *name, uint64_t values, bool json) {
    json_t *root = NULL;
    const int status = show_tensor(ckpt, name, values, json ? &root : NULL);
    if (status || !json)
        json_decref(root);
    else
        inspect_text_print_json(root);
    return status;
}

/* Writes the glob without the slice to glob[]. Returns false if the text is not a glob. */
static bool split_glob(const char *text, char *glob, size_t size, const char **slice) {
    const char *bracket = strrchr(text, '[');
    const size_t length = strlen(text);
    *slice = bracket && text[length - 1] == ']' ? bracket : text + length;
    snprintf(glob, size, "%.*s", (int)(*slice - text), text);
    return strpbrk(glob, "*?") != NULL;
}

static int show_matches(dcp_checkpoint *ckpt, char *glob, const char *slice, uint64_t values,
                        json_t *list) {
    const size_t n = dcp_checkpoint_tensors(ckpt);
    unsigned char *take = calloc(n + 1, 1);
    int status =
        take ? inspect_filter_tensors(ckpt, (char *const *)&glob, 1, take) : program_no_memory();
    for (size_t i = 0, shown = 0; i < n && !status; i++) {
        char name[2 * DCP_MAX_PATH];
        json_t *root = NULL;
        if (!take[i]) continue;
        if (!list && shown++) putchar('\n');
        snprintf(name, sizeof name, "%s%s", dcp_checkpoint_tensor(ckpt, i)->path, slice);
        status = show_tensor(ckpt, name, values, list ? &root : NULL);
        if (root) json_array_append_new(list, root);
    }
    free(take);
    return status;
}

static int show_glob(dcp_checkpoint *ckpt, char *glob, const char *slice, uint64_t values,
                     bool json) {
    json_t *list = json ? json_array() : NULL;
    const int status = show_matches(ckpt, glob, slice, values, list);
    if (json && !status)
        inspect_text_print_json(json_pack("{s:o}", "tensors", list));
    else
        json_decref(list);
    return status;
}

static int show(dcp_checkpoint *ckpt, const char *name, uint64_t values, bool json) {
    char glob[2 * DCP_MAX_PATH];
    const char *slice;
    if (name && split_glob(name, glob, sizeof glob, &slice))
        return show_glob(ckpt, glob, slice, values, json);
    if (name) return show_one(ckpt, name, values, json);
    if (json)
        print_table_json(ckpt);
    else
        print_table(ckpt);
    return 0;
}

static const char about[] =
    "Common use:\n"
    "  dcp-inspect show ckpt                                 the tensors of the newest step\n"
    "  dcp-inspect show ckpt model.norm.weight               a tensor's numbers\n"
    "  dcp-inspect show ckpt 'lm_head.weight[0:2,:]'         a slice of it\n"
    "  dcp-inspect show ckpt 'lm_head.weight[-1,::2]'        as in Python: -1 is the last\n"
    "  dcp-inspect show ckpt '*norm.weight[:4]'              each tensor that the glob matches\n"
    "\n"
    "Without NAME: path, type, shape and size of each tensor. With NAME: the values of the\n"
    "tensor's elements, or of those in SLICE, the smallest, largest, mean and standard\n"
    "deviation of the finite ones, and how many are zero, NaN or infinite. SLICE is basic\n"
    "slicing as in numpy: start:stop:step of either sign in each dimension, plain indices, and\n"
    "'...'. If there are more values than --values, only the ends of each dimension are\n"
    "printed.\n"
    "\n"
    "JSON: path, step, layout, files, tensors (path, dtype, shape, bytes), meta. JSON with\n"
    "NAME: path, dtype, shape, bytes, start, count, step (of each dimension), shown (the\n"
    "slice's shape), zeros, nan, inf, min, max, mean, std (if some are finite), values (the\n"
    "first ones, in row-major order). JSON with a glob: tensors, a list of such objects.";

int inspect_show(int argc, char **argv) {
    bool json = false;
    const char *text = NULL;
    uint64_t values = VALUES;
    const program_option options[] = {
        PROGRAM_VALUE("values", "N", "print at most N values (64)", &text), {0}};
    const program_command program = {.name = "dcp-inspect",
                                     .usage = "show CKPT [NAME[SLICE]] [--values N] [--json]",
                                     .about = about,
                                     .options = options,
                                     .json = &json};
    char **args;
    int n, status = program_arguments_parse(&program, argc, argv, 1, 2, &args, &n);
    if (status >= 0) return status;
    if (text && program_count_parse("--values", text, 1, MOST_VALUES, &values))
        return PROGRAM_USAGE;
    dcp_error err = {0};
    dcp_comm *self;
    dcp_checkpoint *ckpt;
    if (dcp_comm_self(&self, &err)) return program_report(&err);
    if (dcp_checkpoint_open(self, args[0], &ckpt, &err)) {
        status = program_report(&err);
    } else {
        status = show(ckpt, n > 1 ? args[1] : NULL, values, json);
        dcp_checkpoint_close(ckpt);
    }
    if (status == PROGRAM_DIFFERS) step_path_note_older(args[0]);
    dcp_comm_destroy(self);
    return status;
}
