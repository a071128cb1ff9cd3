/* The steps of a load, and the public functions that run them in the caller's thread or in
 * another. */
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/messages.h"
#include "core/box.h"
#include "core/bytes.h"
#include "core/checks.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "core/strides.h"
#include "core/system.h"
#include "core/task.h"
#include "dcp/checkpoint.h"
#include "device/staging.h"
#include "io/queue.h"
#include "load/loading.h"
#include "load/pieces.h"
#include "load/proofs.h"
#include "load/select.h"
#include "move/engine.h"
#include "plan/agreement.h"

struct load_job;

/* A load selects tensors, plans, moves bytes, proves what arrived, and casts. If the ranks' boxes
 * cover a tensor exactly, the tensor is proven by the checksums of what arrived in memory, added up
 * over all ranks. For any other tensor, the load proves each block of which some rank needs a part
 * (proofs.h). */

/* Computes the checksum of a replica, or of the box that it is compared with. */
static int sum_box(state_tensor *const *sorted, const plan_box *b, const staging *on_device,
                   uint64_t *crc, dcp_error *err) {
    const dcp_tensor *t = &sorted[b->tensor]->tensor;
    uint64_t bytes = dcp_box_elems(&b->box->box, t->ndim) * dcp_dtype_bytes(t->dtype);
    int status = DCP_OK;
    if (b->box->data)
        *crc = core_strides_sum(0, b->box->data, b->box->strides, 0, bytes);
    else
        status = device_staging_checksum(on_device, b->box, t->path, 0, bytes, crc, err);
    *crc = core_crc64_finish(*crc, bytes);
    return status;
}

static bool is_replica(const plan_boxes *plan, const plan_box *b) {
    return !b->keeper && plan->exact[b->tensor];
}

static int by_keeper(const void *a, const void *b) {
    const plan_box *x = *(const plan_box *const *)a, *y = *(const plan_box *const *)b;
    return (x->keeper_rank > y->keeper_rank) - (x->keeper_rank < y->keeper_rank);
}

/* Appends to `out`, as u64s: the tensor's number, the checksum, and the start and count of each
 * dimension. */
static int pack_replica(state_tensor *const *sorted, const plan_box *b, const staging *on_device,
                        comm_buffer *out, dcp_error *err) {
    uint32_t dims = core_box_dims(sorted[b->tensor]->tensor.ndim);
    uint64_t head[2] = {b->tensor, 0};
    int status = sum_box(sorted, b, on_device, &head[1], err);
    if (status) return status;
    unsigned char *at = comm_buffer_append(out, 16 + 16ULL * dims);
    if (!at) return core_fail_memory(err, out->bytes);
    memcpy(at, head, sizeof head);
    memcpy(at + 16, b->box->box.start, 8ULL * dims);
    memcpy(at + 16 + 8ULL * dims, b->box->box.count, 8ULL * dims);
    return DCP_OK;
}

static int pack_replicas(state_tensor *const *sorted, const plan_boxes *plan,
                         const staging *on_device, comm_buffer *out, uint64_t *bytes,
                         dcp_error *err) {
    const plan_box **order = core_array(plan->n + 1, sizeof *order);
    size_t n = 0;
    for (size_t i = 0; order && i < plan->n; i++)
        if (is_replica(plan, &plan->boxes[i])) order[n++] = &plan->boxes[i];
    if (n) qsort(order, n, sizeof *order, by_keeper);
    int status = order ? DCP_OK : core_fail_memory(err, plan->n * sizeof *order);
    for (size_t i = 0; i < n && !status; i++) {
        uint64_t before = out->bytes;
        status = pack_replica(sorted, order[i], on_device, out, err);
        bytes[order[i]->keeper_rank] += out->bytes - before;
    }
    free(order);
    return status;
}

/* Returns the box equal to `want` that this rank keeps, or NULL. plan->boxes ascend by tensor. */
static const plan_box *find_kept_box(state_tensor *const *sorted, const plan_boxes *plan,
                                     size_t tensor, const dcp_box *want) {
    size_t low = core_lower_bound(&plan->boxes->tensor, plan->n, sizeof *plan->boxes, tensor);
    for (; low < plan->n && plan->boxes[low].tensor == tensor; low++)
        if (plan->boxes[low].keeper && core_box_equal(core_box_dims(sorted[tensor]->tensor.ndim),
                                                      &plan->boxes[low].box->box, want))
            return &plan->boxes[low];
    return NULL;
}

typedef struct known { /* the checksums of this rank's boxes, computed when first needed */
    uint64_t *crcs;
    unsigned char *done;
    const staging *on_device;
} known;

static int compare_replica(state_tensor *const *sorted, const plan_boxes *plan, const known *k,
                           int rank, const unsigned char *at, uint32_t dims, dcp_error *err) {
    uint64_t head[2];
    dcp_box box = {{0}, {0}};
    memcpy(head, at, sizeof head);
    memcpy(box.start, at + 16, 8ULL * dims);
    memcpy(box.count, at + 16 + 8ULL * dims, 8ULL * dims);
    const plan_box *own = find_kept_box(sorted, plan, head[0], &box);
    size_t i = own ? (size_t)(own - plan->boxes) : plan->n;
    if (own && !k->done[i]) {
        int status = sum_box(sorted, own, k->on_device, &k->crcs[i], err);
        if (status) return status;
        k->done[i] = 1;
    }
    if (own && k->crcs[i] == head[1]) return DCP_OK;
    char text[256];
    core_box_print(dims, &box, text, sizeof text);
    core_fail(err, DCP_ERR_CORRUPT,
              "tensor %s, box %s: what rank %d loaded differs from another rank's copy",
              sorted[head[0]]->tensor.path, text, rank);
    core_fail_rank(DCP_ERR_CORRUPT, rank, err);
    return core_fail_tensor(DCP_ERR_CORRUPT, sorted[head[0]]->tensor.path, err);
}

static int compare_replicas(dcp_comm *comm, state_tensor *const *sorted, const plan_boxes *plan,
                            const staging *on_device, const comm_buffer *in, const uint64_t *bytes,
                            dcp_error *err) {
    known k = {calloc(plan->n + 1, sizeof *k.crcs), calloc(plan->n + 1, 1), on_device};
    int status = k.crcs && k.done ? DCP_OK : core_fail_memory(err, plan->n * sizeof *k.crcs);
    const unsigned char *at = in->data;
    for (int r = 0; r < comm->size && !status; r++)
        for (const unsigned char *end = at + bytes[r]; at < end && !status;) {
            uint64_t tensor;
            memcpy(&tensor, at, sizeof tensor);
            uint32_t dims = core_box_dims(sorted[tensor]->tensor.ndim);
            status = compare_replica(sorted, plan, &k, r, at, dims, err);
            at += 16 + 16ULL * dims;
        }
    free(k.crcs);
    free(k.done);
    return status;
}

/* Collective. Equal boxes of several ranks must hold equal bytes. The sum of checksums counts each
 * box once, so it proves only the keeper's bytes. Therefore each rank computes the checksums of its
 * replicas as they arrived in memory, and sends them to the replicas' keepers. A keeper compares
 * them with the checksums of its own boxes. Boxes of tensors that are not covered exactly are left
 * out. The message of DCP_ERR_CORRUPT names the tensor and the rank. */
static int check_replicas(dcp_comm *comm, state_tensor *const *sorted, const plan_boxes *plan,
                          const staging *on_device, dcp_error *err) {
    comm_buffer send = {0}, receive = {0};
    uint64_t *bytes = calloc(2 * (size_t)comm->size, sizeof *bytes);
    int status = bytes ? pack_replicas(sorted, plan, on_device, &send, bytes, err)
                       : core_fail_memory(err, 16 * (size_t)comm->size);
    uint64_t *received = bytes ? bytes + comm->size : NULL;
    status = comm_buffer_agree_exchange(comm, status, COMM_READY_BYTES, &send, bytes, &receive,
                                        received, err);
    if (!status) {
        status = compare_replicas(comm, sorted, plan, on_device, &receive, received, err);
        status = comm_agree(comm, status, err);
    }
    free(bytes);
    free(send.data);
    free(receive.data);
    return status;
}

/* The values on which the ranks vote when a load begins. */
typedef struct load_choice {
    bool is_selected;  /* the tensors could be selected */
    bool casts_on_way; /* some rank's boxes are on a device or have strides */
    bool same_tensors; /* all ranks selected the same tensors */
    uint64_t tensors;  /* the fingerprint of the selected tensors */
    uint64_t engine;   /* the engine that all ranks use */
} load_choice;

/* Collective. Sets `c` to what all ranks chose. Only ranks with `decides` set choose the engine. */
static int vote_on_choice(dcp_comm *comm, int status, const dcp_load_options *options,
                          bool in_flight, load_choice *c, bool decides, dcp_error *err) {
    comm_vote v = {0};
    comm_vote_all(&v, &c->is_selected);
    comm_vote_any(&v, &c->casts_on_way);
    comm_vote_equal(&v, true, &c->tensors, &c->same_tensors);
    comm_vote_from(&v, decides, &c->engine, 1);
    return load_select_agree(comm, status, options, in_flight, &v, err);
}

/* Collective: chooses the tensors, which all ranks select alike, and the engine. All ranks request
 * the same engine; if they leave the choice open, rank 0 chooses. */
static int choose(load_job *l, const dcp_state *state, dcp_error *err) {
    load_selection *s = &l->chosen;
    load_choice c = {0};
    dcp_error why = {.rank = -1};
    const bool scattered = l->ckpt->scattered;
    const bool decides = l->comm->rank == 0 || scattered || move_engine_row(l->options.engine);
    int selected = l->argument_status;
    if (!selected) selected = load_select_tensors(l->ckpt, state, &l->options, s, &why);
    if (!selected) {
        const move_engine *own = scattered ? move_engine_for_scattered()
                                 : decides ? move_engine_choose(l->options.engine, l->ckpt->path)
                                           : NULL;
        c = (load_choice){.is_selected = true,
                          .casts_on_way = state->device || state->has_strides,
                          .tensors = plan_fingerprint(s->wanted, s->n),
                          .engine = own ? own->engine : 0};
    }
    int status =
        vote_on_choice(l->comm, l->argument_status, &l->options, l->in_flight, &c, decides, err);
    if (status) return status;
    if (!c.is_selected) {
        status = comm_agree(l->comm, selected, &why);
        if (err) *err = why;
        return status;
    }
    status = plan_tensors_check(l->comm, s->wanted, s->n, c.same_tensors, err);
    if (status) return status;
    load_select_drop_missing(s, &l->options);
    l->report.engine = (dcp_engine)c.engine;
    l->engine = move_engine_row(l->report.engine);
    l->cast.on_the_way = l->options.cast && c.casts_on_way;
    return DCP_OK;
}

/* Returns the size of this rank's boxes in bytes, with elements of the stored types. */
static uint64_t bytes_of_boxes(const load_job *l) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < l->boxes.n; i++) {
        const plan_box *b = &l->boxes.boxes[i];
        const dcp_tensor *t = &l->chosen.stored[b->tensor]->tensor;
        bytes += dcp_box_elems(&b->box->box, t->ndim) * dcp_dtype_bytes(t->dtype);
    }
    return bytes;
}

/* Collective. For a load in flight, a rank that has already failed with `status` calls this instead
 * of load_plan. */
static int load_refuse(dcp_comm *comm, int status, const dcp_load_options *options,
                       dcp_error *err) {
    load_choice none = {0};
    return vote_on_choice(comm, status, options, true, &none, false, err);
}

/* Collective; begins with comm_agree of `own`. Plans the boxes of all ranks, and agrees on the
 * number of tensors whose pieces all ranks can make in one batch. Each rank calls load_pieces_begin
 * as soon as it can know the datasets near its boxes: immediately if its rows are READER_ROWS_HERE,
 * after the homes' answers if homes are asked, and otherwise after it has received the plan. */
static int plan_boxes_of(load_job *l, int own, dcp_error *err) {
    const bool rows_are_here = l->ckpt->rows == READER_ROWS_HERE, uses_homes = load_uses_homes(l);
    load_home_request asking = {0};
    comm_vote v = {0};
    uint64_t end = UINT64_MAX;
    if (!own) own = load_cast_prepare(l, err);
    if (!own && rows_are_here) own = load_pieces_begin(l, &end, err);
    if (!own && uses_homes) own = load_request_prepare(&asking, l, &end, err);
    comm_vote_min(&v, &end, 1);
    int status = plan_exchange_vote(l->comm, own, l->cast.tensors, l->chosen.n, false,
                                    uses_homes ? &asking.homes : NULL, &v, &l->boxes, err);
    if (!status && !rows_are_here && !uses_homes) { /* this rank has all rows */
        own = load_pieces_begin(l, &end, err);
        status = comm_agree_min(l->comm, own, &end, 1, err);
    }
    load_request_free(&asking);
    l->first_end = end;
    return status;
}

/* The two halves of a load, load_plan and load_run. They may be called in different threads: a load
 * in flight is planned in the caller's thread and runs in another one. */

/* Collective. Plans the load: afterwards each rank knows what it will read. Requires that begin_job
 * has filled in the job. `state` is borrowed until load_end; the lists of the options are not used
 * after the return. */
static int load_plan(load_job *l, const dcp_state *state, dcp_error *err) {
    double start = core_clock_now();
    int status = choose(l, state, err);
    if (!status) status = plan_boxes_of(l, move_device_open(&l->device, state, err), err);
    if (!status && !l->engine->is_by_position && load_proofs_are_due(l)) /* proofs need a queue */
        status = comm_agree(l->comm, io_queue_create(&l->queue, err), err);
    for (size_t i = 0; i < l->chosen.n && !status; i++)
        l->report.bytes += l->chosen.stored[i]->bytes;
    if (!status) l->progress.total = bytes_of_boxes(l);
    l->report.plan_s = core_clock_now() - start;
    return status;
}

/* Collective over l->comm, which may have been replaced since load_plan by another communicator of
 * the same ranks. Runs in any thread if the engine's is_for_any_thread is set. */
static int load_run(load_job *l, dcp_error *err) {
    double start = core_clock_now();
    comm_stop_begin(&l->progress.stop, l->comm);
    int status = load_proofs_are_due(l) ? load_proofs_agree(l, err) : DCP_OK;
    if (!status) status = load_pieces_move_all(l, err);
    double moved = core_clock_now();
    status = load_compare_sums(l, status, err);
    if (!status && l->boxes.has_replicas) /* otherwise the sums prove everything */
        status = check_replicas(l->comm, l->cast.tensors, &l->boxes, l->device.staging, err);
    if (!status) load_cast_in_place(l);
    l->report.sync_s = core_clock_now() - moved;
    l->report.total_s = l->report.plan_s + core_clock_now() - start;
    return status;
}

/* Frees what the job owns, even after a failure. */
static void load_end(load_job *l) {
    load_pieces_free(l);
    device_staging_close(l->device.staging);
    plan_boxes_free(&l->boxes);
    load_cast_free(&l->cast);
    load_select_free(&l->chosen);
}

/* The public functions: dcp_load returns when the load is complete; dcp_load_async starts a load in
 * flight, and the caller continues while bytes are read.
 *
 * The caller's thread plans a load in flight; another thread reads, over a duplicate of the
 * checkpoint's communicator. If there can be no such thread, the caller's thread reads, in
 * dcp_load_wait or in an earlier call that needs exclusive use of the checkpoint. In both cases all
 * ranks call the collective functions in the same order. */

struct dcp_loading {
    reader_user user;      /* must be the first member: the checkpoint points to it */
    load_job job;          /* its ckpt is NULL once the load has ended */
    dcp_comm *thread_comm; /* a duplicate of ckpt's communicator; NULL: there can be no thread */
    core_task task;
};

/* `given` is the status of the caller's arguments so far. */
static void begin_job(load_job *l, dcp_checkpoint *ckpt, int given,
                      const dcp_load_options *options) {
    *l =
        (load_job){.ckpt = ckpt, .comm = ckpt->comm, .options = *options, .argument_status = given};
    l->progress =
        (move_progress){.on_progress = options->on_progress,
                        .progress_ctx = options->progress_ctx,
                        .stop = {.should_stop = options->stop,
                                 .ctx = options->stop_ctx,
                                 .what = "the load",
                                 .outcome = "the contents of the state's boxes are undefined"}};
}

static int run_loading(void *ctx, dcp_error *err) {
    dcp_loading *s = ctx;
    const int status = load_run(&s->job, err);
    load_end(&s->job);
    return status;
}

/* Completes the load, unless it has already ended. */
static void wait_for_loading(reader_user *user) {
    dcp_loading *s = (dcp_loading *)user;
    dcp_checkpoint *ckpt = s->job.ckpt;
    if (!ckpt || !core_task_is_own(&s->task)) return;
    core_task_finish(&s->task);
    s->job.ckpt = NULL;
    ckpt->user = NULL;
}

static void free_loading(dcp_loading *s) {
    dcp_comm_destroy(s->thread_comm);
    free(s);
}

static void launch_loading(dcp_loading *s) {
    s->job.ckpt->user = &s->user;
    if (!s->thread_comm) return;
    s->job.comm = s->thread_comm;
    core_task_start(&s->task, "dcp-load");
}

/* Collective: plans the load, and makes the thread's communicator if there can be a thread. */
static int plan_loading(dcp_loading *s, const dcp_state *state, dcp_error *err) {
    load_job *l = &s->job;
    l->in_flight = true;
    core_task_init(&s->task, run_loading, s);
    l->progress.stop.cancelled = &s->task.cancelled;
    s->user.wait = wait_for_loading;
    int status = load_plan(l, state, err);
    if (!status && l->engine->is_for_any_thread)
        status = comm_duplicate(l->comm, &s->thread_comm, err);
    if (status) load_end(l);
    return status;
}

int dcp_load_async(dcp_checkpoint *ckpt, const dcp_state *state, const dcp_load_options *options,
                   dcp_loading **out, dcp_error *err) {
    dcp_load_options own;
    if (!ckpt) return core_fail(err, DCP_ERR_ARG, "dcp_load_async: a checkpoint is needed");
    reader_checkpoint_wait(ckpt);
    int status = core_sized_copy_in(&own, sizeof own, options, "DCP_LOAD_OPTIONS_INIT", err);
    if (!status && !out) status = core_fail(err, DCP_ERR_ARG, "dcp_load_async: out is NULL");
    dcp_loading *s = calloc(1, sizeof *s);
    if (!s) {
        status = core_fail_memory(err, sizeof *s);
        return load_refuse(ckpt->comm, status, &own, err);
    }
    begin_job(&s->job, ckpt, status, &own);
    status = plan_loading(s, state, err);
    if (status) {
        free(s);
        return status;
    }
    launch_loading(s);
    *out = s;
    return DCP_OK;
}

int dcp_load_is_done(dcp_loading *loading) {
    if (!loading) return DCP_ERR_ARG;
    if (!core_task_is_own(&loading->task) || core_task_is_done(&loading->task)) return 1;
    return loading->task.has_thread ? 0 : DCP_ERR_STATE;
}

void dcp_load_cancel(dcp_loading *loading) {
    if (loading) core_task_cancel(&loading->task);
}

int dcp_load_wait(dcp_loading *loading, dcp_report *report, dcp_error *err) {
    if (!loading) return core_fail(err, DCP_ERR_ARG, "dcp_load_wait: no load");
    if (!core_task_is_own(&loading->task))
        return core_fail(err, DCP_ERR_STATE,
                         "dcp_load_wait: the load was started by process %ld, from which this "
                         "process was forked: only that process can wait for it",
                         (long)loading->task.process);
    int reportable = core_sized_check(report, sizeof *report, "DCP_REPORT_INIT", err);
    wait_for_loading(&loading->user);
    int status = loading->task.status;
    if (status && err) *err = loading->task.error;
    if (!status) status = reportable;
    if (!status) core_sized_copy_out(report, &loading->job.report, sizeof loading->job.report);
    free_loading(loading);
    return status;
}

int dcp_load_with(dcp_checkpoint *ckpt, const dcp_state *state, const dcp_load_options *options,
                  dcp_report *report, dcp_error *err) {
    dcp_load_options own;
    if (!ckpt) return core_fail(err, DCP_ERR_ARG, "dcp_load: a checkpoint is needed");
    reader_checkpoint_wait(ckpt);
    int given = core_sized_copy_in(&own, sizeof own, options, "DCP_LOAD_OPTIONS_INIT", err);
    if (!given) given = core_sized_check(report, sizeof *report, "DCP_REPORT_INIT", err);
    load_job l;
    begin_job(&l, ckpt, given, &own);
    int status = load_plan(&l, state, err);
    if (!status) status = load_run(&l, err);
    load_end(&l);
    if (!status) core_sized_copy_out(report, &l.report, sizeof l.report);
    return status;
}

int dcp_load(dcp_checkpoint *ckpt, const dcp_state *state, dcp_report *report, dcp_error *err) {
    return dcp_load_with(ckpt, state, NULL, report, err);
}
