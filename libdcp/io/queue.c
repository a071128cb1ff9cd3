/* Requests in flight. A request that was done in part is sent again for the rest, so the caller
 * sees whole requests or a failure. A read that meets the file's end fails: sizes were checked
 * before. */
#include "io/queue.h"

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/fail.h"
#include "core/userblock.h"

#define REQUESTS 64u
#define HUGE_PAGE (2u << 20)

typedef struct request {
    const io_file *file;
    char *buffer;
    uint64_t bytes, offset;
    unsigned slot;
    int writing;
    struct request *next_free;
} request;

struct io_queue {
    struct io_uring ring;
    int has_ring;
    unsigned char *memory;
    unsigned next, pending[IO_SLOTS], in_flight;
    request requests[REQUESTS], *free;
    int error; /* errno of the first failure */
    int failed_writing;
    const char *failed_path;
};

int io_queue_create(io_queue **out, dcp_error *err) {
    io_queue *q = calloc(1, sizeof *q);
    if (!q) return core_fail_memory(err, sizeof *q);
    size_t bytes = (size_t)IO_SLOTS * IO_SLOT_BYTES;
    if (posix_memalign((void **)&q->memory, HUGE_PAGE, bytes)) {
        free(q);
        return core_fail_memory(err, bytes);
    }
    madvise(q->memory, bytes, MADV_HUGEPAGE); /* fewer faults and pins; any answer will do */
    for (unsigned i = 0; i < REQUESTS; i++) {
        q->requests[i].next_free = q->free;
        q->free = &q->requests[i];
    }
    q->has_ring = io_uring_queue_init(REQUESTS, &q->ring, 0) == 0;
    *out = q;
    return DCP_OK;
}

void io_queue_destroy(io_queue *q) {
    if (!q) return;
    io_queue_drain(q);
    if (q->has_ring) io_uring_queue_exit(&q->ring);
    free(q->memory);
    free(q);
}

static void note_failure(io_queue *q, const request *r, int error) {
    if (q->error) return;
    q->error = error;
    q->failed_writing = r->writing;
    q->failed_path = r->file->path;
}

static void retire(io_queue *q, request *r) {
    q->pending[r->slot]--;
    q->in_flight--;
    r->next_free = q->free;
    q->free = r;
}

/* Where io_uring is refused: the whole request now. */
static void perform(io_queue *q, request *r) {
    while (r->bytes) {
        ssize_t n = r->writing ? pwrite(r->file->fd, r->buffer, r->bytes, (off_t)r->offset)
                               : pread(r->file->fd, r->buffer, r->bytes, (off_t)r->offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            note_failure(q, r, n ? errno : EIO);
            return;
        }
        r->buffer += n;
        r->offset += (uint64_t)n;
        r->bytes -= (uint64_t)n;
    }
}

static void start_io(io_queue *q, request *r) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(&q->ring); /* as many as requests: never NULL */
    if (r->writing)
        io_uring_prep_write(sqe, r->file->fd, r->buffer, (unsigned)r->bytes, r->offset);
    else
        io_uring_prep_read(sqe, r->file->fd, r->buffer, (unsigned)r->bytes, r->offset);
    io_uring_sqe_set_data(sqe, r);
    int sent;
    do sent = io_uring_submit(&q->ring);
    while (sent == -EINTR || sent == -EAGAIN || sent == -EBUSY);
    if (sent >= 0) return;
    /* The entry is in the ring and may still be taken: as a request for nothing. */
    io_uring_prep_nop(sqe);
    io_uring_sqe_set_data(sqe, NULL);
    note_failure(q, r, -sent);
    retire(q, r);
}

/* Takes one completion. */
static void reap(io_queue *q) {
    struct io_uring_cqe *cqe;
    if (io_uring_wait_cqe(&q->ring, &cqe)) return; /* interrupted: the caller asks again */
    request *r = io_uring_cqe_get_data(cqe);
    int done = cqe->res;
    io_uring_cqe_seen(&q->ring, cqe);
    if (!r) return;
    if (done == -EINTR || done == -EAGAIN) {
        start_io(q, r);
        return;
    }
    if (done <= 0) {
        note_failure(q, r, done ? -done : EIO);
        retire(q, r);
        return;
    }
    r->buffer += done;
    r->offset += (uint64_t)done;
    r->bytes -= (uint64_t)done;
    if (r->bytes)
        start_io(q, r);
    else
        retire(q, r);
}

static void start(io_queue *q, request wanted) {
    if (q->error || !wanted.bytes) return;
    if (!q->has_ring) {
        perform(q, &wanted);
        return;
    }
    while (!q->free) reap(q);
    request *r = q->free;
    q->free = r->next_free;
    *r = wanted;
    q->pending[r->slot]++;
    q->in_flight++;
    start_io(q, r);
}

void io_queue_write(io_queue *q, unsigned slot, const io_file *file, const void *buffer,
                    uint64_t bytes, uint64_t offset) {
    start(q, (request){file, (char *)buffer, bytes, offset, slot, 1, NULL});
}

void io_queue_read(io_queue *q, unsigned slot, const io_file *file, void *buffer, uint64_t bytes,
                   uint64_t offset) {
    start(q, (request){file, buffer, bytes, offset, slot, 0, NULL});
}

void io_queue_wait(io_queue *q, unsigned slot) {
    while (q->pending[slot]) reap(q);
}

void io_queue_drain(io_queue *q) {
    while (q->in_flight) reap(q);
}

unsigned io_queue_next(io_queue *q) {
    unsigned slot = q->next;
    q->next = (slot + 1) % IO_SLOTS;
    io_queue_wait(q, slot);
    return slot;
}

unsigned char *io_queue_buffer(const io_queue *q, unsigned slot) {
    return q->memory + (size_t)slot * IO_SLOT_BYTES;
}

int io_queue_status(const io_queue *q, dcp_error *err) {
    if (!q->error) return DCP_OK;
    errno = q->error;
    int status = core_fail_errno(err, q->failed_writing ? "write" : "read", q->failed_path);
    return status == DCP_ERR_NOT_FOUND ? DCP_ERR_IO : status;
}
