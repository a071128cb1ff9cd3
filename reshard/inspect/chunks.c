/* Chunks are the larger the more there is to read, so that their number is bounded. Each rank does
 * an equal number of them. */
#include "inspect/chunks.h"

#include <pthread.h>
#include <stdlib.h>

#include "common/progress_bar.h"
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
    uint64_t next, end;    /* chunks of this rank; `next` is shared */
    uint64_t ready, total; /* their bytes */
    progress_bar bar;
    int failed;
    dcp_error error; /* the first failure's */
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
