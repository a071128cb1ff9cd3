/* dcp-inspect diff: compares two checkpoints. */
#include "inspect/commands.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/element.h"
#include "common/launch.h"
#include "inspect/differences.h"
#include "inspect/ranking.h"
#include "inspect/text.h"
#include "programs/arguments.h"
#include "programs/program.h"

enum { MOST_META = 1000 };

static const char *const kinds[] = {"same",          "close",     "changed",  "dtype differs",
                                    "shape differs", "only in A", "only in B"};
static const char *const keys[] = {"same",  "close",  "changed", "dtype",
                                   "shape", "only_a", "only_b"};

/* The options of the list of rows. */
typedef struct diff_listing {
    bool all; /* list equal rows, too */
    inspect_rank sort;
    uint64_t top;   /* the most rows; 0: all */
    uint64_t depth; /* the depth of the modules to list; 0: list tensors instead */
} diff_listing;

typedef struct diff_output {
    const inspect_differences *d;
    const inspect_diff_options *options;
    json_t *meta; /* NULL: not compared */
    size_t meta_n;
    const inspect_diff_row **rows; /* all rows for JSON, otherwise only rows that differ */
    size_t n_rows;
    inspect_ranked_module *modules; /* set if a depth was given */
    size_t n_modules;
    const diff_listing *listing;
} diff_output;

static bool differ(const diff_output *o) {
    size_t alike = o->d->counts[DIFF_SAME] + o->d->counts[DIFF_CLOSE];
    return alike != o->d->n || o->meta_n > 0;
}

static void print_amounts(const inspect_diff_sums *s, uint64_t n) {
    char differing[32], elems[32];
    printf(": %s of %s elements, max %.6g, mean %.6g, relative %.6g",
           inspect_text_count(s->differing, differing), inspect_text_count(n, elems), s->max,
           inspect_differences_mean(s), inspect_differences_relative(s));
    if (s->nonfinite)
        printf(", %s to or from NaN or infinity", inspect_text_count(s->nonfinite, differing));
    if (s->bits_only)
        printf(", %s only in their bits (0 and -0, or NaNs)",
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
    if (r->measured && r->kind != DIFF_SAME)
        print_amounts(&r->sums, dcp_tensor_bytes(r->a) / dcp_dtype_bytes(r->a->dtype));
    printf("\n");
}

/* Writes the value on one line. */
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

static size_t listed(const diff_output *o, size_t n) {
    return o->listing->top && o->listing->top < n ? (size_t)o->listing->top : n;
}

static void print_more(const diff_output *o, size_t n, const char *what) {
    const size_t shown = listed(o, n);
    if (shown < n) printf("and %zu more %s\n", n - shown, what);
}

static void print_rows(const diff_output *o) {
    for (size_t i = 0; i < listed(o, o->n_rows); i++) print_diff_row(o->rows[i]);
    print_more(o, o->n_rows, "tensors");
}

static void print_modules_moved(const diff_output *o) {
    for (size_t i = 0; i < listed(o, o->n_modules); i++) {
        const inspect_ranked_module *m = &o->modules[i];
        char name[TEXT_PATH], module[TEXT_PATH];
        snprintf(module, sizeof module, "%.*s", (int)m->length, m->path);
        printf("%-13s %s: %zu of %zu tensors", m->unlike ? kinds[DIFF_CHANGED] : kinds[DIFF_SAME],
               inspect_text_name(module, name), m->unlike, m->tensors);
        if (m->unmeasured)
            printf(", %zu of them in dtype or shape, or only on one side", m->unmeasured);
        if (m->elems) print_amounts(&m->sums, m->elems);
        printf("\n");
    }
    print_more(o, o->n_modules, "modules");
}

static void print_diff_text(const diff_output *o) {
    bool first = true;
    if (o->listing->depth)
        print_modules_moved(o);
    else
        print_rows(o);
    print_meta(o);
    printf("%zu tensor%s: ", o->d->n, o->d->n == 1 ? "" : "s");
    for (int k = 0; k < DIFF_KINDS; k++) {
        if (!o->d->counts[k] && (k != DIFF_SAME || o->d->n)) continue;
        printf("%s%zu %s", first ? "" : ", ", o->d->counts[k], kinds[k]);
        first = false;
    }
    if (o->meta) printf("; meta %s", o->meta_n ? "differs" : "the same");
    printf("\n");
}

static void add_amounts(json_t *root, const inspect_diff_sums *s) {
    json_object_set_new(root, "differing", inspect_count_json(s->differing));
    json_object_set_new(root, "bits_only", inspect_count_json(s->bits_only));
    json_object_set_new(root, "max", inspect_real_json(s->max));
    json_object_set_new(root, "mean", inspect_real_json(inspect_differences_mean(s)));
    json_object_set_new(root, "relative", inspect_real_json(inspect_differences_relative(s)));
    json_object_set_new(root, "nonfinite", inspect_count_json(s->nonfinite));
    json_object_set_new(root, "beyond", inspect_count_json(s->beyond));
}

static json_t *row_json(const inspect_diff_row *r) {
    json_t *root = inspect_tensor_json(r->a ? r->a : r->b);
    json_object_set_new(root, "status", json_string(keys[r->kind]));
    if (r->kind == DIFF_DTYPE || r->kind == DIFF_SHAPE) {
        json_object_set_new(root, "dtype_b", json_string(dcp_dtype_name(r->b->dtype)));
        json_object_set_new(root, "shape_b", inspect_shape_json(r->b->shape, r->b->ndim));
    }
    if (r->measured) add_amounts(root, &r->sums);
    return root;
}

static json_t *module_json(const inspect_ranked_module *m) {
    size_t length, start = (size_t)(inspect_modules_kind(m->path, &length) - m->path);
    const size_t name = start + length < m->length ? start + length + 1 : m->length;
    json_t *root = json_object();
    json_object_set_new(root, "kind", json_stringn(m->path + start, length));
    json_object_set_new(root, "module", json_stringn(m->path + name, m->length - name));
    json_object_set_new(root, "tensors", inspect_count_json(m->tensors));
    json_object_set_new(root, "unlike", inspect_count_json(m->unlike));
    json_object_set_new(root, "unmeasured", inspect_count_json(m->unmeasured));
    add_amounts(root, &m->sums);
    return root;
}

static json_t *modules_moved_json(const diff_output *o) {
    if (!o->listing->depth) return NULL;
    json_t *list = json_array();
    for (size_t i = 0; i < listed(o, o->n_modules); i++)
        json_array_append_new(list, module_json(&o->modules[i]));
    return list;
}

static void print_diff_json(const diff_output *o) {
    json_t *tensors = json_array(), *counts = json_object();
    for (size_t i = 0; i < listed(o, o->n_rows); i++)
        json_array_append_new(tensors, row_json(o->rows[i]));
    for (int k = 0; k < DIFF_KINDS; k++)
        json_object_set_new(counts, keys[k], inspect_count_json(o->d->counts[k]));
    inspect_text_print_json(
        json_pack("{s:o, s:o, s:b, s:o, s:o, s:o*, s:O?}", "a", inspect_checkpoint_json(o->d->a),
                  "b", inspect_checkpoint_json(o->d->b), "same", !differ(o), "counts", counts,
                  "tensors", tensors, "modules", modules_moved_json(o), "meta", o->meta));
}

/* Sorts the rows or modules that are listed. Returns 0, or -1 if out of memory. */
static int rank_rows(const inspect_differences *d, diff_output *o, bool json) {
    const diff_listing *l = o->listing;
    const bool all = l->all || (json && !l->top);
    o->rows = inspect_ranking_rows(d, l->sort);
    if (!o->rows) return -1;
    for (size_t i = 0; i < d->n; i++)
        if (all || o->rows[i]->kind != DIFF_SAME) o->rows[o->n_rows++] = o->rows[i];
    if (!l->depth) return 0;
    return inspect_ranking_modules(d, (unsigned)l->depth, l->sort, all, &o->modules, &o->n_modules);
}

/* Prints the measurements, on rank 0. */
static int print(const inspect_differences *d, diff_output *o, bool meta, bool json) {
    if (rank_rows(d, o, json)) return program_no_memory();
    if (meta) o->meta = inspect_differences_meta(d->a, d->b, MOST_META, &o->meta_n);
    if (json)
        print_diff_json(o);
    else
        print_diff_text(o);
    json_decref(o->meta);
    free(o->rows);
    free(o->modules);
    return differ(o) ? PROGRAM_DIFFERS : PROGRAM_DONE;
}

static int measure_differences(const launch *job, inspect_differences *d,
                               const inspect_diff_options *options) {
    int status = launch_worst(job, inspect_differences_pair(d->a, d->b, options, d));
    return launch_worst(job, status ? status : inspect_differences_measure(job, d, options));
}

/* Opens a checkpoint. If the newest step is damaged, reports which step precedes it. Returns an
 * exit status. */
static int open_one(const launch *job, const char *path, dcp_checkpoint **out) {
    dcp_error err = {0};
    if (!dcp_checkpoint_open(job->comm, path, out, &err)) return 0;
    int status = program_report(&err);
    if (status == PROGRAM_DIFFERS && !job->rank) step_path_note_older(path);
    return status;
}

static int open_and_compare(const launch *job, char **paths, const inspect_diff_options *options,
                            const diff_listing *listing, bool meta, bool json) {
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
    diff_output o = {.d = &d, .options = options, .listing = listing};
    status = measure_differences(job, &d, options);
    for (int i = 0; i < 2 && status == PROGRAM_DIFFERS && !job->rank; i++)
        step_path_note_older(paths[i]);
    if (!status && !job->rank) status = print(&d, &o, meta, json);
    inspect_differences_free(&d);
    dcp_checkpoint_close(a);
    dcp_checkpoint_close(b);
    return launch_worst(job, status);
}

static int parse_tolerance(const char *option, const char *text, double *out, bool *given) {
    char *end;
    if (!text) return 0;
    errno = 0;
    *out = strtod(text, &end);
    *given = true;
    if (end != text && !*end && !errno && *out >= 0 && isfinite(*out)) return 0;
    return program_refuse("%s: '%s' is not a finite number of at least 0", option, text);
}

static const char about[] =
    "Common use:\n"
    "  dcp-inspect diff ckpt/step-00000100 ckpt/step-00000120   what changed, and by how much\n"
    "  dcp-inspect diff run1 run2 'model/*'                     the newest steps' weights\n"
    "  dcp-inspect diff a b --top 10                            what moved most\n"
    "  dcp-inspect diff a b --depth 3 --sort max                the same by module\n"
    "  dcp-inspect diff a b --rtol 1e-5 --atol 1e-8             like numpy.allclose\n"
    "\n"
    "Compares two checkpoints, whatever their layouts and the ranks that wrote them. Equal\n"
    "tensors are found by the tables' checksums, without reading them. Other tensors are read\n"
    "on both sides, and compared: how many elements differ, the largest and the mean absolute\n"
    "difference, and the norm of the difference divided by the norm of A. GLOBs select\n"
    "tensors by their paths, with or without /model/; without GLOBs, meta (step,\n"
    "configuration) is compared, too. The exit status is 1 if anything differs.\n"
    "\n"
    "JSON: a, b (path, step, layout, files), same, counts (of each status), tensors (path,\n"
    "dtype, shape, bytes, status: same, close, changed, dtype, shape, only_a or only_b;\n"
    "dtype_b, shape_b; for tensors that were read also differing, bits_only, max, mean,\n"
    "relative, nonfinite, beyond); with --depth also modules (kind, module, tensors, unlike,\n"
    "unmeasured, and the same amounts); meta (key, a, b). --sort and --top apply to the lists\n"
    "tensors and modules.";

/* Parses the arguments of --sort, --top and --depth. Returns 0, or PROGRAM_USAGE after a
 * message. */
static int parse_listing(const char *sort, const char *top, const char *depth, bool quick,
                         diff_listing *out) {
    if (top && program_count_parse("--top", top, 1, INT64_MAX, &out->top)) return PROGRAM_USAGE;
    if (depth && program_count_parse("--depth", depth, 1, MODULES_DEPTH, &out->depth))
        return PROGRAM_USAGE;
    if (quick && (sort || top || depth))
        return program_refuse(
            "--quick does not measure all differences, which --sort, --top and --depth require");
    if (top) out->sort = RANK_RELATIVE;
    if (!sort) return 0;
    for (int by = RANK_PATH + 1; by < RANKS; by++)
        if (strcmp(sort, inspect_ranking_names[by]) == 0) out->sort = (inspect_rank)by;
    if (out->sort && strcmp(sort, inspect_ranking_names[out->sort]) == 0) return 0;
    return program_refuse("--sort: '%s' is none of relative, max, mean, differing", sort);
}

int inspect_diff(int argc, char **argv) {
    int n;
    bool json = false, quick = false, ignore_meta = false;
    const char *rtol = NULL, *atol = NULL, *sort = NULL, *top = NULL, *depth = NULL;
    diff_listing listing = {0};
    const program_option table[] = {
        PROGRAM_VALUE("rtol", "X", "accept differences of at most X times B's value", &rtol),
        PROGRAM_VALUE("atol", "X",
                      "accept differences of at most X; with --rtol, of the sum of both limits",
                      &atol),
        PROGRAM_FLAG("quick", "do not read tensors that differ according to their checksums",
                     &quick),
        PROGRAM_FLAG("all", "list equal tensors, too", &listing.all),
        PROGRAM_VALUE("sort", "relative|max|mean|differing",
                      "list the tensors that differ most first", &sort),
        PROGRAM_VALUE("top", "N",
                      "list only the first N; without --sort, they are sorted by relative", &top),
        PROGRAM_VALUE("depth", "N", "list modules, N levels deep, instead of tensors", &depth),
        PROGRAM_FLAG("ignore-meta", "compare only tensors", &ignore_meta),
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
    if (!status) status = parse_listing(sort, top, depth, quick, &listing);
    if (status) return status;
    if (quick && options.tolerant)
        return program_refuse(
            "--quick does not measure all differences, which --rtol and --atol require");
    options.quick = quick;
    options.globs = args + 2;
    options.n_globs = (size_t)n - 2;
    status = launch_start(&job);
    if (!status)
        status = open_and_compare(&job, args, &options, &listing, n == 2 && !ignore_meta, json);
    launch_end(&job);
    return status;
}
