/* Engine direct: positioned writes and reads of whole pages past the page cache.
 *
 * Each page is written by one rank and synced by its writer. That is right on local file systems,
 * and on all network and parallel ones whose clients keep no page that another node wrote, or drop
 * it in time: ext4, xfs, btrfs, tmpfs, overlayfs, NFS, Lustre, GPFS, CephFS. So it is the engine of
 * all file systems that no other engine lists. */
#include "comm/topology.h"
#include "core/clock.h"
#include "io/queue.h"
#include "move/bulk.h"
#include "move/engine.h"
#include "move/exchange.h"
#include "move/piece.h"
#include "move/progress.h"
#include "move/sums.h"
#include "move/transfer.h"

/* Over several hosts, runs are bulk that have whole domains in them: each MiB of the file has one
 * writer then, and requests stay large, however many ranks cut a tensor into short runs. */
#define DOMAIN_BULK_BYTES (2 * IO_SLOT_BYTES)

/* Collective. */
static int choose_bulk(const move_transfer *t, dcp_error *err) {
    const comm_groups *hosts;
    if (t->bulk_is_apart || t->reader_ranges) return DCP_OK;
    int status = comm_hosts(t->comm, &hosts, err);
    if (status || hosts->n == 1) return status;
    for (size_t i = 0; i < t->n_pieces; i++) {
        move_piece *p = &t->pieces[i];
        p->bulk = p->bulk && p->copy->run_bytes >= DOMAIN_BULK_BYTES;
        if (p->page_bytes < IO_SLOT_BYTES) p->page_bytes = IO_SLOT_BYTES;
    }
    return DCP_OK;
}

/* Collective. *over: some rank failed, so the rest need not be done. */
static int move_all_fragments(const move_transfer *t, int *over, dcp_error *err) {
    move_exchange x = {0};
    int status = choose_bulk(t, err);
    if (!status) status = move_exchange_open(&x, t, err);
    if (!status) {
        status = move_exchange_run(&x, err);
        if (!status && x.status) {
            status = x.status;
            if (err) *err = x.error;
        }
        io_queue_drain(t->queue);
    }
    *over = x.is_over;
    move_exchange_close(&x);
    return status;
}

static void tell_wait(void *progress, double begin, double end) {
    move_progress_phase(progress, DCP_PHASE_WRITE, begin, end);
}

static int move_directly(move_transfer *t, dcp_error *err) {
    io_queue *queue = t->queue;
    double start = core_clock_now(), waited_before = io_queue_waited(queue);
    if (t->progress && t->progress->on_phase) io_queue_tell(queue, tell_wait, t->progress);
    int over, status = move_all_fragments(t, &over, err);
    double middle = core_clock_now(), waited = io_queue_waited(queue) - waited_before;
    if (!status && !over) status = move_sums(t->replicas, t->n_replicas, t->progress, err);
    if (!status && !over && !t->others_are_summed)
        status = move_sums_of_others(t->pieces, t->n_pieces, t->progress, err);
    if (!status && !over)
        status = t->bulk_is_apart ? io_queue_status(queue, err) : move_bulk(t, err);
    double end = core_clock_now(), waited_too = io_queue_waited(queue) - waited_before - waited;
    io_queue_tell(queue, NULL, NULL);
    t->report->gather_s +=
        move_progress_phase(t->progress, DCP_PHASE_GATHER, start, middle) - waited;
    t->report->copy_s += move_progress_phase(t->progress, DCP_PHASE_COPY, middle, end) - waited_too;
    t->report->write_s += waited + waited_too;
    return move_transfer_finish(t, status, err);
}

static int open_to_write(const char *path, io_file *out, dcp_error *err) {
    return io_open(path, 1, out, err);
}

const move_engine move_engine_direct = {
    .engine = DCP_ENGINE_DIRECT,
    .name = "direct",
    .is_by_position = 1,
    .is_for_any_thread = 1,
    .open = open_to_write,
    .to_file = move_directly,
    .from_files = move_directly,
};
