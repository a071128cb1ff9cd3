/* The library's functions that touch files are replaced here (--wrap), and choosing the windows,
 * the last thing that is planned, ends the save or load. */
#include "planned.h"

#include <time.h>

#include "core/fail.h"
#include "h5/skeleton.h"
#include "heap.h"
#include "io/queue.h"
#include "move/domain.h"
#include "world.h"

int __real_h5_skeleton_build(format_row *rows, size_t n, dcp_layout layout, uint64_t meta_bytes,
                             const h5_poll *poll, h5_skeleton *out, dcp_error *err);
int __wrap_move_windows_find(dcp_comm *comm, const move_piece *pieces, size_t n, uint64_t end,
                             const uint64_t *reader_ranges, int to_file, move_windows *out,
                             dcp_error *err);
int __wrap_h5_skeleton_build(format_row *rows, size_t n, dcp_layout layout, uint64_t meta_bytes,
                             const h5_poll *poll, h5_skeleton *out, dcp_error *err);
int __wrap_store_begin(dcp_store *store, uint64_t step, char *folder, dcp_error *err);
void __wrap_store_rollback(dcp_store *store, uint64_t step);
int __wrap_store_find_cause(dcp_store *store, int status, dcp_error *err);
int __wrap_io_create(const char *path, uint64_t bytes, dcp_error *err);
int __wrap_io_open(const char *path, int writing, io_file *out, dcp_error *err);
int __wrap_io_queue_create(io_queue **out, dcp_error *err);
void __wrap_io_queue_destroy(io_queue *queue);
double __wrap_io_queue_waited(const io_queue *queue);
void __wrap_io_queue_on_wait(io_queue *queue, void (*waited)(void *ctx, double begin, double end),
                             void *ctx);

static planned *current;
static double started;

double planned_clock_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static planned_cost cost_so_far(void) {
    return (planned_cost){planned_clock_ms() - started - current->layout.cpu_ms, heap_peak()};
}

int __wrap_h5_skeleton_build(format_row *rows, size_t n, dcp_layout layout, uint64_t meta_bytes,
                             const h5_poll *poll, h5_skeleton *out, dcp_error *err) {
    double start = planned_clock_ms();
    size_t before = heap_now();
    int status = __real_h5_skeleton_build(rows, n, layout, meta_bytes, poll, out, err);
    current->layout.cpu_ms += planned_clock_ms() - start;
    current->layout.peak_bytes += heap_now() - before;
    return status;
}

int __wrap_move_windows_find(dcp_comm *comm, const move_piece *pieces, size_t n, uint64_t end,
                             const uint64_t *reader_ranges, int to_file, move_windows *out,
                             dcp_error *err) {
    (void)comm, (void)pieces, (void)end, (void)reader_ranges, (void)to_file, (void)out;
    current->all = cost_so_far();
    current->pieces = n;
    current->reached = 1;
    return core_fail(err, DCP_ERR_STATE, "planned");
}

int __wrap_store_begin(dcp_store *store, uint64_t step, char *folder, dcp_error *err) {
    (void)store, (void)step, (void)err;
    current->agreed = cost_so_far();
    folder[0] = 0;
    return DCP_OK;
}

void __wrap_store_rollback(dcp_store *store, uint64_t step) { (void)store, (void)step; }

int __wrap_store_find_cause(dcp_store *store, int status, dcp_error *err) {
    (void)store, (void)err;
    return status;
}

int __wrap_io_create(const char *path, uint64_t bytes, dcp_error *err) {
    (void)path, (void)bytes, (void)err;
    return DCP_OK;
}

int __wrap_io_open(const char *path, int writing, io_file *out, dcp_error *err) {
    (void)path, (void)writing, (void)err;
    *out = (io_file){.fd = -1};
    return DCP_OK;
}

int __wrap_io_queue_create(io_queue **out, dcp_error *err) {
    (void)err;
    *out = NULL;
    return DCP_OK;
}

void __wrap_io_queue_destroy(io_queue *queue) { (void)queue; }

double __wrap_io_queue_waited(const io_queue *queue) {
    (void)queue;
    return 0;
}

void __wrap_io_queue_on_wait(io_queue *queue, void (*waited)(void *ctx, double begin, double end),
                             void *ctx) {
    (void)queue, (void)waited, (void)ctx;
}

static void start(planned *out) {
    *out = (planned){0};
    current = out;
    heap_start();
    started = planned_clock_ms();
}

void planned_save(dcp_store *store, const dcp_state *state, planned *out, dcp_error *err) {
    start(out);
    const dcp_save_options options = {.size = sizeof options, .engine = DCP_ENGINE_DIRECT};
    dcp_save(store, 1, state, NULL, &options, NULL, err);
    out->kept_bytes = heap_now();
}

void planned_load(dcp_checkpoint *ckpt, const dcp_state *state, planned *out, dcp_error *err) {
    start(out);
    const dcp_load_options options = {.size = sizeof options, .engine = DCP_ENGINE_DIRECT};
    dcp_load_with(ckpt, state, &options, NULL, err);
}
