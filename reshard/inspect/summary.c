/* Windows' numbers are kept apart and joined in order, so that they are the same whatever the
 * number of threads and ranks; histograms are whole numbers, so a thread has one for each kind. */
#include "inspect/summary.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/element.h"
#include "inspect/choose.h"
#include "inspect/work.h"
#include "programs/program.h"

enum { BATCH = 2048 };

static const char files[] = "files";

static size_t find_kind(summary *s, const char *path) {
    char name[sizeof s->kinds[0].name];
    size_t length, k = 0;
    const char *start = module_kind(path, &length);
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

/* What the modules are of: everything but the optimizer's tensors and files. */
static int is_parameter(const char *path) {
    return strncmp(path, "/optimizer/", 11) != 0 && strncmp(path, "/files/", 7) != 0;
}

static int add_tensor(summary *s, size_t i) {
    const dcp_tensor *t = dcp_checkpoint_tensor(s->ckpt, i);
    kind *k = &s->kinds[find_kind(s, t->path)];
    s->kind_of[i] = (unsigned char)(k - s->kinds);
    k->tensors++;
    k->bytes += dcp_tensor_bytes(t);
    k->elems += dcp_tensor_bytes(t) / dcp_dtype_bytes(t->dtype);
    return is_parameter(t->path) ? modules_add(&s->modules, t) : 0;
}

int summary_make(dcp_checkpoint *ckpt, char *const *globs, size_t n_globs, unsigned depth,
                 summary *out) {
    size_t n = dcp_checkpoint_tensors(ckpt);
    unsigned char *matched = calloc(n_globs + 1, 1);
    *out = (summary){.ckpt = ckpt,
                     .take = calloc(n + 1, 1),
                     .kind_of = calloc(n + 1, 1),
                     .stats = calloc(n + 1, sizeof *out->stats),
                     .modules.most = depth};
    int failed = !matched || !out->take || !out->kind_of || !out->stats;
    for (size_t i = 0; i < n && !failed; i++) {
        const dcp_tensor *t = dcp_checkpoint_tensor(ckpt, i);
        out->tensor_bytes += dcp_tensor_bytes(t);
        out->take[i] = (unsigned char)choose_matches(globs, n_globs, t->path, matched);
        if (out->take[i]) failed = add_tensor(out, i);
    }
    int status = failed ? program_fail(PROGRAM_FAILED, "out of memory") : 0;
    for (size_t i = 0; i < n_globs && !status; i++)
        if (!matched[i]) status = program_fail(PROGRAM_USAGE, "no tensor matches '%s'", globs[i]);
    free(matched);
    return status;
}

void summary_free(summary *s) {
    free(s->take);
    free(s->kind_of);
    free(s->stats);
    modules_free(&s->modules);
}

typedef struct hand {
    dcp_reader *reader;
    char *data;            /* WORK_SLICE */
    histogram *histograms; /* [n_kinds] */
} hand;

typedef struct measuring {
    const summary *s;
    work work;
    stats *windows; /* [work.n] */
    hand hands[WORK_THREADS];
} measuring;

static int prepare(hand *h, const summary *s, dcp_error *err) {
    if (!h->data) h->data = malloc(WORK_SLICE);
    if (!h->histograms) h->histograms = calloc(s->n_kinds, sizeof *h->histograms);
    if (h->data && h->histograms)
        return h->reader ? DCP_OK : dcp_reader_create(s->ckpt, &h->reader, err);
    *err = (dcp_error){DCP_ERR_NO_MEMORY, -1, "out of memory"};
    return DCP_ERR_NO_MEMORY;
}

static int measure_window(void *ctx, unsigned thread, size_t i, dcp_error *err) {
    measuring *m = ctx;
    const work_window *w = &m->work.windows[i];
    const dcp_tensor *t = dcp_checkpoint_tensor(m->s->ckpt, w->tensor);
    uint64_t size = dcp_dtype_bytes(t->dtype);
    hand *h = &m->hands[thread];
    double batch[BATCH];
    int status = prepare(h, m->s, err);
    for (uint64_t at = 0, n; !status && at < w->elems; at += n) {
        n = w->elems - at < WORK_SLICE / size ? w->elems - at : WORK_SLICE / size;
        status = work_read(h->reader, t, w->first + at, n, h->data, err);
        for (uint64_t k = 0, part; !status && k < n; k += part) {
            part = n - k < BATCH ? n - k : BATCH;
            element_to_f64(t->dtype, h->data + k * size, part, batch);
            stats_add(&m->windows[i], batch, part);
            histogram_add(&h->histograms[m->s->kind_of[w->tensor]], batch, part);
        }
    }
    return status;
}

static void take_numbers(summary *s, const measuring *m) {
    for (size_t i = 0; i < m->work.n; i++) {
        size_t tensor = m->work.windows[i].tensor;
        stats_join(&s->stats[tensor], &m->windows[i]);
        stats_join(&s->kinds[s->kind_of[tensor]].stats, &m->windows[i]);
    }
    s->measured = 1;
}

static void join_histograms(const launch *job, summary *s, measuring *m) {
    for (size_t k = 0; k < s->n_kinds; k++) {
        for (size_t i = 0; i < WORK_THREADS; i++)
            if (m->hands[i].histograms)
                histogram_join(&s->kinds[k].histogram, &m->hands[i].histograms[k]);
        launch_sum(job, s->kinds[k].histogram.positive, HISTOGRAM_BINS);
        launch_sum(job, s->kinds[k].histogram.negative, HISTOGRAM_BINS);
    }
}

static int cut(summary *s, measuring *m, int with_files) {
    size_t n = dcp_checkpoint_tensors(s->ckpt);
    unsigned char *take = malloc(n + 1);
    if (!take) return program_fail(PROGRAM_FAILED, "out of memory");
    for (size_t i = 0; i < n; i++)
        take[i] = s->take[i] && (with_files || strcmp(s->kinds[s->kind_of[i]].name, files));
    int status = work_cut(s->ckpt, take, &m->work);
    if (!status) m->windows = calloc(m->work.n + 1, sizeof *m->windows);
    if (!status && !m->windows) status = program_fail(PROGRAM_FAILED, "out of memory");
    free(take);
    return status;
}

int summary_measure(const launch *job, summary *s, int with_files) {
    measuring m = {.s = s};
    int status = launch_worst(job, cut(s, &m, with_files));
    if (!status) status = work_run(job, &m.work, "reading", measure_window, &m);
    if (!status) {
        launch_collect(job, m.windows, m.work.n * sizeof *m.windows);
        join_histograms(job, s, &m);
        take_numbers(s, &m);
    }
    for (size_t i = 0; i < WORK_THREADS; i++) {
        dcp_reader_destroy(m.hands[i].reader);
        free(m.hands[i].data);
        free(m.hands[i].histograms);
    }
    free(m.windows);
    work_free(&m.work);
    return status;
}
