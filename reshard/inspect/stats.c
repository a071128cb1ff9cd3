/* The larger the checkpoint, the larger the chunks, so the number of chunks is bounded. Each rank
 * handles about the same number of chunks. */
#include "inspect/stats.h"

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/launch.h"
#include "io/threads.h"
#include "programs/fail.h"
#include "programs/program.h"

#define MOST_CHUNKS 65536u

static uint64_t bytes_of(const dcp_checkpoint *ckpt, size_t i) {
    return dcp_tensor_bytes(dcp_checkpoint_tensor(ckpt, i));
}

static uint64_t count_chunks(uint64_t bytes, uint64_t size) {
    return bytes / size + (bytes % size != 0);
}

static inspect_chunk chunk_at(size_t tensor, uint64_t first, uint64_t elems, uint64_t most,
                              uint64_t elem_bytes) {
    uint64_t n = elems - first < most ? elems - first : most;
    return (inspect_chunk){tensor, first, n, n * elem_bytes};
}

int inspect_chunks_cut(const dcp_checkpoint *ckpt, const unsigned char *take, inspect_chunks *out) {
    size_t tensors = dcp_checkpoint_tensors(ckpt), n = 0;
    *out = (inspect_chunks){0};
    for (size_t i = 0; i < tensors; i++)
        if (take[i]) out->bytes += bytes_of(ckpt, i);
    uint64_t size = (out->bytes / MOST_CHUNKS / CHUNKS_SLICE + 1) * CHUNKS_SLICE;
    for (size_t i = 0; i < tensors; i++)
        if (take[i]) n += count_chunks(bytes_of(ckpt, i), size);
    out->list = malloc((n + 1) * sizeof *out->list);
    if (!out->list) return program_no_memory();
    for (size_t i = 0; i < tensors; i++) {
        const dcp_tensor *t = dcp_checkpoint_tensor(ckpt, i);
        uint64_t elem = dcp_dtype_bytes(t->dtype), elems = dcp_tensor_bytes(t) / elem;
        for (uint64_t at = 0; take[i] && at < elems; at += size / elem)
            out->list[out->n++] = chunk_at(i, at, elems, size / elem, elem);
    }
    return 0;
}

void inspect_chunks_free(inspect_chunks *chunks) {
    free(chunks->list);
    *chunks = (inspect_chunks){0};
}

typedef struct chunks_run {
    const inspect_chunks *chunks;
    inspect_chunks_fn fn;
    void *ctx;
    uint64_t next, end;    /* the remaining chunks of this rank; its threads share `next` */
    uint64_t ready, total; /* the bytes that are done, and all bytes */
    progress_bar bar;
    int failed;
    dcp_error error; /* the first failure */
    pthread_mutex_t lock;
} chunks_run;

static void keep_failure(chunks_run *r, const dcp_error *err) {
    pthread_mutex_lock(&r->lock);
    if (!r->failed) r->error = *err;
    __atomic_store_n(&r->failed, 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&r->lock);
}

static void do_chunks(void *ctx, unsigned thread) {
    chunks_run *r = ctx;
    while (!__atomic_load_n(&r->failed, __ATOMIC_RELAXED)) {
        dcp_error err = {0};
        uint64_t i = __atomic_fetch_add(&r->next, 1, __ATOMIC_RELAXED);
        if (i >= r->end) break;
        if (r->fn(r->ctx, thread, (size_t)i, &err)) keep_failure(r, &err);
        uint64_t ready = __atomic_add_fetch(&r->ready, r->chunks->list[i].bytes, __ATOMIC_RELAXED);
        if (!thread) progress_bar_update(&r->bar, ready, r->total);
    }
}

int inspect_chunks_run(const launch *job, const inspect_chunks *chunks, const char *what,
                       inspect_chunks_fn fn, void *ctx) {
    chunks_run r = {.chunks = chunks,
                    .fn = fn,
                    .ctx = ctx,
                    .next = chunks->n * (uint64_t)job->rank / (uint64_t)job->size,
                    .end = chunks->n * ((uint64_t)job->rank + 1) / (uint64_t)job->size,
                    .lock = PTHREAD_MUTEX_INITIALIZER};
    const uint64_t n = r.end - r.next;
    unsigned threads = io_threads_cores(job->size, CHUNKS_THREADS);
    for (uint64_t i = r.next; i < r.end; i++) r.total += chunks->list[i].bytes;
    progress_bar_start(&r.bar, what);
    io_threads_run(threads < n ? threads : (unsigned)n, do_chunks, &r);
    progress_bar_end(&r.bar);
    pthread_mutex_destroy(&r.lock);
    return launch_worst(job, r.failed ? program_report(&r.error) : 0);
}

int inspect_chunks_prepare(inspect_chunks_reader *r, dcp_checkpoint *ckpt, dcp_error *err) {
    if (!r->data) r->data = malloc(CHUNKS_SLICE);
    if (r->data) return r->reader ? DCP_OK : dcp_reader_create(ckpt, &r->reader, err);
    return core_fail_memory(err, CHUNKS_SLICE);
}

void inspect_chunks_release(inspect_chunks_reader *r) {
    dcp_reader_destroy(r->reader);
    free(r->data);
}

int inspect_chunks_read(inspect_chunks_reader *r, const dcp_tensor *tensor, uint64_t first,
                        uint64_t n, dcp_error *err) {
    const dcp_box whole = dcp_box_whole(tensor);
    const uint64_t size = dcp_dtype_bytes(tensor->dtype);
    int status = DCP_OK;
    for (uint64_t done = 0, part; done < n && status == DCP_OK; done += part) {
        dcp_box piece;
        part = dcp_box_slice(tensor->ndim, &whole, first + done, n - done, &piece);
        status = dcp_reader_read(r->reader, tensor->path, &piece, r->data + done * size, err);
    }
    return status;
}

/* A batch is measured in two passes, so that small deviations from a large mean are not lost. Its
 * statistics are then joined to the statistics of the earlier batches (Chan, Golub, LeVeque
 * 1979). */

uint64_t inspect_stats_finite(const inspect_stats *s) { return s->n - s->nan - s->inf; }

static void count_special(inspect_stats *s, const double *values, uint64_t n) {
    uint64_t zeros = 0, nan = 0, inf = 0;
    for (uint64_t i = 0; i < n; i++) {
        zeros += values[i] == 0;
        nan += values[i] != values[i];
        inf += fabs(values[i]) == (double)INFINITY;
    }
    s->n = n;
    s->zeros = zeros;
    s->nan = nan;
    s->inf = inf;
}

enum { LANES = 8 };

typedef struct lanes {
    double min[LANES], max[LANES], sum[LANES], squares[LANES];
} lanes;

/* Adds n values, one to each lane. */
static void add_row(lanes *l, const double *values, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        l->sum[i] += values[i];
        l->min[i] = values[i] < l->min[i] ? values[i] : l->min[i];
        l->max[i] = values[i] > l->max[i] ? values[i] : l->max[i];
    }
}

static void add_squares(lanes *l, const double *values, uint64_t n, double mean) {
    for (uint64_t i = 0; i < n; i++) l->squares[i] += (values[i] - mean) * (values[i] - mean);
}

/* Measures finite values. Uses several lanes of sums, because processors add them
 * simultaneously. */
static void measure_batch(inspect_stats *s, const double *values, uint64_t n) {
    lanes l = {0};
    uint64_t whole = n - n % LANES;
    for (int i = 0; i < LANES; i++) l.min[i] = l.max[i] = values[0];
    for (uint64_t i = 0; i < whole; i += LANES) add_row(&l, values + i, LANES);
    add_row(&l, values + whole, n - whole);
    for (int i = 0; i < LANES; i++) s->mean += l.sum[i];
    s->mean /= (double)n;
    for (uint64_t i = 0; i < whole; i += LANES) add_squares(&l, values + i, LANES, s->mean);
    add_squares(&l, values + whole, n - whole, s->mean);
    s->min = l.min[0];
    s->max = l.max[0];
    for (int i = 0; i < LANES; i++) {
        s->min = l.min[i] < s->min ? l.min[i] : s->min;
        s->max = l.max[i] > s->max ? l.max[i] : s->max;
        s->squares += l.squares[i];
    }
}

/* Measures the finite values, and skips the others. */
static void measure_finite(inspect_stats *s, const double *values, uint64_t n) {
    double kept[256];
    inspect_stats all = {0};
    for (uint64_t i = 0, m = 0; i < n; i++) {
        if (isfinite(values[i])) kept[m++] = values[i];
        if (m == sizeof kept / sizeof *kept || (i + 1 == n && m)) {
            inspect_stats part = {.n = m};
            measure_batch(&part, kept, m);
            inspect_stats_join(&all, &part);
            m = 0;
        }
    }
    s->min = all.min;
    s->max = all.max;
    s->mean = all.mean;
    s->squares = all.squares;
}

void inspect_stats_join(inspect_stats *s, const inspect_stats *more) {
    uint64_t seen = inspect_stats_finite(s), added = inspect_stats_finite(more);
    if (added) {
        double total = (double)(seen + added), apart = more->mean - s->mean;
        s->min = seen && s->min < more->min ? s->min : more->min;
        s->max = seen && s->max > more->max ? s->max : more->max;
        s->squares += more->squares + apart * apart * (double)seen * (double)added / total;
        s->mean += apart * (double)added / total;
    }
    s->n += more->n;
    s->zeros += more->zeros;
    s->nan += more->nan;
    s->inf += more->inf;
}

void inspect_stats_add(inspect_stats *s, const double *values, uint64_t n) {
    inspect_stats batch = {0};
    if (!n) return;
    count_special(&batch, values, n);
    if (batch.nan || batch.inf)
        measure_finite(&batch, values, n);
    else
        measure_batch(&batch, values, n);
    inspect_stats_join(s, &batch);
}

double inspect_stats_std(const inspect_stats *s) {
    uint64_t finite = inspect_stats_finite(s);
    if (!isfinite(s->squares)) return (double)NAN; /* the sum of squares overflowed */
    return finite ? sqrt(s->squares / (double)finite) : 0;
}

enum { BIAS = 1023, TOP = HISTOGRAM_BINS - 1, WIDTH = 28 };

void inspect_histogram_add(inspect_histogram *h, const double *values, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        uint64_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        if (bits >> 63)
            h->negative[bits >> 52 & TOP]++;
        else
            h->positive[bits >> 52 & TOP]++;
        if (!(bits << 1)) /* zero has no magnitude */
            --*(bits >> 63 ? &h->negative[0] : &h->positive[0]);
    }
}

void inspect_histogram_join(inspect_histogram *h, const inspect_histogram *more) {
    for (int i = 0; i < HISTOGRAM_BINS; i++) {
        h->positive[i] += more->positive[i];
        h->negative[i] += more->negative[i];
    }
}

/* Finds the non-empty bins [*low, *high]; returns false if there are none. */
static bool find_range(const inspect_histogram *h, int *low, int *high) {
    *low = TOP;
    *high = -1;
    for (int i = 0; i < TOP; i++) {
        if (!h->positive[i] && !h->negative[i]) continue;
        if (i < *low) *low = i;
        *high = i;
    }
    return *high >= 0;
}

static uint64_t sum_bins(const uint64_t *bins, int from, int n) {
    uint64_t sum = 0;
    for (int i = from; i < from + n && i < TOP; i++) sum += bins[i];
    return sum;
}

/* Returns the length of a bar; at least one mark if n is not 0. */
static int length_of(uint64_t n, uint64_t most) {
    return n ? 1 + (int)((double)n / (double)most * (WIDTH - 1)) : 0;
}

static void draw_row(uint64_t negative, uint64_t positive, uint64_t most, uint64_t total,
                     double magnitude, FILE *out) {
    static const char marks[] = "############################";
    int left = length_of(negative, most), right = length_of(positive, most);
    fprintf(out, "  %9.2e %*s%.*s|%.*s%*s %6.2f%%\n", magnitude, WIDTH - left, "", left, marks,
            right, marks, WIDTH - right, "",
            total ? 100 * (double)(negative + positive) / (double)total : 0);
}

void inspect_histogram_draw(const inspect_histogram *h, uint64_t total, int rows, FILE *out) {
    int low, high;
    uint64_t most = 0;
    if (!find_range(h, &low, &high)) return;
    int group = (high - low) / rows + 1;
    for (int i = low; i <= high; i += group) {
        uint64_t negative = sum_bins(h->negative, i, group), n = sum_bins(h->positive, i, group);
        if (negative > n) n = negative;
        if (n > most) most = n;
    }
    fprintf(out, "  %-9s %*s|%s\n", "from", WIDTH, "negative", "positive");
    for (int i = low; i <= high; i += group)
        draw_row(sum_bins(h->negative, i, group), sum_bins(h->positive, i, group), most, total,
                 ldexp(1, i - BIAS), out);
}

json_t *inspect_histogram_json(const inspect_histogram *h) {
    int low, high;
    json_t *negative = json_array(), *positive = json_array();
    bool any = find_range(h, &low, &high);
    for (int i = low; any && i <= high; i++) {
        json_array_append_new(negative, json_integer((json_int_t)h->negative[i]));
        json_array_append_new(positive, json_integer((json_int_t)h->positive[i]));
    }
    if (any)
        return json_pack("{s:i, s:o, s:o}", "log2", low - BIAS, "negative", negative, "positive",
                         positive);
    json_decref(negative);
    json_decref(positive);
    return json_null();
}
