/* dcp-inspect stat: prints sizes by kind and module, and statistics of the numbers.
 *
 * Each chunk has its own statistics, which are joined in order, so the results do not depend on the
 * number of threads and ranks. A histogram consists of integers, which can be added in any order,
 * so each thread has one histogram per kind. */
#include "inspect/commands.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/element.h"
#include "common/launch.h"
#include "inspect/ranking.h"
#include "inspect/stats.h"
#include "inspect/text.h"
#include "programs/arguments.h"
#include "programs/fail.h"
#include "programs/program.h"

enum { SUMMARY_KINDS = 16 }; /* further kinds are counted together */

typedef struct stat_kind {
    char name[40];
    size_t tensors;
    uint64_t elems, bytes;
    inspect_stats stats;
    inspect_histogram histogram;
} stat_kind;

typedef struct summary {
    dcp_checkpoint *ckpt;
    unsigned char *take; /* [tensors] nonzero: the tensor is included */
    unsigned char *kind_of;
    inspect_stats *stats; /* [tensors] the statistics of the tensors that were read */
    stat_kind kinds[SUMMARY_KINDS];
    size_t n_kinds;
    inspect_modules modules; /* modules of the parameters */
    uint64_t tensor_bytes;   /* of all tensors, whether included or not */
    bool measured;
} summary;

enum { BATCH = 2048 };

static const char files[] = "files";

static size_t find_kind(summary *s, const char *path) {
    char name[sizeof s->kinds[0].name];
    size_t length, k = 0;
    const char *start = inspect_modules_kind(path, &length);
    snprintf(name, sizeof name, "%.*s", (int)(length < 200 ? length : 200), start);
    while (k < s->n_kinds && strcmp(s->kinds[k].name, name)) k++;
    if (k < s->n_kinds) return k;
    if (s->n_kinds < SUMMARY_KINDS) {
        memcpy(s->kinds[s->n_kinds].name, name, sizeof name);
        return s->n_kinds++;
    }
    strcpy(s->kinds[SUMMARY_KINDS - 1].name, "others");
    return SUMMARY_KINDS - 1;
}

/* Returns true for tensors that are counted in modules: all except the optimizer's tensors and
 * files. */
static bool is_parameter(const char *path) {
    return strncmp(path, "/optimizer/", 11) != 0 && strncmp(path, "/files/", 7) != 0;
}

static int add_to_kind(summary *s, size_t i) {
    const dcp_tensor *t = dcp_checkpoint_tensor(s->ckpt, i);
    stat_kind *k = &s->kinds[find_kind(s, t->path)];
    s->kind_of[i] = (unsigned char)(k - s->kinds);
    k->tensors++;
    k->bytes += dcp_tensor_bytes(t);
    k->elems += dcp_tensor_bytes(t) / dcp_dtype_bytes(t->dtype);
    return is_parameter(t->path) ? inspect_modules_add(&s->modules, t) : 0;
}

/* Adds up the sizes of the tensors that match the globs, or of all tensors without globs. Counts
 * modules that are at most `depth` levels deep. Returns an exit status. */
static int summarize_sizes(dcp_checkpoint *ckpt, char *const *globs, size_t n_globs, unsigned depth,
                           summary *out) {
    size_t n = dcp_checkpoint_tensors(ckpt);
    *out = (summary){.ckpt = ckpt,
                     .take = calloc(n + 1, 1),
                     .kind_of = calloc(n + 1, 1),
                     .stats = calloc(n + 1, sizeof *out->stats),
                     .modules.most = depth};
    int failed = !out->take || !out->kind_of || !out->stats;
    int status = failed ? 0 : inspect_filter_tensors(ckpt, globs, n_globs, out->take);
    for (size_t i = 0; i < n && !failed && !status; i++) {
        out->tensor_bytes += dcp_tensor_bytes(dcp_checkpoint_tensor(ckpt, i));
        if (out->take[i]) failed = add_to_kind(out, i);
    }
    return failed ? program_no_memory() : status;
}

static void free_summary(summary *s) {
    free(s->take);
    free(s->kind_of);
    free(s->stats);
    inspect_modules_free(&s->modules);
}

typedef struct stat_worker {
    inspect_chunks_reader reader;
    inspect_histogram *histograms; /* [n_kinds] */
} stat_worker;

typedef struct stat_measuring {
    const summary *s;
    inspect_chunks chunks;
    inspect_stats *sums; /* [chunks.n] */
    stat_worker workers[CHUNKS_THREADS];
} stat_measuring;

static int prepare_worker(stat_worker *h, const summary *s, dcp_error *err) {
    if (!h->histograms) h->histograms = calloc(s->n_kinds, sizeof *h->histograms);
    if (h->histograms) return inspect_chunks_prepare(&h->reader, s->ckpt, err);
    return core_fail_memory(err, s->n_kinds * sizeof *h->histograms);
}

static int measure_chunk(void *ctx, unsigned thread, size_t i, dcp_error *err) {
    stat_measuring *m = ctx;
    const inspect_chunk *c = &m->chunks.list[i];
    const dcp_tensor *t = dcp_checkpoint_tensor(m->s->ckpt, c->tensor);
    uint64_t size = dcp_dtype_bytes(t->dtype);
    stat_worker *h = &m->workers[thread];
    double batch[BATCH];
    int status = prepare_worker(h, m->s, err);
    for (uint64_t at = 0, n; !status && at < c->elems; at += n) {
        n = c->elems - at < CHUNKS_SLICE / size ? c->elems - at : CHUNKS_SLICE / size;
        status = inspect_chunks_read(&h->reader, t, c->first + at, n, err);
        for (uint64_t k = 0, part; !status && k < n; k += part) {
            part = n - k < BATCH ? n - k : BATCH;
            element_to_f64(t->dtype, h->reader.data + k * size, part, batch);
            inspect_stats_add(&m->sums[i], batch, part);
            inspect_histogram_add(&h->histograms[m->s->kind_of[c->tensor]], batch, part);
        }
    }
    return status;
}

static void join_numbers(summary *s, const stat_measuring *m) {
    for (size_t i = 0; i < m->chunks.n; i++) {
        size_t tensor = m->chunks.list[i].tensor;
        inspect_stats_join(&s->stats[tensor], &m->sums[i]);
        inspect_stats_join(&s->kinds[s->kind_of[tensor]].stats, &m->sums[i]);
    }
    s->measured = true;
}

static void join_histograms(const launch *job, summary *s, stat_measuring *m) {
    for (size_t k = 0; k < s->n_kinds; k++) {
        for (size_t i = 0; i < CHUNKS_THREADS; i++)
            if (m->workers[i].histograms)
                inspect_histogram_join(&s->kinds[k].histogram, &m->workers[i].histograms[k]);
        launch_sum(job, s->kinds[k].histogram.positive, HISTOGRAM_BINS);
        launch_sum(job, s->kinds[k].histogram.negative, HISTOGRAM_BINS);
    }
}

static int cut_chunks(summary *s, stat_measuring *m, bool with_files) {
    size_t n = dcp_checkpoint_tensors(s->ckpt);
    unsigned char *take = malloc(n + 1);
    if (!take) return program_no_memory();
    for (size_t i = 0; i < n; i++)
        take[i] = s->take[i] && (with_files || strcmp(s->kinds[s->kind_of[i]].name, files));
    int status = inspect_chunks_cut(s->ckpt, take, &m->chunks);
    if (!status) m->sums = calloc(m->chunks.n + 1, sizeof *m->sums);
    if (!status && !m->sums) status = program_no_memory();
    free(take);
    return status;
}

/* Reads the tensors and computes their statistics, which rank 0 receives. Tensors in /files are
 * read only with `with_files`, which is set if globs select the tensors. Returns an exit status.
 * Collective. */
static int summarize_numbers(const launch *job, summary *s, bool with_files) {
    stat_measuring m = {.s = s};
    int status = launch_worst(job, cut_chunks(s, &m, with_files));
    if (!status) status = inspect_chunks_run(job, &m.chunks, "reading", measure_chunk, &m);
    if (!status) {
        launch_collect(job, m.sums, m.chunks.n * sizeof *m.sums);
        join_histograms(job, s, &m);
        join_numbers(s, &m);
    }
    for (size_t i = 0; i < CHUNKS_THREADS; i++) {
        inspect_chunks_release(&m.workers[i].reader);
        free(m.workers[i].histograms);
    }
    free(m.sums);
    inspect_chunks_free(&m.chunks);
    return status;
}

enum { DEPTH = 3, ROWS = 16, MOST_NAMED = 20 };

static uint64_t table_bytes(const summary *s) {
    return dcp_checkpoint_file_bytes(s->ckpt) - s->tensor_bytes;
}

static void print_kinds(const summary *s) {
    char tensors[32], elems[32], bytes[32];
    printf("%-16s %10s %18s %10s\n", "kind", "tensors", "elements", "bytes");
    for (size_t i = 0; i < s->n_kinds; i++) {
        const stat_kind *k = &s->kinds[i];
        printf("%-16s %10s %18s %10s\n", k->name, inspect_text_count(k->tensors, tensors),
               inspect_text_count(k->elems, elems), program_bytes_text(k->bytes, bytes));
    }
    printf("%-16s %10s %18s %10s\n", "tables", "", "", program_bytes_text(table_bytes(s), bytes));
}

/* Returns the number of parameters: the sum over all modules of depth 1. */
static uint64_t parameters(const summary *s) {
    uint64_t all = 0;
    for (size_t i = 0; i < s->modules.n; i++)
        if (s->modules.list[i].depth == 1) all += s->modules.list[i].elems;
    return all;
}

static void print_modules(const summary *s) {
    char name[TEXT_PATH], line[64], elems[32], bytes[32];
    uint64_t all = parameters(s);
    if (!s->modules.n) return;
    printf("\n%-40s %18s %7s %10s\n", "module", "parameters", "", "bytes");
    printf("%-40s %18s %6.1f%%\n", "all", inspect_text_count(all, elems), 100.0);
    for (size_t i = 0; i < s->modules.n; i++) {
        const inspect_module *m = &s->modules.list[i];
        inspect_text_name(m->path, name);
        snprintf(line, sizeof line, "%*s%.*s", (int)(2 * (m->depth - 1)), "",
                 (int)(m->length - m->own), name + m->own);
        printf("%-40s %18s %6.1f%% %10s\n", line, inspect_text_count(m->elems, elems),
               all ? 100 * (double)m->elems / (double)all : 0, program_bytes_text(m->bytes, bytes));
    }
}

static void print_numbers(const summary *s) {
    char nan[32], inf[32];
    printf("\n%-16s %8s %8s %8s %12s %12s %12s %12s\n", "kind", "zeros", "NaN", "Inf", "min", "max",
           "mean", "std");
    for (size_t i = 0; i < s->n_kinds; i++) {
        const inspect_stats *n = &s->kinds[i].stats;
        if (!n->n) continue;
        printf("%-16s %7.2f%% %8s %8s %12.5g %12.5g %12.5g %12.5g\n", s->kinds[i].name,
               100 * (double)n->zeros / (double)n->n, inspect_text_count(n->nan, nan),
               inspect_text_count(n->inf, inf), n->min, n->max, n->mean, inspect_stats_std(n));
    }
}

static void print_nonfinite(const summary *s) {
    char name[TEXT_PATH], nan[32], inf[32];
    size_t found = 0;
    for (size_t i = 0; i < dcp_checkpoint_tensors(s->ckpt); i++) {
        const inspect_stats *n = &s->stats[i];
        if (!n->nan && !n->inf) continue;
        if (!found) printf("\n");
        if (found++ < MOST_NAMED)
            printf("%s: %s NaN, %s Inf\n",
                   inspect_text_name(dcp_checkpoint_tensor(s->ckpt, i)->path, name),
                   inspect_text_count(n->nan, nan), inspect_text_count(n->inf, inf));
    }
    if (found > MOST_NAMED) printf("and %zu more tensors with NaN or Inf\n", found - MOST_NAMED);
}

static void print_histograms(const summary *s) {
    for (size_t i = 0; i < s->n_kinds; i++) {
        const stat_kind *k = &s->kinds[i];
        if (inspect_stats_finite(&k->stats) == k->stats.zeros) continue;
        printf("\nmagnitudes of %s\n", k->name);
        inspect_histogram_draw(&k->histogram, k->stats.n, ROWS, stdout);
    }
}

static void print_stat_text(const summary *s) {
    char bytes[32];
    printf("%s: step %" PRIu64 ", %s in %d file%s, %s\n\n", dcp_checkpoint_path(s->ckpt),
           dcp_checkpoint_step(s->ckpt), inspect_text_layout(s->ckpt),
           dcp_checkpoint_files(s->ckpt), dcp_checkpoint_files(s->ckpt) == 1 ? "" : "s",
           program_bytes_text(dcp_checkpoint_file_bytes(s->ckpt), bytes));
    print_kinds(s);
    print_modules(s);
    if (!s->measured) return;
    print_numbers(s);
    print_nonfinite(s);
    print_histograms(s);
}

static void add_numbers(json_t *root, const inspect_stats *n) {
    bool any = inspect_stats_finite(n) > 0;
    json_object_set_new(root, "zeros", inspect_count_json(n->zeros));
    json_object_set_new(root, "nan", inspect_count_json(n->nan));
    json_object_set_new(root, "inf", inspect_count_json(n->inf));
    json_object_set_new(root, "min", inspect_real_json(any ? n->min : (double)NAN));
    json_object_set_new(root, "max", inspect_real_json(any ? n->max : (double)NAN));
    json_object_set_new(root, "mean", inspect_real_json(any ? n->mean : (double)NAN));
    json_object_set_new(root, "std", inspect_real_json(any ? inspect_stats_std(n) : (double)NAN));
}

static json_t *kinds_json(const summary *s) {
    json_t *list = json_array();
    for (size_t i = 0; i < s->n_kinds; i++) {
        const stat_kind *k = &s->kinds[i];
        json_t *name = json_string(k->name); /* a truncated name may end inside a character */
        json_t *root =
            json_pack("{s:o, s:o, s:o, s:o}", "kind", name ? name : json_string("?"), "tensors",
                      inspect_count_json(k->tensors), "elements", inspect_count_json(k->elems),
                      "bytes", inspect_count_json(k->bytes));
        if (k->stats.n) {
            add_numbers(root, &k->stats);
            json_object_set_new(root, "histogram", inspect_histogram_json(&k->histogram));
        }
        json_array_append_new(list, root);
    }
    return list;
}

static json_t *modules_json(const summary *s) {
    json_t *list = json_array();
    for (size_t i = 0; i < s->modules.n; i++) {
        const inspect_module *m = &s->modules.list[i];
        size_t length, start = (size_t)(inspect_modules_kind(m->path, &length) - m->path);
        start += length + 1;
        json_array_append_new(
            list, json_pack("{s:o, s:i, s:o, s:o, s:o}", "module",
                            json_stringn(m->path + start, m->length - start), "depth",
                            (int)m->depth, "tensors", inspect_count_json(m->tensors), "parameters",
                            inspect_count_json(m->elems), "bytes", inspect_count_json(m->bytes)));
    }
    return list;
}

static json_t *tensors_json(const summary *s) {
    json_t *list = json_array();
    for (size_t i = 0; i < dcp_checkpoint_tensors(s->ckpt); i++) {
        if (!s->take[i]) continue;
        json_t *root = inspect_tensor_json(dcp_checkpoint_tensor(s->ckpt, i));
        if (s->stats[i].n) add_numbers(root, &s->stats[i]);
        json_array_append_new(list, root);
    }
    return list;
}

static void print_stat_json(const summary *s) {
    json_t *root = inspect_checkpoint_json(s->ckpt);
    json_object_set_new(root, "bytes", inspect_count_json(dcp_checkpoint_file_bytes(s->ckpt)));
    json_object_set_new(root, "table_bytes", inspect_count_json(table_bytes(s)));
    json_object_set_new(root, "parameters", inspect_count_json(parameters(s)));
    json_object_set_new(root, "kinds", kinds_json(s));
    json_object_set_new(root, "modules", modules_json(s));
    json_object_set_new(root, "tensors", tensors_json(s));
    inspect_text_print_json(root);
}

typedef struct stat_request {
    char **args;
    int n;
    bool quick, json;
    uint64_t depth;
} stat_request;

static int summarize(const launch *job, dcp_checkpoint *ckpt, const stat_request *q) {
    summary *s = calloc(1, sizeof *s);
    int status = s ? 0 : program_no_memory();
    if (!status)
        status = summarize_sizes(ckpt, q->args + 1, (size_t)q->n - 1, (unsigned)q->depth, s);
    status = launch_worst(job, status);
    if (!status && !q->quick) status = summarize_numbers(job, s, q->n > 1);
    if (!status && !job->rank) {
        if (q->json)
            print_stat_json(s);
        else
            print_stat_text(s);
    }
    if (s) free_summary(s);
    free(s);
    return status;
}

static const char about[] =
    "Common use:\n"
    "  dcp-inspect stat ckpt                          all of the newest complete step\n"
    "  dcp-inspect stat ckpt 'model/*q_proj*'         some tensors\n"
    "  dcp-inspect stat ckpt --quick --depth 2        only sizes, without reading tensors\n"
    "\n"
    "Prints bytes by kind (model, the optimizer's exp_avg and exp_avg_sq, files, and tables,\n"
    "which are everything outside tensors) and parameters by module. For the numbers, prints\n"
    "how many are zero, NaN or infinite, the smallest, largest, mean and standard deviation of\n"
    "the finite ones, and a histogram of their magnitudes. GLOBs select tensors by their\n"
    "paths, with or without /model/. Numbers in /files are counted only if a GLOB matches\n"
    "them. All cores work.\n"
    "Under mpirun the ranks share the work.\n"
    "\n"
    "JSON: path, step, layout, files, bytes, table_bytes, parameters, kinds (kind, tensors,\n"
    "elements, bytes; for kinds that were read also zeros, nan, inf, min, max, mean, std,\n"
    "histogram: log2, negative, positive), modules (module, depth, tensors, parameters,\n"
    "bytes), tensors (path, dtype, shape, bytes; for tensors that were read also zeros to std).";

int inspect_stat(int argc, char **argv) {
    stat_request q = {.depth = DEPTH};
    const char *depth = NULL;
    const program_option options[] = {
        PROGRAM_VALUE("depth", "N", "levels of modules to show (3)", &depth),
        PROGRAM_FLAG("quick", "print only sizes, from the tables", &q.quick),
        {0}};
    const program_command program = {.name = "dcp-inspect",
                                     .usage = "stat CKPT [GLOB...] [options]",
                                     .about = about,
                                     .options = options,
                                     .json = &q.json};
    dcp_error err = {0};
    dcp_checkpoint *ckpt;
    launch job;
    int status = program_arguments_parse(&program, argc, argv, 1, 1 << 20, &q.args, &q.n);
    if (status >= 0) return status;
    if (depth && program_count_parse("--depth", depth, 1, MODULES_DEPTH, &q.depth))
        return PROGRAM_USAGE;
    status = launch_start(&job);
    if (!status && dcp_checkpoint_open(job.comm, q.args[0], &ckpt, &err)) {
        status = program_report(&err);
    } else if (!status) {
        status = summarize(&job, ckpt, &q);
        dcp_checkpoint_close(ckpt);
    }
    if (status == PROGRAM_DIFFERS && !job.rank) step_path_note_older(q.args[0]);
    launch_end(&job);
    return status;
}
