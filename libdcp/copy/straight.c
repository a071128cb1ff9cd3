/* Rounds of parts, each by a thread, since the device's functions wait for the disk. A round's
 * checksums are taken while it is written, and after it was read. */
#include "copy/straight.h"

#include <errno.h>
#include <stdlib.h>

#include "core/clock.h"
#include "core/fail.h"
#include "io/threads.h"

#define THREADS 8u

typedef struct transfer {
    io_job job; /* must be first */
    const straight *of;
    const fragment *part;
    uint64_t at; /* in the file */
    int writing, code;
} transfer;

struct straight {
    staging *staging;
    const dcp_device *device;
    io_queue *queue;
    io_threads *threads;
    const io_file *file; /* whose `handle` it is; NULL: none */
    void *handle;
    transfer transfers[STRAIGHT_PARTS];
};

/* A part is in one block of its dataset, and of a tensor that it is one run of in at most two: no
 * more sums than there is room for. */
_Static_assert(2 * STRAIGHT_PARTS <= STAGING_SUMS, "there is room for the sums of a round");

void straight_mark(piece *p) {
    p->straight = p->staging && p->direct && (!p->global || p->global->copy.runs == 1);
}

int straight_open(staging *s, io_queue *queue, straight **out, dcp_error *err) {
    int status = device_staging_sums_wait(s, err);
    if (status) return status;
    straight *t = calloc(1, sizeof *t);
    if (t) t->threads = io_threads_create(THREADS);
    if (!t || !t->threads) {
        free(t);
        return core_fail_memory(err, sizeof *t);
    }
    t->staging = s;
    t->queue = queue;
    t->device = s->device;
    *out = t;
    return DCP_OK;
}

static void leave_file(straight *t) {
    if (t->file) t->device->files->close(t->device->ctx, t->handle);
    t->file = NULL;
}

void straight_close(straight *t) {
    if (!t) return;
    leave_file(t);
    io_threads_destroy(t->threads);
    free(t);
}

/* Negative codes are the file system's. */
static int failed_on(const straight *t, const io_file *file, int code, const char *what,
                     const char *tensor, dcp_error *err) {
    if (code < 0) {
        errno = -code;
        int status = core_fail_errno(err, what, file->path);
        return status == DCP_ERR_NOT_FOUND ? DCP_ERR_IO : status;
    }
    return core_fail(err, DCP_ERR_DEVICE, "%s: %s%s%s %s: %s; engine auto does without cuFile",
                     t->device->name, tensor ? tensor : "", tensor ? ": cannot " : "cannot ", what,
                     file->path, t->device->error_text(t->device->ctx, code));
}

static int use_file(straight *t, const io_file *file, dcp_error *err) {
    if (t->file == file) return DCP_OK;
    leave_file(t);
    int code = t->device->files->open(t->device->ctx, file->fd, &t->handle);
    if (code) return failed_on(t, file, code, "use", NULL, err);
    t->file = file;
    return DCP_OK;
}

static void perform(io_job *job) {
    transfer *m = (transfer *)job;
    const dcp_device *d = m->of->device;
    const fragment *f = m->part;
    void *base = f->piece->box->device_data, *file = m->of->handle;
    m->code = m->writing ? d->files->write(d->ctx, file, base, f->box_offset, f->bytes, m->at)
                         : d->files->read(d->ctx, file, base, f->box_offset, f->bytes, m->at);
}

/* The first failure, once none is in flight. */
static int transfer_parts(straight *t, uint64_t base, const fragment *parts, size_t n, int writing,
                          dcp_error *err) {
    const transfer *failed = NULL;
    const double start = core_clock_now();
    for (size_t i = 0; i < n; i++) {
        t->transfers[i] = (transfer){.job.perform = perform,
                                     .of = t,
                                     .part = &parts[i],
                                     .at = parts[i].file_offset - base,
                                     .writing = writing};
        io_threads_submit(t->threads, &t->transfers[i].job);
    }
    for (size_t i = 0; i < n; i++) {
        const transfer *done = (const transfer *)io_threads_take(t->threads);
        if (done->code && !failed) failed = done;
    }
    io_queue_count_wait(t->queue, start, core_clock_now());
    if (!failed) return DCP_OK;
    return failed_on(t, t->file, failed->code, writing ? "write" : "read",
                     failed->part->piece->row->tensor.path, err);
}

/* Begins to take the sums of the parts' ranges, in order; or, where they are there, adds them. */
static int walk_sums(const straight *t, const fragment *parts, size_t n, int add, dcp_error *err) {
    unsigned k = 0;
    int status = DCP_OK;
    for (const fragment *f = parts; f < parts + n; f++) {
        const piece *p = f->piece;
        if (!p->sums && !p->global) continue;
        for (uint64_t done = 0, bytes; done < f->bytes && !status; done += bytes, k++) {
            bytes = piece_in_block(p, f->dataset_offset + done, f->bytes - done);
            const staging_range range = {p->box, p->row->tensor.path, f->box_offset + done, bytes,
                                         0};
            if (add)
                piece_add_raw(p, f->dataset_offset + done, bytes, t->staging->sums[k]);
            else
                status = device_staging_sum(t->staging, k, &range, err);
        }
    }
    return status;
}

int straight_move(straight *t, const io_file *file, uint64_t base, const fragment *parts, size_t n,
                  int writing, dcp_error *err) {
    int status = use_file(t, file, err);
    if (!status && writing) status = walk_sums(t, parts, n, 0, err);
    if (!status) status = transfer_parts(t, base, parts, n, writing, err);
    if (!status && !writing) status = walk_sums(t, parts, n, 0, err);
    if (!status) status = device_staging_sums_wait(t->staging, err);
    return status ? status : walk_sums(t, parts, n, 1, err);
}
