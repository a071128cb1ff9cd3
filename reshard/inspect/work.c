/* Windows grow with the work, so that their number is bounded. A rank has those that begin in its
 * share of the bytes. */
#include "inspect/work.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "common/progress.h"
#include "programs/program.h"

#define MOST_WINDOWS 65536u
#define STACK_BYTES (512u << 10)

static uint64_t bytes_of(const dcp_checkpoint *ckpt, size_t i) {
    return dcp_tensor_bytes(dcp_checkpoint_tensor(ckpt, i));
}

static uint64_t windows_of(uint64_t bytes, uint64_t size) {
    return bytes / size + (bytes % size != 0);
}

static work_window window_at(size_t tensor, uint64_t first, uint64_t elems, uint64_t most,
                             uint64_t elem_bytes) {
    uint64_t n = elems - first < most ? elems - first : most;
    return (work_window){tensor, first, n, n * elem_bytes};
}

int work_cut(const dcp_checkpoint *ckpt, const unsigned char *take, work *out) {
    size_t tensors = dcp_checkpoint_tensors(ckpt), n = 0;
    *out = (work){0};
    for (size_t i = 0; i < tensors; i++)
        if (take[i]) out->bytes += bytes_of(ckpt, i);
    uint64_t size = (out->bytes / MOST_WINDOWS / WORK_SLICE + 1) * WORK_SLICE;
    for (size_t i = 0; i < tensors; i++)
        if (take[i]) n += windows_of(bytes_of(ckpt, i), size);
    out->windows = malloc((n + 1) * sizeof *out->windows);
    if (!out->windows) return program_fail(PROGRAM_FAILED, "out of memory");
    for (size_t i = 0; i < tensors; i++) {
        const dcp_tensor *t = dcp_checkpoint_tensor(ckpt, i);
        uint64_t elem = dcp_dtype_bytes(t->dtype), elems = dcp_tensor_bytes(t) / elem;
        for (uint64_t at = 0; take[i] && at < elems; at += size / elem)
            out->windows[out->n++] = window_at(i, at, elems, size / elem, elem);
    }
    return 0;
}

void work_free(work *w) {
    free(w->windows);
    *w = (work){0};
}

typedef struct run {
    const work *work;
    work_fn fn;
    void *ctx;
    uint64_t next, end;    /* windows of this rank; `next` is shared */
    uint64_t ready, total; /* their bytes */
    progress_bar bar;
    int failed;
    dcp_error error; /* the first failure's */
    pthread_mutex_t lock;
} run;

typedef struct worker {
    run *run;
    unsigned number;
} worker;

static void keep_failure(run *r, const dcp_error *err) {
    pthread_mutex_lock(&r->lock);
    if (!r->failed) r->error = *err;
    __atomic_store_n(&r->failed, 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&r->lock);
}

static void *take_windows(void *ctx) {
    const worker *w = ctx;
    run *r = w->run;
    while (!__atomic_load_n(&r->failed, __ATOMIC_RELAXED)) {
        dcp_error err = {0};
        uint64_t i = __atomic_fetch_add(&r->next, 1, __ATOMIC_RELAXED);
        if (i >= r->end) break;
        if (r->fn(r->ctx, w->number, (size_t)i, &err)) keep_failure(r, &err);
        uint64_t ready = __atomic_add_fetch(&r->ready, r->work->windows[i].bytes, __ATOMIC_RELAXED);
        if (!w->number) progress_update(&r->bar, ready, r->total);
    }
    return NULL;
}

static unsigned threads_of(const launch *job) {
    cpu_set_t set;
    int cores = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    cores /= job->size;
    if (cores < 1) return 1;
    return (unsigned)cores < WORK_THREADS ? (unsigned)cores : WORK_THREADS;
}

static unsigned start_threads(unsigned n, pthread_t *ids, worker *workers) {
    pthread_attr_t attributes;
    unsigned started = 0;
    if (pthread_attr_init(&attributes)) return 0;
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    while (started < n &&
           !pthread_create(&ids[started], &attributes, take_windows, &workers[started]))
        started++;
    pthread_attr_destroy(&attributes);
    return started;
}

int work_run(const launch *job, const work *w, const char *what, work_fn fn, void *ctx) {
    run r = {.work = w,
             .fn = fn,
             .ctx = ctx,
             .next = w->n * (uint64_t)job->rank / (uint64_t)job->size,
             .end = w->n * ((uint64_t)job->rank + 1) / (uint64_t)job->size,
             .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t ids[WORK_THREADS];
    worker workers[WORK_THREADS];
    unsigned n = threads_of(job);
    if (n > r.end - r.next) n = r.end - r.next ? (unsigned)(r.end - r.next) : 1;
    for (uint64_t i = r.next; i < r.end; i++) r.total += w->windows[i].bytes;
    progress_start(&r.bar, what);
    for (unsigned i = 0; i < WORK_THREADS; i++) workers[i] = (worker){&r, i};
    unsigned started = start_threads(n - 1, ids, workers + 1);
    take_windows(&workers[0]);
    for (unsigned i = 0; i < started; i++) pthread_join(ids[i], NULL);
    progress_end(&r.bar);
    pthread_mutex_destroy(&r.lock);
    return launch_worst(job, r.failed ? program_report(&r.error) : 0);
}

int work_read(dcp_reader *reader, const dcp_tensor *tensor, uint64_t first, uint64_t n, void *out,
              dcp_error *err) {
    const dcp_box whole = dcp_box_whole(tensor);
    uint64_t size = dcp_dtype_bytes(tensor->dtype);
    for (uint64_t done = 0, part; done < n; done += part) {
        dcp_box piece;
        part = dcp_box_slice(tensor->ndim, &whole, first + done, n - done, &piece);
        int status = dcp_reader_read(reader, tensor->path, &piece, (char *)out + done * size, err);
        if (status) return status;
    }
    return DCP_OK;
}
