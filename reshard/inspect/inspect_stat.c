/* dcp-inspect stat: sizes by kind and module, and what the numbers are like. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/step_path.h"
#include "inspect/inspect.h"
#include "inspect/summary.h"
#include "inspect/text.h"
#include "programs/arguments.h"
#include "programs/program.h"

enum { DEPTH = 3, ROWS = 16, MOST_NAMED = 20 };

static uint64_t table_bytes(const summary *s) {
    return dcp_checkpoint_file_bytes(s->ckpt) - s->tensor_bytes;
}

static void print_kinds(const summary *s) {
    char tensors[32], elems[32], bytes[32];
    printf("%-16s %10s %18s %10s\n", "kind", "tensors", "elements", "bytes");
    for (size_t i = 0; i < s->n_kinds; i++) {
        const kind *k = &s->kinds[i];
        printf("%-16s %10s %18s %10s\n", k->name, text_count(k->tensors, tensors),
               text_count(k->elems, elems), program_bytes_text(k->bytes, bytes));
    }
    printf("%-16s %10s %18s %10s\n", "tables", "", "", program_bytes_text(table_bytes(s), bytes));
}

/* Parameters of all modules of depth 1. */
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
    printf("%-40s %18s %6.1f%%\n", "all", text_count(all, elems), 100.0);
    for (size_t i = 0; i < s->modules.n; i++) {
        const module *m = &s->modules.list[i];
        text_name(m->path, name);
        snprintf(line, sizeof line, "%*s%.*s", (int)(2 * (m->depth - 1)), "",
                 (int)(m->length - m->own), name + m->own);
        printf("%-40s %18s %6.1f%% %10s\n", line, text_count(m->elems, elems),
               all ? 100 * (double)m->elems / (double)all : 0, program_bytes_text(m->bytes, bytes));
    }
}

static void print_numbers(const summary *s) {
    char nan[32], inf[32];
    printf("\n%-16s %8s %8s %8s %12s %12s %12s %12s\n", "kind", "zeros", "NaN", "Inf", "min", "max",
           "mean", "std");
    for (size_t i = 0; i < s->n_kinds; i++) {
        const stats *n = &s->kinds[i].stats;
        if (!n->n) continue;
        printf("%-16s %7.2f%% %8s %8s %12.5g %12.5g %12.5g %12.5g\n", s->kinds[i].name,
               100 * (double)n->zeros / (double)n->n, text_count(n->nan, nan),
               text_count(n->inf, inf), n->min, n->max, n->mean, stats_std(n));
    }
}

static void print_nonfinite(const summary *s) {
    char name[TEXT_PATH], nan[32], inf[32];
    size_t found = 0;
    for (size_t i = 0; i < dcp_checkpoint_tensors(s->ckpt); i++) {
        const stats *n = &s->stats[i];
        if (!n->nan && !n->inf) continue;
        if (!found) printf("\n");
        if (found++ < MOST_NAMED)
            printf("%s: %s NaN, %s Inf\n", text_name(dcp_checkpoint_tensor(s->ckpt, i)->path, name),
                   text_count(n->nan, nan), text_count(n->inf, inf));
    }
    if (found > MOST_NAMED) printf("and %zu more tensors with NaN or Inf\n", found - MOST_NAMED);
}

static void print_histograms(const summary *s) {
    for (size_t i = 0; i < s->n_kinds; i++) {
        const kind *k = &s->kinds[i];
        if (stats_finite(&k->stats) == k->stats.zeros) continue;
        printf("\nmagnitudes of %s\n", k->name);
        histogram_draw(&k->histogram, k->stats.n, ROWS, stdout);
    }
}

static void print_text(const summary *s) {
    char bytes[32];
    printf("%s: step %" PRIu64 ", %s in %d file%s, %s\n\n", dcp_checkpoint_path(s->ckpt),
           dcp_checkpoint_step(s->ckpt), text_layout(s->ckpt), dcp_checkpoint_files(s->ckpt),
           dcp_checkpoint_files(s->ckpt) == 1 ? "" : "s",
           program_bytes_text(dcp_checkpoint_file_bytes(s->ckpt), bytes));
    print_kinds(s);
    print_modules(s);
    if (!s->measured) return;
    print_numbers(s);
    print_nonfinite(s);
    print_histograms(s);
}

static void add_numbers(json_t *root, const stats *n) {
    int any = stats_finite(n) > 0;
    json_object_set_new(root, "zeros", text_count_json(n->zeros));
    json_object_set_new(root, "nan", text_count_json(n->nan));
    json_object_set_new(root, "inf", text_count_json(n->inf));
    json_object_set_new(root, "min", text_real_json(any ? n->min : (double)NAN));
    json_object_set_new(root, "max", text_real_json(any ? n->max : (double)NAN));
    json_object_set_new(root, "mean", text_real_json(any ? n->mean : (double)NAN));
    json_object_set_new(root, "std", text_real_json(any ? stats_std(n) : (double)NAN));
}

static json_t *kinds_json(const summary *s) {
    json_t *list = json_array();
    for (size_t i = 0; i < s->n_kinds; i++) {
        const kind *k = &s->kinds[i];
        json_t *name = json_string(k->name); /* one that was cut may end inside a character */
        json_t *root = json_pack("{s:o, s:o, s:o, s:o}", "kind", name ? name : json_string("?"),
                                 "tensors", text_count_json(k->tensors), "elements",
                                 text_count_json(k->elems), "bytes", text_count_json(k->bytes));
        if (k->stats.n) {
            add_numbers(root, &k->stats);
            json_object_set_new(root, "histogram", histogram_json(&k->histogram));
        }
        json_array_append_new(list, root);
    }
    return list;
}

static json_t *modules_json(const summary *s) {
    json_t *list = json_array();
    for (size_t i = 0; i < s->modules.n; i++) {
        const module *m = &s->modules.list[i];
        size_t length, start = (size_t)(module_kind(m->path, &length) - m->path);
        start += length + 1;
        json_array_append_new(
            list, json_pack("{s:o, s:i, s:o, s:o, s:o}", "module",
                            json_stringn(m->path + start, m->length - start), "depth",
                            (int)m->depth, "tensors", text_count_json(m->tensors), "parameters",
                            text_count_json(m->elems), "bytes", text_count_json(m->bytes)));
    }
    return list;
}

static json_t *tensors_json(const summary *s) {
    json_t *list = json_array();
    for (size_t i = 0; i < dcp_checkpoint_tensors(s->ckpt); i++) {
        if (!s->take[i]) continue;
        json_t *root = text_tensor_json(dcp_checkpoint_tensor(s->ckpt, i));
        if (s->stats[i].n) add_numbers(root, &s->stats[i]);
        json_array_append_new(list, root);
    }
    return list;
}

static void print_json(const summary *s) {
    json_t *root = text_checkpoint_json(s->ckpt);
    json_object_set_new(root, "bytes", text_count_json(dcp_checkpoint_file_bytes(s->ckpt)));
    json_object_set_new(root, "table_bytes", text_count_json(table_bytes(s)));
    json_object_set_new(root, "parameters", text_count_json(parameters(s)));
    json_object_set_new(root, "kinds", kinds_json(s));
    json_object_set_new(root, "modules", modules_json(s));
    json_object_set_new(root, "tensors", tensors_json(s));
    inspect_print_json(root);
}

typedef struct request {
    char **args;
    int n, quick, json;
    uint64_t depth;
} request;

static int summarize(const launch *job, dcp_checkpoint *ckpt, const request *q) {
    summary *s = calloc(1, sizeof *s);
    int status = s ? 0 : program_fail(PROGRAM_FAILED, "out of memory");
    if (!status) status = summary_make(ckpt, q->args + 1, (size_t)q->n - 1, (unsigned)q->depth, s);
    status = launch_worst(job, status);
    if (!status && !q->quick) status = summary_measure(job, s, q->n > 1);
    if (!status && !job->rank) {
        if (q->json)
            print_json(s);
        else
            print_text(s);
    }
    if (s) summary_free(s);
    free(s);
    return status;
}

static const char about[] =
    "Common use:\n"
    "  dcp-inspect stat ckpt                          all of the newest complete step\n"
    "  dcp-inspect stat ckpt 'model/*q_proj*'         some tensors\n"
    "  dcp-inspect stat ckpt --quick --depth 2        sizes alone, which reads no tensor\n"
    "\n"
    "Prints bytes by kind (model, the optimizer's exp_avg and exp_avg_sq, files, and tables: what "
    "is\n"
    "no tensor), parameters by module, and of the numbers how many are zero, NaN or infinite, "
    "their\n"
    "smallest, largest, mean, standard deviation (of what is finite), and a histogram of their\n"
    "magnitudes. GLOBs name tensors, by path or without /model/. Of /files numbers are only told\n"
    "where a GLOB names them. All cores work; under mpirun all ranks do.\n"
    "\n"
    "JSON: path, step, layout, files, bytes, table_bytes, parameters, kinds (kind, tensors, "
    "elements,\n"
    "bytes; where it was read zeros, nan, inf, min, max, mean, std, histogram: log2, negative,\n"
    "positive), modules (module, depth, tensors, parameters, bytes), tensors (path, dtype, shape,\n"
    "bytes; where it was read zeros to std).";

int inspect_stat(int argc, char **argv) {
    request q = {.depth = DEPTH};
    const char *depth = NULL;
    const program_option options[] = {
        PROGRAM_VALUE("depth", "N", "levels of modules to show (3)", &depth),
        PROGRAM_FLAG("quick", "sizes alone, from the tables", &q.quick),
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
