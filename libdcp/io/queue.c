/* A request that was completed only in part is sent again for the rest, so the caller sees whole
 * requests or a failure. A read beyond the end of a file fails: sizes have already been checked.
 *
 * Some file systems accept O_DIRECT when a file is opened and refuse it later (EINVAL). Then
 * O_DIRECT is removed from the descriptor permanently, and the request is sent again. Data that
 * earlier requests moved past the page cache are not read through it afterwards, so no stale page
 * of the cache is ever used. */
#include "io/queue.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/bytes.h"
#include "core/fail.h"
#include "core/system.h"
#include "io/buffers.h"
#include "io/threads.h"

#define REQUESTS 128u
#define NAPS 12 /* naps of 1, 2, 4 ms and so on: a few seconds in total */
#define MEMORY_BYTES ((size_t)IO_SLOTS * IO_SLOT_BYTES)

typedef struct request {
    io_job job;    /* must be first; describes what is left to do */
    io_file *file; /* NULL: the request is free */
    unsigned slot;
    struct io_uring_sqe *sqe; /* until it is sent */
    bool without_direct;      /* was sent again because O_DIRECT was refused */
    struct request *next_free;
} request;

struct io_queue {
    struct io_uring ring;
    io_threads *threads; /* NULL: the ring is used */
    unsigned char *memory;
    unsigned next, pending[IO_SLOTS], in_flight;
    request requests[REQUESTS], *free;
    request *unsent[REQUESTS]; /* in the ring, not yet passed to the kernel */
    unsigned n_unsent;
    bool is_abandoned; /* the kernel may still have requests, and use their memory */
    double waited_s;
    uint64_t written;
    /* called after each wait; NULL: not called */
    void (*waited)(void *ctx, double begin, double end);
    void *waited_ctx;
    int failed; /* status of the first failure */
    dcp_error failure;
};

static int create(bool ring, io_queue **out, dcp_error *err) {
    io_queue *q = calloc(1, sizeof *q);
    if (!q) return core_fail_memory(err, sizeof *q);
    q->memory = io_buffers_create(MEMORY_BYTES);
    if (!q->memory) goto free_queue;
    for (unsigned i = 0; i < REQUESTS; i++) {
        q->requests[i].next_free = q->free;
        q->free = &q->requests[i];
    }
    if (!ring || io_uring_queue_init(REQUESTS, &q->ring, 0)) {
        q->threads = io_threads_create(IO_SLOTS);
        if (!q->threads) goto free_memory;
    }
    *out = q;
    return DCP_OK;
free_memory:
    io_buffers_free(q->memory, MEMORY_BYTES);
free_queue:
    free(q);
    return core_fail_memory(err, MEMORY_BYTES);
}

int io_queue_create(io_queue **out, dcp_error *err) { return create(true, out, err); }

int io_queue_create_threads(io_queue **out, dcp_error *err) { return create(false, out, err); }

void io_queue_destroy(io_queue *q) {
    if (!q) return;
    io_queue_drain(q);
    if (!q->threads) io_uring_queue_exit(&q->ring);
    io_threads_destroy(q->threads);
    if (!q->is_abandoned) io_buffers_free(q->memory, MEMORY_BYTES);
    free(q);
}

static void retire(io_queue *q, request *r) {
    io_fd_release(r->file);
    r->file = NULL;
    q->pending[r->slot]--;
    q->in_flight--;
    r->next_free = q->free;
    q->free = r;
}

/* Only the first failure is recorded. */
static void keep_job_failure(io_queue *q, const io_file *file, const io_job *job, int error) {
    if (q->failed) return;
    errno = error;
    q->failed = core_fail_errno(&q->failure, job->writing ? "write" : "read", file->path);
    core_fail_offset(q->failed, job->offset, &q->failure);
    if (q->failed == DCP_ERR_NOT_FOUND) q->failed = DCP_ERR_IO;
}

static void fail(io_queue *q, request *r, int error) {
    keep_job_failure(q, r->file, &r->job, error);
    retire(q, r);
}

static void put_into_ring(io_queue *q, request *r) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(&q->ring);
    const io_job *j = &r->job;
    assert(sqe); /* there are as many entries as requests */
    if (j->writing)
        io_uring_prep_write(sqe, j->fd, j->buffer, (unsigned)j->bytes, j->offset);
    else
        io_uring_prep_read(sqe, j->fd, j->buffer, (unsigned)j->bytes, j->offset);
    io_uring_sqe_set_data(sqe, r);
    r->sqe = sqe;
    q->unsent[q->n_unsent++] = r;
}

/* The requests that the kernel refused are still in the ring, as the last ones, and a later call
 * might send them. So they are turned into requests that do nothing. */
static void drop_unsent(io_queue *q, int error) {
    unsigned left = io_uring_sq_ready(&q->ring);
    for (unsigned i = q->n_unsent > left ? q->n_unsent - left : 0; i < q->n_unsent; i++) {
        io_uring_prep_nop(q->unsent[i]->sqe);
        io_uring_sqe_set_data(q->unsent[i]->sqe, NULL);
        fail(q, q->unsent[i], error);
    }
}

/* Returns true if the kernel may soon answer differently, for example after it was short of memory.
 * The naps get longer and their number is limited: an error that persists is a failure. */
static bool may_pass(int error, unsigned *naps) {
    if (error == EINTR) return true;
    if ((error != EAGAIN && error != EBUSY) || *naps == NAPS) return false;
    const long ms = 1L << (*naps)++;
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL);
    return true;
}

void io_queue_send(io_queue *q) {
    unsigned naps = 0;
    int error = 0;
    if (!q->n_unsent) return;
    while (io_uring_sq_ready(&q->ring) > 0 && !error) {
        const int sent = io_uring_submit(&q->ring);
        if (sent > 0)
            naps = 0;
        else if (!may_pass(sent ? -sent : EAGAIN, &naps))
            error = sent ? -sent : EAGAIN;
    }
    if (error) drop_unsent(q, error);
    q->n_unsent = 0;
}

static void submit(io_queue *q, request *r) {
    if (q->threads)
        io_threads_submit(q->threads, &r->job);
    else
        put_into_ring(q, r);
}

/* The results of the requests in flight will never be known. */
static void abandon(io_queue *q, int error) {
    q->is_abandoned = true;
    for (unsigned i = 0; i < REQUESTS; i++)
        if (q->requests[i].file) fail(q, &q->requests[i], error);
}

/* Returns a completed request, with its result. Returns NULL if there is none; the caller then
 * tries again if any requests are in flight. */
static request *take(io_queue *q) {
    if (q->threads) return (request *)io_threads_reap(q->threads);
    struct io_uring_cqe *cqe;
    unsigned naps = 0;
    for (int failed; (failed = io_uring_wait_cqe(&q->ring, &cqe));) {
        if (may_pass(-failed, &naps)) continue;
        abandon(q, -failed);
        return NULL;
    }
    request *r = io_uring_cqe_get_data(cqe);
    if (r) r->job.result = cqe->res;
    io_uring_cqe_seen(&q->ring, cqe);
    return r;
}

/* Returns true if the failed request may succeed through the page cache. */
static bool leave_direct(request *r) {
    if (!r->file->direct || r->without_direct) return false;
    int flags = fcntl(r->job.fd, F_GETFL);
    if (flags < 0 || (flags & O_DIRECT && fcntl(r->job.fd, F_SETFL, flags & ~O_DIRECT)))
        return false;
    r->without_direct = true;
    return true;
}

static void count_wait(io_queue *q, double begin, double end) {
    q->waited_s += end - begin;
    if (q->waited) q->waited(q->waited_ctx, begin, end);
}

/* Handles one completion. */
static void reap(io_queue *q) {
    io_queue_send(q);
    if (!q->in_flight) return; /* nothing could be sent */
    double start = core_clock_now();
    request *r = take(q);
    count_wait(q, start, core_clock_now());
    if (!r) return;
    int64_t done = r->job.result;
    if (done == -EINTR || done == -EAGAIN || (done == -EINVAL && leave_direct(r))) {
        submit(q, r);
        return;
    }
    if (done <= 0) {
        fail(q, r, done ? (int)-done : EIO);
        return;
    }
    r->job.buffer = (char *)r->job.buffer + done;
    r->job.offset += (uint64_t)done;
    r->job.bytes -= (uint64_t)done;
    if (r->job.bytes)
        submit(q, r);
    else
        retire(q, r);
}

static void start(io_queue *q, unsigned slot, io_file *file, io_job job) {
    assert(slot < IO_SLOTS);
    if (q->failed || !job.bytes) return;
    if (job.writing && core_file_limit_check(job.offset + job.bytes)) {
        keep_job_failure(q, file, &job, errno);
        return;
    }
    while (!q->free || (q->in_flight && io_fd_cache_is_full(file))) reap(q);
    if (q->failed || (q->failed = io_fd_acquire(file, &q->failure))) return;
    request *r = q->free;
    q->free = r->next_free;
    *r = (request){.job = job, .file = file, .slot = slot};
    r->job.fd = file->fd;
    q->pending[slot]++;
    q->in_flight++;
    submit(q, r);
}

void io_queue_write(io_queue *q, unsigned slot, io_file *file, const void *buffer, uint64_t bytes,
                    uint64_t offset) {
    q->written += bytes;
    start(q, slot, file,
          (io_job){.writing = true, .buffer = (void *)buffer, .bytes = bytes, .offset = offset});
}

void io_queue_read(io_queue *q, unsigned slot, io_file *file, void *buffer, uint64_t bytes,
                   uint64_t offset) {
    start(q, slot, file, (io_job){.buffer = buffer, .bytes = bytes, .offset = offset});
}

void io_queue_wait(io_queue *q, unsigned slot) {
    assert(slot < IO_SLOTS);
    io_queue_send(q);
    while (q->pending[slot]) reap(q);
}

void io_queue_drain(io_queue *q) {
    while (q->in_flight) reap(q);
}

unsigned io_queue_next_slot(io_queue *q) {
    unsigned slot = q->next;
    q->next = (slot + 1) % IO_SLOTS;
    io_queue_wait(q, slot);
    return slot;
}

void io_queue_rewind(io_queue *q) { q->next = 0; }

unsigned char *io_queue_buffer(const io_queue *q, unsigned slot) {
    return q->memory + (size_t)slot * IO_SLOT_BYTES;
}

void io_queue_on_wait(io_queue *q, void (*waited)(void *ctx, double begin, double end), void *ctx) {
    q->waited = waited;
    q->waited_ctx = ctx;
}

double io_queue_waited(const io_queue *q) { return q->waited_s; }

uint64_t io_queue_reset_written(io_queue *q) {
    const uint64_t written = q->written;
    q->written = 0;
    return written;
}

int io_queue_status(const io_queue *q, dcp_error *err) {
    if (q->failed && err) *err = q->failure;
    return q->failed;
}
