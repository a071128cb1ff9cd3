#include "data.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/sharing.h"
#include "core/bytes.h"
#include "core/fail.h"
#include "core/strides.h"
#include "crowd.h"
#include "io/queue.h"
#include "move/engine.h"
#include "move/piece.h"
#include "move/transfer.h"
#include "world.h"

#define LARGE_BYTES (32 << 10) /* of which some may never be touched */
#define ALL_BYTES ((size_t)1 << 42)
#define BOX_AT ((size_t)1 << 30)
#define SHARED_AT ((size_t)1 << 41)

static unsigned char *start, *shared_end; /* what is shared goes up to there */

void data_make(void) {
    start = mmap(NULL, ALL_BYTES, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    NEED(start != MAP_FAILED);
    shared_end = start + SHARED_AT;
}

void *data_box(void) { return start + BOX_AT; }

unsigned char *data_shared(size_t bytes) {
    unsigned char *memory = shared_end;
    shared_end += bytes;
    return memory;
}

void data_drop_pages(void *memory, size_t bytes) {
    const uintptr_t from = core_round_to_pages((uintptr_t)memory),
                    to = ((uintptr_t)memory + bytes) / PAGE_BYTES * PAGE_BYTES;
    if (to > from) NEED(!madvise((void *)from, to - from, MADV_DONTNEED));
}

static int is_in(const void *memory, size_t from, size_t to) {
    const uintptr_t at = (uintptr_t)memory, begin = (uintptr_t)start;
    return at >= begin + from && at < begin + to;
}

static int is_data(const void *memory) { return is_in(memory, 0, SHARED_AT); }
/* There may be something else between the data, such as where they belong. */
int data_is_shared(const void *memory) { return is_in(memory, SHARED_AT, ALL_BYTES); }

void *__real_memcpy(void *to, const void *from, size_t bytes);
void *__wrap_memcpy(void *to, const void *from, size_t bytes);
void *__real_memset(void *to, int value, size_t bytes);
void *__wrap_memset(void *to, int value, size_t bytes);

/* In shared memory short parts may say where the data belong. */
static int is_passed_over(const void *memory, size_t bytes) {
    return is_data(memory) || (bytes >= PAGE_BYTES && data_is_shared(memory));
}

void *__wrap_memcpy(void *to, const void *from, size_t bytes) {
    if (is_passed_over(to, bytes) || is_passed_over(from, bytes)) return to;
    return __real_memcpy(to, from, bytes);
}

void *__wrap_memset(void *to, int value, size_t bytes) {
    static const unsigned char zeros[PAGE_BYTES];
    const size_t before = core_min_u64(bytes, core_round_to_pages((uintptr_t)to) - (uintptr_t)to),
                 after = ((uintptr_t)to + bytes) % PAGE_BYTES;
    if (is_data(to)) return to;
    if (value || (!data_is_shared(to) && bytes < LARGE_BYTES))
        return __real_memset(to, value, bytes);
    if (bytes >= LARGE_BYTES) {
        __real_memset(to, 0, before);
        data_drop_pages(to, bytes);
        __real_memset((char *)to + bytes - after, 0, after);
        return to;
    }
    for (size_t at = 0; at < bytes; at += PAGE_BYTES)
        crowd_copy_changed((char *)to + at, zeros, core_min_u64(bytes - at, PAGE_BYTES));
    return to;
}

/* The bytes of boxes. */
int __wrap_move_box_fetch(const move_piece *p, uint64_t offset, uint64_t bytes, void *out,
                          dcp_error *err);
int __wrap_move_box_fetch_summed(const move_piece *p, uint64_t dataset_offset, uint64_t offset,
                                 uint64_t bytes, void *out, dcp_error *err);
int __wrap_move_box_put_summed(const move_piece *p, uint64_t dataset_offset, uint64_t offset,
                               const void *data, uint64_t bytes, dcp_error *err);
void __wrap_move_piece_sum(const move_piece *p, uint64_t offset, const unsigned char *data,
                           uint64_t bytes);
void __wrap_move_piece_sum_memory(const move_piece *p, uint64_t offset, uint64_t box_offset,
                                  uint64_t bytes);
int __wrap_move_sums(const move_piece *pieces, size_t n, struct move_progress *progress,
                     dcp_error *err);
int __wrap_move_sums_of_others(const move_piece *pieces, size_t n, struct move_progress *progress,
                               dcp_error *err);
uint64_t __wrap_core_strides_sum(uint64_t raw, const void *data, const box_strides *strides,
                                 uint64_t offset, uint64_t bytes);

static void count_shared(const void *memory, uint64_t bytes) {
    if (data_is_shared(memory)) crowd_now()->crowd->counts.shared_bytes += bytes;
}

int __wrap_move_box_fetch(const move_piece *p, uint64_t offset, uint64_t bytes, void *out,
                          dcp_error *err) {
    (void)p, (void)offset, (void)err;
    count_shared(out, bytes);
    return DCP_OK;
}

int __wrap_move_box_fetch_summed(const move_piece *p, uint64_t dataset_offset, uint64_t offset,
                                 uint64_t bytes, void *out, dcp_error *err) {
    (void)p, (void)dataset_offset, (void)offset, (void)err;
    count_shared(out, bytes);
    return DCP_OK;
}

int __wrap_move_box_put_summed(const move_piece *p, uint64_t dataset_offset, uint64_t offset,
                               const void *data, uint64_t bytes, dcp_error *err) {
    (void)p, (void)dataset_offset, (void)offset, (void)err;
    count_shared(data, bytes);
    return DCP_OK;
}

void __wrap_move_piece_sum(const move_piece *p, uint64_t offset, const unsigned char *data,
                           uint64_t bytes) {
    (void)p, (void)offset, (void)data, (void)bytes;
}

void __wrap_move_piece_sum_memory(const move_piece *p, uint64_t offset, uint64_t box_offset,
                                  uint64_t bytes) {
    (void)p, (void)offset, (void)box_offset, (void)bytes;
}

int __wrap_move_sums(const move_piece *pieces, size_t n, struct move_progress *progress,
                     dcp_error *err) {
    (void)pieces, (void)n, (void)progress, (void)err;
    return DCP_OK;
}

int __wrap_move_sums_of_others(const move_piece *pieces, size_t n, struct move_progress *progress,
                               dcp_error *err) {
    (void)pieces, (void)n, (void)progress, (void)err;
    return DCP_OK;
}

uint64_t __wrap_core_strides_sum(uint64_t raw, const void *data, const box_strides *strides,
                                 uint64_t offset, uint64_t bytes) {
    (void)data, (void)strides, (void)offset, (void)bytes;
    return raw;
}

/* Moving data: what ranks do in an engine. */
const move_engine *__real_move_engine_row(dcp_engine engine);
const move_engine *__wrap_move_engine_row(dcp_engine engine);

static const move_engine *real_direct;

static int move_counted(int (*move)(struct move_transfer *t, dcp_error *err),
                        struct move_transfer *t, dcp_error *err) {
    crowd_now()->moves = 1;
    int status = move(t, err);
    crowd_now()->moves = 0;
    return status;
}

static int count_to_file(struct move_transfer *t, dcp_error *err) {
    return move_counted(real_direct->to_file, t, err);
}

static int count_from_files(struct move_transfer *t, dcp_error *err) {
    return move_counted(real_direct->from_files, t, err);
}

const move_engine *__wrap_move_engine_row(dcp_engine engine) {
    static move_engine counted;
    const move_engine *row = __real_move_engine_row(engine);
    if (engine != DCP_ENGINE_DIRECT) return row;
    real_direct = row;
    counted = *row;
    counted.to_file = count_to_file;
    counted.from_files = count_from_files;
    return &counted;
}

/* Memory that ranks of a host share. Marks are real; what else is put there is mostly data. */
int __wrap_comm_local_areas(dcp_comm *comm, size_t n, const size_t *bytes, const comm_areas **out,
                            dcp_error *err);

static void make_areas(comm_areas *a, size_t n, const size_t *bytes) {
    size_t *sizes = calloc(n, sizeof *sizes);
    *a = (comm_areas){.n = n, .bytes = sizes};
    a->data = calloc(n, sizeof *a->data);
    a->marks = calloc(n, sizeof *a->marks);
    NEED(sizes && a->data && a->marks);
    for (size_t i = 0; i < n; i++) {
        sizes[i] = core_round_to_pages(bytes[i]);
        a->data[i] = shared_end;
        a->marks[i] = calloc(sizes[i] / PAGE_BYTES + 1, sizeof **a->marks);
        NEED(a->marks[i]);
        shared_end += sizes[i];
        a->memory_bytes += sizes[i];
    }
}

static int have_areas(const comm_areas *a, size_t n, const size_t *bytes) {
    for (size_t i = 0; i < n; i++)
        if (i >= a->n || bytes[i] > a->bytes[i]) return 0;
    return 1;
}

/* A rank of a host is taken to have its part of them. */
int __wrap_comm_local_areas(dcp_comm *comm, size_t n, const size_t *bytes, const comm_areas **out,
                            dcp_error *err) {
    crowd_rank *me = crowd_now();
    comm_areas *a = comm->local.size == 1 ? &me->own_areas : &me->host->areas;
    *out = a;
    if (comm_local_barrier(comm, err)) return DCP_ERR_COMM;
    if (have_areas(a, n, bytes)) return DCP_OK;
    const size_t before = a->memory_bytes;
    if (comm_local_barrier(comm, err)) return DCP_ERR_COMM; /* all have looked */
    heap *counted = heap_use(NULL);
    if (comm->local.rank == 0) make_areas(a, n, bytes);
    heap_use(counted);
    int status = comm_local_barrier(comm, err);
    heap_add(((ptrdiff_t)a->memory_bytes - (ptrdiff_t)before) / comm->local.size);
    return status;
}

/* Files: sparse ones, of which ranks share the descriptor. */
int __real_io_open(const char *path, int writing, io_file *out, dcp_error *err);
int __wrap_io_open(const char *path, int writing, io_file *out, dcp_error *err);
int __wrap_io_create(const char *path, uint64_t bytes, dcp_error *err);
int __wrap_io_reserve(const io_file *file, uint64_t bytes, dcp_error *err);
int __wrap_io_reserve_range(int fd, uint64_t offset, uint64_t bytes);
int __wrap_io_sync(const io_file *file, dcp_error *err);

static int create_sparse(const char *path, uint64_t bytes) {
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    const int failed = fd < 0 || ftruncate(fd, (off_t)bytes);
    if (fd >= 0) close(fd);
    return failed;
}

int __wrap_io_create(const char *path, uint64_t bytes, dcp_error *err) {
    return create_sparse(path, bytes) ? core_fail_errno(err, "create", path) : DCP_OK;
}

int __wrap_io_reserve(const io_file *file, uint64_t bytes, dcp_error *err) {
    return create_sparse(file->path, bytes) ? core_fail_errno(err, "reserve", file->path) : DCP_OK;
}

int __wrap_io_reserve_range(int fd, uint64_t offset, uint64_t bytes) {
    return ftruncate(fd, (off_t)(offset + bytes));
}

/* One rank has a file of all ranks open, as a process may not have that many. */
int __wrap_io_open(const char *path, int writing, io_file *out, dcp_error *err) {
    if (!crowd_now()->rank || strstr(path, "/shard-"))
        return __real_io_open(path, writing, out, err);
    *out = (io_file){.fd = -1, .direct = 1, .memory_align = 1, .path = path};
    return DCP_OK;
}

int __wrap_io_sync(const io_file *file, dcp_error *err) {
    (void)file, (void)err;
    return DCP_OK;
}

/* The queue. */
struct io_queue {
    unsigned next;
};

int __wrap_io_queue_create(io_queue **out, dcp_error *err);
void __wrap_io_queue_destroy(io_queue *q);
unsigned __wrap_io_queue_next_slot(io_queue *q);
void __wrap_io_queue_rewind(io_queue *q);
unsigned char *__wrap_io_queue_buffer(const io_queue *q, unsigned slot);
void __wrap_io_queue_write(io_queue *q, unsigned slot, io_file *file, const void *buffer,
                           uint64_t bytes, uint64_t offset);
void __wrap_io_queue_read(io_queue *q, unsigned slot, io_file *file, void *buffer, uint64_t bytes,
                          uint64_t offset);
void __wrap_io_queue_send(io_queue *q);
void __wrap_io_queue_wait(io_queue *q, unsigned slot);
void __wrap_io_queue_drain(io_queue *q);
double __wrap_io_queue_waited(const io_queue *q);
uint64_t __wrap_io_queue_reset_written(io_queue *q);
void __wrap_io_queue_on_wait(io_queue *q, void (*waited)(void *ctx, double begin, double end),
                             void *ctx);
int __wrap_io_queue_status(const io_queue *q, dcp_error *err);

#define QUEUE_BYTES ((ptrdiff_t)IO_SLOTS * IO_SLOT_BYTES)

int __wrap_io_queue_create(io_queue **out, dcp_error *err) {
    (void)err;
    heap_add(QUEUE_BYTES);
    *out = calloc(1, sizeof **out);
    NEED(*out);
    return DCP_OK;
}

void __wrap_io_queue_destroy(io_queue *q) {
    if (q) heap_add(-QUEUE_BYTES);
    free(q);
}

unsigned __wrap_io_queue_next_slot(io_queue *q) {
    const unsigned slot = q->next;
    q->next = (slot + 1) % IO_SLOTS;
    return slot;
}

void __wrap_io_queue_rewind(io_queue *q) { q->next = 0; }

unsigned char *__wrap_io_queue_buffer(const io_queue *q, unsigned slot) {
    (void)q;
    return start + (size_t)slot * IO_SLOT_BYTES;
}

static void count_request(const io_file *file, uint64_t bytes, uint64_t offset, int is_write) {
    const crowd_rank *r = crowd_now();
    heap *counted = heap_use(NULL);
    counts *c = &r->crowd->counts;
    const counts_request request = {offset, bytes, r->rank, is_write, counts_file(file->path)};
    if (bytes) counts_add_request(c, &request);
    heap_use(counted);
}

void __wrap_io_queue_write(io_queue *q, unsigned slot, io_file *file, const void *buffer,
                           uint64_t bytes, uint64_t offset) {
    (void)q, (void)slot;
    count_request(file, bytes, offset, 1);
    if (is_data(buffer) || data_is_shared(buffer)) return;
    const int fd = open(file->path, O_WRONLY | O_CLOEXEC);
    NEED(fd >= 0 && pwrite(fd, buffer, bytes, (off_t)offset) == (ssize_t)bytes);
    close(fd);
}

void __wrap_io_queue_read(io_queue *q, unsigned slot, io_file *file, void *buffer, uint64_t bytes,
                          uint64_t offset) {
    (void)q, (void)slot, (void)buffer;
    count_request(file, bytes, offset, 0);
}

void __wrap_io_queue_send(io_queue *q) { (void)q; }
void __wrap_io_queue_wait(io_queue *q, unsigned slot) { (void)q, (void)slot; }
void __wrap_io_queue_drain(io_queue *q) { (void)q; }

double __wrap_io_queue_waited(const io_queue *q) {
    (void)q;
    return 0;
}

uint64_t __wrap_io_queue_reset_written(io_queue *q) { /* no rank is slow */
    (void)q;
    return 0;
}

void __wrap_io_queue_on_wait(io_queue *q, void (*waited)(void *ctx, double begin, double end),
                             void *ctx) {
    (void)q, (void)waited, (void)ctx;
}

int __wrap_io_queue_status(const io_queue *q, dcp_error *err) {
    (void)q, (void)err;
    return DCP_OK;
}
