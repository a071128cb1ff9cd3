/* The chunks of all files are numbered. A rank has a range of numbers, and each of its threads
 * takes the next number whenever a slot of its queue is free. So the disk sees one long sequential
 * read, whatever the number of threads. The thread that requested a chunk also processes it, while
 * the reads of its other slots continue. */
#include "io/scan.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "core/bytes.h"
#include "core/fail.h"
#include "io/queue.h"
#include "io/threads.h"

#define CHUNK IO_SLOT_BYTES

typedef struct run {
    const io_scan *what;
    uint64_t *first_chunk; /* [n + 1]: the first chunk of each file */
    io_queue *queue;       /* the caller's */
    uint64_t next, end;    /* this rank's chunks; the threads share `next` */
    uint64_t done;         /* bytes read by all threads */
    int failed;            /* a thread has failed, so all threads stop */
    pthread_mutex_t lock;  /* for the next two members */
    int status;
    dcp_error error;
} run;

/* The read in a slot of a thread's queue. */
typedef struct reading {
    io_file file; /* fd -1: not open */
    size_t number;
    uint64_t offset, bytes; /* bytes 0: no read */
} reading;

typedef struct worker {
    run *run;
    io_queue *queue;
    reading slots[IO_SLOTS];
    bool is_caller;
} worker;

static void keep_failure(run *r, int status, const dcp_error *e) {
    pthread_mutex_lock(&r->lock);
    if (!r->status) {
        r->status = status;
        r->error = *e;
    }
    pthread_mutex_unlock(&r->lock);
    __atomic_store_n(&r->failed, 1, __ATOMIC_RELAXED);
}

/* Returns the file that contains a chunk. */
static size_t file_of(const run *r, uint64_t chunk) {
    return core_lower_bound(r->first_chunk, r->what->n, sizeof *r->first_chunk, chunk + 1) - 1;
}

static int open_for(reading *slot, const io_scan_file *file, size_t number, dcp_error *err) {
    if (slot->file.fd >= 0 && slot->number == number) return DCP_OK;
    io_close(&slot->file);
    slot->number = number;
    return io_open_in(file->folder, file->path, IO_READ, &slot->file, err);
}

/* Requests the next chunk. Returns false if there is none. */
static bool ask(worker *w, unsigned s) {
    run *r = w->run;
    reading *slot = &w->slots[s];
    dcp_error e;
    slot->bytes = 0;
    if (__atomic_load_n(&r->failed, __ATOMIC_RELAXED)) return false;
    uint64_t chunk = __atomic_fetch_add(&r->next, 1, __ATOMIC_RELAXED);
    if (chunk >= r->end) return false;
    size_t number = file_of(r, chunk);
    const io_scan_file *file = &r->what->files[number];
    int status = open_for(slot, file, number, &e);
    if (status) {
        keep_failure(r, status, &e);
        return false;
    }
    slot->offset = (chunk - r->first_chunk[number]) * CHUNK;
    slot->bytes = file->bytes - slot->offset < CHUNK ? file->bytes - slot->offset : CHUNK;
    io_queue_read(w->queue, s, &slot->file, io_queue_buffer(w->queue, s), slot->bytes,
                  slot->offset);
    return true;
}

static void pass_on(worker *w, unsigned s) {
    run *r = w->run;
    const reading *slot = &w->slots[s];
    dcp_error e;
    int status = io_queue_status(w->queue, &e);
    if (status) {
        keep_failure(r, status, &e);
        return;
    }
    r->what->fn(r->what->ctx, slot->number, slot->offset, io_queue_buffer(w->queue, s),
                slot->bytes);
    uint64_t done = __atomic_add_fetch(&r->done, slot->bytes, __ATOMIC_RELAXED);
    if (w->is_caller && r->what->on_read) status = r->what->on_read(r->what->ctx, done, &e);
    if (status) keep_failure(r, status, &e);
}

/* Waits for slots in turn, so their chunks are passed on in the order of the requests. */
static void work(worker *w) {
    unsigned in_flight = 0, s = 0;
    for (unsigned i = 0; i < IO_SLOTS; i++) w->slots[i].file.fd = -1;
    while (in_flight < IO_SLOTS && ask(w, in_flight)) in_flight++;
    while (in_flight) {
        io_queue_wait(w->queue, s);
        pass_on(w, s);
        if (!ask(w, s)) in_flight--;
        s = (s + 1) % IO_SLOTS;
        while (in_flight && !w->slots[s].bytes) s = (s + 1) % IO_SLOTS;
    }
    for (unsigned i = 0; i < IO_SLOTS; i++) io_close(&w->slots[i].file);
}

/* A thread that lacks memory for its queue leaves its work to the others. */
static void work_as(void *ctx, unsigned number) {
    run *r = ctx;
    worker w = {.run = r, .queue = r->queue, .is_caller = number == 0};
    if (!w.is_caller && io_queue_create(&w.queue, NULL)) return;
    work(&w);
    if (!w.is_caller) io_queue_destroy(w.queue);
}

static int count_chunks(run *r, dcp_error *err) {
    const io_scan *s = r->what;
    uint64_t chunks = 0;
    r->first_chunk = core_array(s->n + 1, sizeof *r->first_chunk);
    if (!r->first_chunk) return core_fail_memory(err, (s->n + 1) * sizeof *r->first_chunk);
    for (size_t i = 0; i < s->n; i++) {
        r->first_chunk[i] = chunks;
        chunks += s->files[i].bytes / CHUNK + (s->files[i].bytes % CHUNK != 0);
    }
    r->first_chunk[s->n] = chunks;
    r->next = chunks * (uint64_t)s->rank / (uint64_t)s->size;
    r->end = chunks * ((uint64_t)s->rank + 1) / (uint64_t)s->size;
    return DCP_OK;
}

int io_scan_run(const io_scan *s, dcp_error *err) {
    run r = {.what = s, .lock = PTHREAD_MUTEX_INITIALIZER};
    int status = count_chunks(&r, err);
    const uint64_t chunks = r.end - r.next;
    if (!status && chunks) status = io_queue_create(&r.queue, err);
    /* each thread has IO_SLOTS files open, and a queue */
    unsigned threads = io_fd_cache_limit() / (IO_SLOTS + 1);
    if (threads > s->threads) threads = s->threads;
    if (threads > chunks) threads = (unsigned)chunks;
    if (r.queue) io_threads_run(threads, work_as, &r);
    io_queue_destroy(r.queue);
    free(r.first_chunk);
    pthread_mutex_destroy(&r.lock);
    if (status) return status;
    if (r.status && err) *err = r.error;
    return !r.status && r.done && s->on_read ? s->on_read(s->ctx, r.done, err) : r.status;
}
