/* A load: select, plan, move, prove, cast. Tensors that the ranks' boxes cover exactly are proven
 * by one sum of checksums over what arrived in memory; the others' blocks are checked one by one as
 * they are read, or, where not all ranks see all files, by the ranks that read the files. */
#include "load/load.h"

#include <stdlib.h>
#include <string.h>

#include "comm/message.h"
#include "core/box.h"
#include "core/clock.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "core/search.h"
#include "core/strides.h"
#include "device/staging.h"
#include "load/cast.h"
#include "load/pieces.h"
#include "load/select.h"
#include "move/engine.h"
#include "plan/agreement.h"
#include "step/read.h"

/* Of boxes that are filled where they are; see load_cast_narrow. */
static size_t add_pieces(const load_job *l, move_piece *out) {
    size_t n = 0;
    for (size_t i = 0; i < l->boxes.n; i++) {
        const plan_box *b = &l->boxes.boxes[i];
        if (out && i + PREFETCH_DISTANCE < l->boxes.n)
            core_prefetch(b[PREFETCH_DISTANCE].box, sizeof *b->box);
        if (load_pieces_fill(l, b->tensor) &&
            !(l->cast.narrows && load_cast_is_narrow(l, b->tensor)))
            n += load_pieces_of(l, b, b->box, out ? out + n : NULL);
    }
    return n;
}

/* Collective. Fills the boxes that need no scratch memory. */
static int move_boxes(load_job *l, dcp_error *err) {
    size_t n = add_pieces(l, NULL);
    move_piece *pieces = calloc(n + 1, sizeof *pieces);
    if (pieces) n = add_pieces(l, pieces);
    int complete = pieces && move_pieces_have_copies(pieces, n);
    int status =
        complete ? move_progress_ask(&l->progress, err) : core_fail_memory(err, n * sizeof *pieces);
    status = comm_agree(l->comm, status, err);
    if (!status) status = load_pieces_move(l, pieces, n, err);
    move_pieces_free(pieces, n);
    return status;
}

/* Ranks share the comparing. */
static int prove_sums(load_job *l, dcp_error *err) {
    int status = comm_allreduce(l->comm, l->sums, l->first_sum[l->chosen.n], DCP_REDUCE_XOR, err);
    if (status) return status;
    for (size_t i = (size_t)l->comm->rank; i < l->chosen.n; i += (size_t)l->comm->size) {
        const step_tensor *t = l->chosen.stored[i];
        const uint64_t *sums = l->sums + l->first_sum[i];
        for (size_t k = 0; k < t->n_datasets && !status && l->boxes.exact[i]; k++) {
            const step_dataset *p = &l->ckpt->datasets[t->first_dataset + k];
            status = step_read_compare_sums(p, sums, err);
            sums += step_index_blocks(p->row->bytes);
        }
    }
    return comm_agree(l->comm, status, err);
}

static int read_inexact(load_job *l, dcp_error *err) {
    int status = DCP_OK;
    for (size_t i = 0; i < l->boxes.n && !status; i++)
        if (!load_pieces_fill(l, l->boxes.boxes[i].tensor))
            status = load_cast_read(l, &l->boxes.boxes[i], err);
    if (!status) status = move_device_flush(&l->device, err);
    return comm_agree(l->comm, status, err);
}

/* Marks the blocks that the runs touch; of short runs, one a block is enough. */
static void mark_runs(const box_copy *copy, uint64_t *marks) {
    for (uint64_t i = 0, a, b; i < copy->runs;) {
        core_box_copy_run(copy, i, &a, &b);
        uint64_t last = (a + copy->run_bytes - 1) / BLOCK_BYTES;
        for (uint64_t block = a / BLOCK_BYTES; block <= last; block++) marks[block] = 1;
        uint64_t after = core_box_copy_find(copy, (last + 1) * BLOCK_BYTES);
        i = after > i ? after : i + 1;
    }
}

static void mark_box(const load_job *l, const plan_box *b, uint64_t *marks) {
    const step_tensor *t = l->chosen.stored[b->tensor];
    const step_dataset *datasets = &l->ckpt->datasets[t->first_dataset];
    size_t k, end;
    step_checkpoint_near(l->ckpt, t, &b->box->box, &k, &end);
    for (; k < end; k++) {
        box_copy copy;
        if (step_index_shared(datasets[k].row, &b->box->box, &copy))
            mark_runs(&copy, marks + l->first_sum[b->tensor] + datasets[k].first_block);
    }
}

static int check_marked(load_job *l, size_t tensor, const uint64_t *marks, dcp_error *err) {
    const step_tensor *t = l->chosen.stored[tensor];
    int status = DCP_OK;
    marks += l->first_sum[tensor];
    for (size_t k = 0; k < t->n_datasets && !status; k++) {
        const step_dataset *p = &l->ckpt->datasets[t->first_dataset + k];
        uint64_t blocks = step_index_blocks(p->row->bytes);
        for (uint64_t b = 0; b < blocks && p->file->reader == l->comm->rank && !status; b++)
            if (marks[b] && !(status = move_progress_ask(&l->progress, err)))
                status = step_read_block(&l->cache, p, b, err);
        marks += blocks;
    }
    return status;
}

/* Collective. Of tensors that the ranks' boxes don't cover exactly, in files that some ranks don't
 * see: the ranks mark which blocks they took bytes of, and the files' readers check those. */
static int check_taken_blocks(load_job *l, dcp_error *err) {
    size_t n = l->chosen.n;
    uint64_t blocks = l->first_sum[n], *marks = calloc(blocks + 1, sizeof *marks);
    int status =
        comm_agree(l->comm, marks ? DCP_OK : core_fail_memory(err, blocks * sizeof *marks), err);
    if (status) goto free_marks;
    for (size_t i = 0; i < l->boxes.n; i++)
        if (!l->boxes.exact[l->boxes.boxes[i].tensor]) mark_box(l, &l->boxes.boxes[i], marks);
    status = comm_allreduce(l->comm, marks, blocks, DCP_REDUCE_MAX, err);
    if (status) goto free_marks;
    for (size_t i = 0; i < n && !status; i++)
        if (!l->boxes.exact[i]) status = check_marked(l, i, marks, err);
    status = comm_agree(l->comm, status, err);
free_marks:
    free(marks);
    return status;
}

/* Of all replicas and of those that they are compared with. */
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

static int is_replica(const plan_boxes *plan, const plan_box *b) {
    return !b->keeper && plan->exact[b->tensor];
}

static int by_keeper(const void *a, const void *b) {
    const plan_box *x = *(const plan_box *const *)a, *y = *(const plan_box *const *)b;
    return (x->keeper_rank > y->keeper_rank) - (x->keeper_rank < y->keeper_rank);
}

/* As u64s: tensor, checksum, start and count of each dimension. */
static int pack_replica(state_tensor *const *sorted, const plan_box *b, const staging *on_device,
                        comm_message *out, dcp_error *err) {
    uint32_t dims = core_box_dims(sorted[b->tensor]->tensor.ndim);
    uint64_t head[2] = {b->tensor, 0};
    int status = sum_box(sorted, b, on_device, &head[1], err);
    if (status) return status;
    unsigned char *at = comm_message_append(out, 16 + 16ULL * dims);
    if (!at) return core_fail_memory(err, out->bytes);
    memcpy(at, head, sizeof head);
    memcpy(at + 16, b->box->box.start, 8ULL * dims);
    memcpy(at + 16 + 8ULL * dims, b->box->box.count, 8ULL * dims);
    return DCP_OK;
}

static int pack_replicas(state_tensor *const *sorted, const plan_boxes *plan,
                         const staging *on_device, comm_message *out, uint64_t *bytes,
                         dcp_error *err) {
    const plan_box **order = malloc((plan->n + 1) * sizeof *order);
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

/* The keeper's own box that equals `want`; plan->boxes ascend by tensor. */
static const plan_box *find_kept_box(state_tensor *const *sorted, const plan_boxes *plan,
                                     size_t tensor, const dcp_box *want) {
    size_t low = core_first_from(&plan->boxes->tensor, plan->n, sizeof *plan->boxes, tensor);
    for (; low < plan->n && plan->boxes[low].tensor == tensor; low++)
        if (plan->boxes[low].keeper && core_box_equal(core_box_dims(sorted[tensor]->tensor.ndim),
                                                      &plan->boxes[low].box->box, want))
            return &plan->boxes[low];
    return NULL;
}

typedef struct known { /* checksums of this rank's boxes that were asked for */
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
                            const staging *on_device, const comm_message *in, const uint64_t *bytes,
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

/* Whether any rank has a replica at all. */
static int any_replica(dcp_comm *comm, const plan_boxes *plan, int *any, dcp_error *err) {
    uint64_t n = 0;
    for (size_t i = 0; i < plan->n && !n; i++) n = (uint64_t)is_replica(plan, &plan->boxes[i]);
    int status = comm_allreduce(comm, &n, 1, DCP_REDUCE_MAX, err);
    *any = n != 0;
    return status;
}

/* Collective. Equal boxes of several ranks must hold equal bytes: their keeper's were proven by the
 * sum of checksums, which counts each box once. So each rank tells the keepers of its replicas the
 * checksums of what arrived, and the keepers compare them with their own. Boxes of tensors that are
 * not covered exactly are left out. DCP_ERR_CORRUPT names the tensor and the rank. */
static int check_replicas(dcp_comm *comm, state_tensor *const *sorted, const plan_boxes *plan,
                          const staging *on_device, dcp_error *err) {
    comm_message send = {0}, receive = {0};
    int any = 0, status = any_replica(comm, plan, &any, err);
    if (status || !any) return status;
    uint64_t *bytes = calloc(2 * (size_t)comm->size, sizeof *bytes);
    status = bytes ? pack_replicas(sorted, plan, on_device, &send, bytes, err)
                   : core_fail_memory(err, 16 * (size_t)comm->size);
    status = comm_agree(comm, status, err);
    if (status) goto free_all;
    uint64_t *received = bytes + comm->size;
    status = comm_message_exchange(comm, &send, bytes, &receive, received, err);
    if (status) goto free_all;
    status = comm_agree(
        comm, compare_replicas(comm, sorted, plan, on_device, &receive, received, err), err);
free_all:
    free(bytes);
    free(send.data);
    free(receive.data);
    return status;
}

static int choose_tensors(load_job *l, const dcp_state *state, dcp_error *err) {
    load_selection *s = &l->chosen;
    int status = load_select_agree(l->comm, l->given, &l->options, l->in_flight, err);
    if (!status)
        status = comm_agree(l->comm, load_select_tensors(l->ckpt, state, &l->options, s, err), err);
    if (!status) status = plan_tensors(l->comm, s->wanted, s->n, err);
    if (!status) load_select_drop_missing(s, &l->options);
    return status;
}

/* All ranks want the same engine; where they leave the choice, rank 0 chooses. */
static int choose_engine(load_job *l, dcp_error *err) {
    const move_engine *own = l->ckpt->scattered
                                 ? move_engine_for_scattered()
                                 : move_engine_choose(l->options.engine, l->ckpt->path);
    uint64_t engine = own->engine;
    int status = comm_broadcast(l->comm, &engine, sizeof engine, 0, err);
    if (status) return status;
    l->report.engine = (dcp_engine)engine;
    l->engine = move_engine_row(l->report.engine);
    return DCP_OK;
}

/* Of this rank's boxes, as they are stored. */
static uint64_t bytes_of_boxes(const load_job *l) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < l->boxes.n; i++) {
        const plan_box *b = &l->boxes.boxes[i];
        const dcp_tensor *t = &l->chosen.stored[b->tensor]->tensor;
        bytes += dcp_box_elems(&b->box->box, t->ndim) * dcp_dtype_bytes(t->dtype);
    }
    return bytes;
}

int load_plan(load_job *l, const dcp_state *state, dcp_error *err) {
    double start = core_clock_now();
    int status = choose_tensors(l, state, err);
    if (!status) status = choose_engine(l, err);
    if (!status) status = comm_agree(l->comm, move_device_open(&l->device, state, err), err);
    if (!status) status = load_cast_agree(l, state, err);
    if (!status) status = comm_agree(l->comm, load_cast_prepare(l, err), err);
    if (!status) status = plan_exchange(l->comm, l->cast.tensors, l->chosen.n, 0, &l->boxes, err);
    if (!status) status = comm_agree(l->comm, load_pieces_prepare(l, err), err);
    for (size_t i = 0; i < l->chosen.n && !status; i++)
        l->report.bytes += l->chosen.stored[i]->bytes;
    if (!status) l->progress.total = bytes_of_boxes(l);
    l->report.plan_s = core_clock_now() - start;
    return status;
}

int load_run(load_job *l, dcp_error *err) {
    double start = core_clock_now();
    comm_stop_begin(&l->progress.stop, l->comm);
    int status = move_boxes(l, err);
    if (!status) status = load_cast_narrow(l, err);
    double moved = core_clock_now();
    if (!status) status = prove_sums(l, err);
    if (!status)
        status = check_replicas(l->comm, l->cast.tensors, &l->boxes, l->device.staging, err);
    if (!status) status = (l->ckpt->scattered ? check_taken_blocks : read_inexact)(l, err);
    if (!status) load_cast_in_place(l);
    l->report.sync_s = core_clock_now() - moved;
    l->report.total_s = l->report.plan_s + core_clock_now() - start;
    return status;
}

void load_end(load_job *l) {
    load_pieces_free(l);
    device_staging_close(l->device.staging);
    plan_boxes_free(&l->boxes);
    load_cast_free(&l->cast);
    load_select_free(&l->chosen);
    free(l->cache.data);
    l->cache = (step_block_cache){0};
}
