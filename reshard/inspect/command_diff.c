/* dcp-inspect diff: two checkpoints compared. */
#include "inspect/command_diff.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json_text.h"
#include "common/step_path.h"
#include "inspect/differences.h"
#include "inspect/text.h"
#include "programs/arguments.h"
#include "programs/program.h"

enum { MOST_META = 1000 };

static const char *const kinds[] = {"same",          "close",     "changed",  "dtype differs",
                                    "shape differs", "only in A", "only in B"};
static const char *const keys[] = {"same",  "close",  "changed", "dtype",
                                   "shape", "only_a", "only_b"};

typedef struct diff_output {
    const inspect_differences *d;
    const inspect_diff_options *options;
    json_t *meta; /* NULL: not compared */
    size_t meta_n;
    int all; /* also rows that are the same */
} diff_output;

static int differ(const diff_output *o) {
    size_t alike = o->d->counts[DIFF_SAME] + o->d->counts[DIFF_CLOSE];
    return alike != o->d->n || o->meta_n > 0;
}

static void print_amounts(const inspect_diff_row *r) {
    char differing[32], elems[32];
    const inspect_diff_sums *s = &r->sums;
    printf(": %s of %s elements, max %.6g, mean %.6g, relative %.6g",
           inspect_text_count(s->differing, differing),
           inspect_text_count(dcp_tensor_bytes(r->a) / dcp_dtype_bytes(r->a->dtype), elems), s->max,
           inspect_differences_mean(s), inspect_differences_relative(s));
    if (s->nonfinite)
        printf(", %s to or from NaN or infinity", inspect_text_count(s->nonfinite, differing));
    if (s->bits_only)
        printf(", %s in their bits alone (0 and -0, or NaNs)",
               inspect_text_count(s->bits_only, differing));
}

static void print_diff_row(const inspect_diff_row *r) {
    char name[TEXT_PATH], shape[TEXT_SHAPE], other[TEXT_SHAPE];
    const dcp_tensor *t = r->a ? r->a : r->b;
    printf("%-13s %s %s %s", kinds[r->kind], inspect_text_name(t->path, name),
           dcp_dtype_name(t->dtype), inspect_text_shape(t->shape, t->ndim, shape));
    if (r->kind == DIFF_SHAPE || r->kind == DIFF_DTYPE)
        printf(" against %s %s", dcp_dtype_name(r->b->dtype),
               inspect_text_shape(r->b->shape, r->b->ndim, other));
    if (r->measured && r->kind != DIFF_SAME) print_amounts(r);
    printf("\n");
}

/* On one line. */
static const char *value_text(const json_t *value, char *text, size_t size) {
    char *dump = value ? json_text(value, JSON_ENCODE_ANY) : NULL;
    size_t n = 0;
    for (const char *c = dump ? dump : "nothing"; *c && n + 1 < size; c++)
        if (*c != '\n' && !(*c == ' ' && n && text[n - 1] == ' ')) text[n++] = *c;
    text[n] = 0;
    if (n + 1 == size) memcpy(text + size - 4, "...", 4);
    free(dump);
    return text;
}

static void print_meta(const diff_output *o) {
    json_t *entry;
    size_t i;
    char a[100], b[100], key[TEXT_PATH];
    json_array_foreach(o->meta, i, entry)
        printf("meta          %s: %s against %s\n",
               inspect_text_name(json_string_value(json_object_get(entry, "key")), key),
               value_text(json_object_get(entry, "a"), a, sizeof a),
               value_text(json_object_get(entry, "b"), b, sizeof b));
    if (o->meta_n > MOST_META) printf("meta          and %zu more\n", o->meta_n - MOST_META);
}

static void print_diff_text(const diff_output *o) {
    int first = 1;
    for (size_t i = 0; i < o->d->n; i++)
        if (o->d->rows[i].kind != DIFF_SAME || o->all) print_diff_row(&o->d->rows[i]);
    print_meta(o);
    printf("%zu tensor%s: ", o->d->n, o->d->n == 1 ? "" : "s");
    for (int k = 0; k < DIFF_KINDS; k++) {
        if (!o->d->counts[k] && (k != DIFF_SAME || o->d->n)) continue;
        printf("%s%zu %s", first ? "" : ", ", o->d->counts[k], kinds[k]);
        first = 0;
    }
    if (o->meta) printf("; meta %s", o->meta_n ? "differs" : "the same");
    printf("\n");
}

static json_t *row_json(const inspect_diff_row *r) {
    json_t *root = inspect_tensor_json(r->a ? r->a : r->b);
    json_object_set_new(root, "status", json_string(keys[r->kind]));
    if (r->kind == DIFF_DTYPE || r->kind == DIFF_SHAPE) {
        json_object_set_new(root, "dtype_b", json_string(dcp_dtype_name(r->b->dtype)));
        json_object_set_new(root, "shape_b", inspect_shape_json(r->b->shape, r->b->ndim));
    }
    if (!r->measured) return root;
    json_object_set_new(root, "differing", inspect_count_json(r->sums.differing));
    json_object_set_new(root, "bits_only", inspect_count_json(r->sums.bits_only));
    json_object_set_new(root, "max", inspect_real_json(r->sums.max));
    json_object_set_new(root, "mean", inspect_real_json(inspect_differences_mean(&r->sums)));
    json_object_set_new(root, "relative",
                        inspect_real_json(inspect_differences_relative(&r->sums)));
    json_object_set_new(root, "nonfinite", inspect_count_json(r->sums.nonfinite));
    json_object_set_new(root, "beyond", inspect_count_json(r->sums.beyond));
    return root;
}

static void print_diff_json(const diff_output *o) {
    json_t *tensors = json_array(), *counts = json_object();
    for (size_t i = 0; i < o->d->n; i++) json_array_append_new(tensors, row_json(&o->d->rows[i]));
    for (int k = 0; k < DIFF_KINDS; k++)
        json_object_set_new(counts, keys[k], inspect_count_json(o->d->counts[k]));
    inspect_text_print_json(json_pack("{s:o, s:o, s:b, s:o, s:o, s:O?}", "a",
                                      inspect_checkpoint_json(o->d->a), "b",
                                      inspect_checkpoint_json(o->d->b), "same", !differ(o),
                                      "counts", counts, "tensors", tensors, "meta", o->meta));
}

/* Prints what was measured, on rank 0. */
static int print(const inspect_differences *d, diff_output *o, int meta, int json) {
    if (meta) o->meta = inspect_differences_meta(d->a, d->b, MOST_META, &o->meta_n);
    if (json)
        print_diff_json(o);
    else
        print_diff_text(o);
    json_decref(o->meta);
    return differ(o) ? PROGRAM_DIFFERS : PROGRAM_DONE;
}

static int measure_differences(const launch *job, inspect_differences *d,
                               const inspect_diff_options *options) {
    int status = launch_worst(job, inspect_differences_pair(d->a, d->b, options, d));
    return launch_worst(job, status ? status : inspect_differences_measure(job, d, options));
}

/* An exit status; where the newest step is damaged, the one before it is named. */
static int open_one(const launch *job, const char *path, dcp_checkpoint **out) {
    dcp_error err = {0};
    if (!dcp_checkpoint_open(job->comm, path, out, &err)) return 0;
    int status = program_report(&err);
    if (status == PROGRAM_DIFFERS && !job->rank) step_path_note_older(path);
    return status;
}

static int open_and_compare(const launch *job, char **paths, const inspect_diff_options *options,
                            int all, int meta, int json) {
    dcp_checkpoint *a, *b;
    inspect_differences d;
    int status = open_one(job, paths[0], &a);
    if (status) return status;
    status = open_one(job, paths[1], &b);
    if (status) {
        dcp_checkpoint_close(a);
        return status;
    }
    d = (inspect_differences){.a = a, .b = b};
    diff_output o = {.d = &d, .options = options, .all = all};
    status = measure_differences(job, &d, options);
    for (int i = 0; i < 2 && status == PROGRAM_DIFFERS && !job->rank; i++)
        step_path_note_older(paths[i]);
    if (!status && !job->rank) status = print(&d, &o, meta, json);
    inspect_differences_free(&d);
    dcp_checkpoint_close(a);
    dcp_checkpoint_close(b);
    return launch_worst(job, status);
}

static int parse_tolerance(const char *option, const char *text, double *out, int *given) {
    char *end;
    if (!text) return 0;
    errno = 0;
    *out = strtod(text, &end);
    *given = 1;
    if (end != text && !*end && !errno && *out >= 0 && isfinite(*out)) return 0;
    return program_refuse("%s: '%s' is not a number from 0", option, text);
}

static const char about[] =
    "Common use:\n"
    "  dcp-inspect diff ckpt/step-00000100 ckpt/step-00000120   what changed, and by how much\n"
    "  dcp-inspect diff run1 run2 'model/*'                     the newest steps' weights\n"
    "  dcp-inspect diff a b --rtol 1e-5 --atol 1e-8             as numpy.allclose\n"
    "\n"
    "Compares two checkpoints, whatever their layouts and the ranks that wrote them. The\n"
    "tables' checksums tell what is equal without reading it; of other tensors both sides are\n"
    "read, for the elements that differ, the largest and mean absolute difference, and the\n"
    "norm of the difference over A's. GLOBs name tensors, by path or without /model/; meta\n"
    "(step, configuration) is compared where there are none. Exit status 1 where anything\n"
    "differs.\n"
    "\n"
    "JSON: a, b (path, step, layout, files), same, counts (of each status), tensors (path,\n"
    "dtype, shape, bytes, status: same, close, changed, dtype, shape, only_a or only_b;\n"
    "dtype_b, shape_b; where it was read differing, bits_only, max, mean, relative,\n"
    "nonfinite, beyond), meta (key, a, b).";

int inspect_diff(int argc, char **argv) {
    int json = 0, quick = 0, all = 0, ignore_meta = 0, n;
    const char *rtol = NULL, *atol = NULL;
    const program_option table[] = {
        PROGRAM_VALUE("rtol", "X", "equal is what differs by X times B's value at most", &rtol),
        PROGRAM_VALUE("atol", "X", "or by X; both together as numpy.allclose", &atol),
        PROGRAM_FLAG("quick", "don't read what the checksums show to differ", &quick),
        PROGRAM_FLAG("all", "list the tensors that are the same, too", &all),
        PROGRAM_FLAG("ignore-meta", "compare tensors alone", &ignore_meta),
        {0}};
    const program_command program = {.name = "dcp-inspect",
                                     .usage = "diff A B [GLOB...] [options]",
                                     .about = about,
                                     .options = table,
                                     .json = &json};
    inspect_diff_options options = {.quick = quick};
    char **args;
    launch job;
    int status = program_arguments_parse(&program, argc, argv, 2, 1 << 20, &args, &n);
    if (status >= 0) return status;
    status = parse_tolerance("--rtol", rtol, &options.rtol, &options.tolerant);
    if (!status) status = parse_tolerance("--atol", atol, &options.atol, &options.tolerant);
    if (status) return status;
    if (quick && options.tolerant)
        return program_refuse("--quick reads nothing that a tolerance could be held against");
    options.quick = quick;
    options.globs = args + 2;
    options.n_globs = (size_t)n - 2;
    status = launch_start(&job);
    if (!status) status = open_and_compare(&job, args, &options, all, n == 2 && !ignore_meta, json);
    launch_end(&job);
    return status;
}
