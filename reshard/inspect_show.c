/* dcp-inspect show: the table of tensors, or one tensor's numbers. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "convert.h"
#include "dcp/checkpoint.h"
#include "inspect.h"
#include "pieces.h"
#include "slice.h"
#include "stats.h"

enum { PIECE_BYTES = 16 << 20, BATCH = 4096, VALUES = 16 };

static const char *shape_text(const uint64_t *shape, uint32_t ndim, char *text, size_t size) {
    size_t used = (size_t)snprintf(text, size, "[");
    for (uint32_t d = 0; d < ndim; d++)
        used += (size_t)snprintf(text + used, size - used, "%s%" PRIu64, d ? ", " : "", shape[d]);
    snprintf(text + used, size - used, "]");
    return text;
}

static json_t *shape_json(const uint64_t *shape, uint32_t ndim) {
    json_t *array = json_array();
    for (uint32_t d = 0; d < ndim; d++)
        json_array_append_new(array, json_integer((json_int_t)shape[d]));
    return array;
}

static const char *layout_text(const dcp_checkpoint *ckpt) {
    return dcp_checkpoint_layout(ckpt) == DCP_LAYOUT_GLOBAL ? "global" : "sharded";
}

static json_t *tensor_json(const dcp_tensor *t) {
    return json_pack("{s:s, s:s, s:o, s:I}", "path", t->path, "dtype", dcp_dtype_name(t->dtype),
                     "shape", shape_json(t->shape, t->ndim), "bytes",
                     (json_int_t)dcp_tensor_bytes(t));
}

static void print_table_json(const dcp_checkpoint *ckpt) {
    json_t *tensors = json_array();
    for (size_t i = 0; i < dcp_checkpoint_tensors(ckpt); i++)
        json_array_append_new(tensors, tensor_json(dcp_checkpoint_tensor(ckpt, i)));
    inspect_print_json(json_pack("{s:s, s:I, s:s, s:i, s:o, s:o*}", "path",
                                 dcp_checkpoint_path(ckpt), "step",
                                 (json_int_t)dcp_checkpoint_step(ckpt), "layout", layout_text(ckpt),
                                 "files", dcp_checkpoint_files(ckpt), "tensors", tensors, "meta",
                                 json_loads(dcp_checkpoint_json(ckpt), 0, NULL)));
}

static void print_table(const dcp_checkpoint *ckpt) {
    char shape[200], bytes[32];
    uint64_t total = 0;
    for (size_t i = 0; i < dcp_checkpoint_tensors(ckpt); i++) {
        const dcp_tensor *t = dcp_checkpoint_tensor(ckpt, i);
        printf("%-7s %-18s %9s  %s\n", dcp_dtype_name(t->dtype),
               shape_text(t->shape, t->ndim, shape, sizeof shape),
               cli_bytes(dcp_tensor_bytes(t), bytes), t->path);
        total += dcp_tensor_bytes(t);
    }
    printf("step %" PRIu64 ", %s in %d file%s: %zu tensors, %s\n", dcp_checkpoint_step(ckpt),
           layout_text(ckpt), dcp_checkpoint_files(ckpt),
           dcp_checkpoint_files(ckpt) == 1 ? "" : "s", dcp_checkpoint_tensors(ckpt),
           cli_bytes(total, bytes));
}

typedef struct view {
    const dcp_tensor *tensor;
    dcp_box box;
    uint64_t elems;
    stats stats;
    size_t values; /* first elements in `first` */
    char first[VALUES * 8];
} view;

static void add_piece(view *v, const char *data, uint64_t n) {
    double batch[BATCH];
    for (uint64_t i = 0, m; i < n; i += m) {
        m = n - i < BATCH ? n - i : BATCH;
        convert_to_f64(v->tensor->dtype, data + i * dcp_dtype_bytes(v->tensor->dtype), m, batch);
        stats_add(&v->stats, batch, m);
    }
}

static int read_view(dcp_checkpoint *ckpt, view *v) {
    dcp_error err = {0};
    dcp_box piece;
    uint64_t size = dcp_dtype_bytes(v->tensor->dtype);
    char *data = malloc(PIECE_BYTES);
    if (!data) return cli_fail(CLI_FAILED, "out of memory");
    int status = 0;
    v->elems = dcp_box_elems(&v->box, v->tensor->ndim);
    v->values = v->elems < VALUES ? v->elems : VALUES;
    cli_progress bar;
    cli_progress_start(&bar, "reading");
    for (uint64_t first = 0, n; status == 0 && first < v->elems; first += n) {
        n = pieces_next(&v->box, v->tensor->ndim, first, PIECE_BYTES / size, &piece);
        if (dcp_checkpoint_read(ckpt, v->tensor->path, &piece, data, &err)) {
            status = cli_report(&err);
            break;
        }
        for (uint64_t i = first; i < v->values && i < first + n; i++)
            memcpy(v->first + i * size, data + (i - first) * size, size);
        add_piece(v, data, n);
        cli_progress_update(&bar, first + n, v->elems);
    }
    cli_progress_end(&bar);
    free(data);
    return status;
}

/* Infinities cancel to NaN of either sign. */
static double plain_nan(double value) { return isnan(value) ? (double)NAN : value; }

static void print_view(const view *v) {
    char shape[200], bytes[32], text[CONVERT_TEXT];
    const dcp_tensor *t = v->tensor;
    printf("%s: %s %s, %s\n", t->path, dcp_dtype_name(t->dtype),
           shape_text(t->shape, t->ndim, shape, sizeof shape),
           cli_bytes(dcp_tensor_bytes(t), bytes));
    printf("shown: %s, %" PRIu64 " elements\n",
           shape_text(v->box.count, t->ndim, shape, sizeof shape), v->elems);
    if (v->elems > v->stats.nan)
        printf("min %.9g  max %.9g  mean %.9g  std %.9g\n", v->stats.min, v->stats.max,
               plain_nan(v->stats.mean), plain_nan(stats_std(&v->stats)));
    if (v->stats.nan) printf("not a number: %" PRIu64 "\n", v->stats.nan);
    printf("values:");
    for (size_t i = 0; i < v->values; i++) {
        convert_print(t->dtype, v->first + i * dcp_dtype_bytes(t->dtype), text);
        printf(" %s", text);
    }
    printf("%s\n", v->elems > v->values ? " ..." : "");
}

/* JSON has no infinities and no NaN. */
static json_t *real_json(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static json_t *value_json(dcp_dtype dtype, const char *element) {
    char text[CONVERT_TEXT];
    convert_print(dtype, element, text);
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    return value ? value : json_string(text);
}

static void print_view_json(const view *v) {
    json_t *values = json_array(), *root = tensor_json(v->tensor);
    uint64_t size = dcp_dtype_bytes(v->tensor->dtype);
    for (size_t i = 0; i < v->values; i++)
        json_array_append_new(values, value_json(v->tensor->dtype, v->first + i * size));
    json_object_set_new(root, "start", shape_json(v->box.start, v->tensor->ndim));
    json_object_set_new(root, "count", shape_json(v->box.count, v->tensor->ndim));
    json_object_set_new(root, "nan", json_integer((json_int_t)v->stats.nan));
    if (v->elems > v->stats.nan) {
        json_object_set_new(root, "min", real_json(v->stats.min));
        json_object_set_new(root, "max", real_json(v->stats.max));
        json_object_set_new(root, "mean", real_json(v->stats.mean));
        json_object_set_new(root, "std", real_json(stats_std(&v->stats)));
    }
    json_object_set_new(root, "values", values);
    inspect_print_json(root);
}

static int show_tensor(dcp_checkpoint *ckpt, const char *name, int json) {
    view v = {0};
    int status = slice_parse(ckpt, name, &v.tensor, &v.box);
    if (status == 0) status = read_view(ckpt, &v);
    if (status) return status;
    if (json)
        print_view_json(&v);
    else
        print_view(&v);
    return 0;
}

static int show(dcp_checkpoint *ckpt, const char *name, int json) {
    if (name) return show_tensor(ckpt, name, json);
    if (json)
        print_table_json(ckpt);
    else
        print_table(ckpt);
    return 0;
}

int inspect_show(int argc, char **argv) {
    int json = 0;
    const cli_option options[] = {{"json", NULL, "print one JSON object", NULL, &json}, {0}};
    const cli_program program = {
        "dcp-inspect", "show CKPT [NAME[SLICE]] [--json]",
        "Without NAME: the tensors of a step. With it: its shape, smallest, largest, mean, "
        "standard\n"
        "deviation and first values, or those of a slice: 'model.norm.weight[0:8]', 'NAME[-1,:]'.",
        options};
    char **args;
    int n, status = cli_parse(&program, argc, argv, 1, 2, &args, &n);
    if (status >= 0) return status;
    dcp_error err = {0};
    dcp_comm *self;
    dcp_checkpoint *ckpt;
    if (dcp_comm_self(&self, &err)) return cli_report(&err);
    if (dcp_checkpoint_open(self, args[0], &ckpt, &err)) {
        status = cli_report(&err);
    } else {
        status = show(ckpt, n > 1 ? args[1] : NULL, json);
        dcp_checkpoint_close(ckpt);
    }
    dcp_comm_destroy(self);
    return status;
}
