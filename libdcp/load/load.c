/* dcp_load: plan, move, prove. Tensors that the ranks' boxes cover exactly are proven by one sum of
 * checksums over what arrived in memory; the others' blocks are checked one by one as they are read
 * (load/read.c). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/box.h"
#include "core/clock.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "load/replicas.h"
#include "load/transfer.h"
#include "plan/plan.h"

typedef struct load {
    dcp_checkpoint *ckpt;
    dcp_comm *comm;
    state_tensor **sorted;
    size_t n;
    const ckpt_tensor **stored; /* a state tensor's in the checkpoint */
    plan_boxes boxes;
    piece *pieces;
    size_t n_pieces;
    uint64_t *sums;
} load;

static int match_tensor(const dcp_checkpoint *ckpt, const state_tensor *want,
                        const ckpt_tensor **out, dcp_error *err) {
    const ckpt_tensor *have = checkpoint_lookup(ckpt, want->tensor.path);
    if (!have)
        return core_fail(err, DCP_ERR_NOT_FOUND, "%s: tensor %s is not in the checkpoint",
                         ckpt->path, want->tensor.path);
    const dcp_tensor *a = &want->tensor, *b = &have->tensor;
    if (!tensor_same(a, b)) {
        char wanted[200], stored[200];
        shape_print(a->ndim, a->shape, wanted, sizeof wanted);
        shape_print(b->ndim, b->shape, stored, sizeof stored);
        return core_fail(err, DCP_ERR_MISMATCH,
                         "%s: tensor %s is %s %s in the checkpoint, %s %s is asked for", ckpt->path,
                         a->path, dcp_dtype_name(b->dtype), stored, dcp_dtype_name(a->dtype),
                         wanted);
    }
    *out = have;
    return DCP_OK;
}

static int match(load *l, const dcp_state *state, dcp_error *err) {
    if (!state) return core_fail(err, DCP_ERR_ARG, "dcp_load: a state is needed");
    l->n = dcp_state_tensors(state);
    l->sorted = state_sorted(state);
    l->stored = calloc(l->n + 1, sizeof *l->stored);
    if (!l->sorted || !l->stored) return core_fail_memory(err, l->n * 8);
    int status = DCP_OK;
    for (size_t i = 0; i < l->n && !status; i++) {
        status = match_tensor(l->ckpt, l->sorted[i], &l->stored[i], err);
        for (size_t k = 0; k < l->sorted[i]->n_boxes && !status; k++)
            if (!l->sorted[i]->boxes[k].data)
                status = core_fail(err, DCP_ERR_ARG, "tensor %s: a source can't be loaded into",
                                   l->sorted[i]->tensor.path);
    }
    return status;
}

/* What one dataset holds of one box. */
static int add_piece(load *l, const plan_box *b, const ckpt_piece *from) {
    const dcp_tensor *t = &l->sorted[b->tensor]->tensor;
    box_copy copy;
    if (!from->row->bytes ||
        !box_copy_between(&copy, t->ndim, dcp_dtype_bytes(t->dtype), &from->row->box, &b->box->box))
        return 0;
    if (!l->pieces) return 1; /* counting */
    piece *p = &l->pieces[l->n_pieces++];
    *p = (piece){.copy = copy,
                 .file_offset = from->file->base + from->row->offset,
                 .bytes = from->row->bytes,
                 .box = b->box};
    if (b->keeper) p->sums = l->sums + from->file->first_block + from->row->first_block;
    piece_choose_way(p);
    return 1;
}

static size_t add_pieces(load *l) {
    size_t n = 0;
    for (size_t i = 0; i < l->boxes.n; i++) {
        const plan_box *b = &l->boxes.boxes[i];
        const ckpt_tensor *t = l->stored[b->tensor];
        for (size_t k = 0; k < t->n_pieces && l->boxes.exact[b->tensor]; k++)
            n += (size_t)add_piece(l, b, &l->ckpt->pieces[t->first_piece + k]);
    }
    return n;
}

static int make_pieces(load *l, dcp_error *err) {
    size_t n = add_pieces(l);
    l->sums = calloc(l->ckpt->blocks + 1, sizeof *l->sums);
    l->pieces = calloc(n + 1, sizeof *l->pieces);
    if (!l->sums || !l->pieces) return core_fail_memory(err, n * sizeof *l->pieces);
    add_pieces(l);
    piece_sort(l->pieces, l->n_pieces);
    int status = DCP_OK;
    for (size_t f = 0; f < l->ckpt->n_files && !status; f++)
        status = checkpoint_file(&l->ckpt->files[f], err);
    return status;
}

static int move(load *l, dcp_report *report, dcp_error *err) {
    io_queue *queue = NULL;
    double start = clock_now();
    int status = comm_agree(l->comm, io_queue_create(&queue, err), err);
    if (!status) status = load_fragments(l->ckpt, queue, l->pieces, l->n_pieces, err);
    double middle = clock_now();
    if (!status)
        status = comm_agree(l->comm, load_direct(l->ckpt, queue, l->pieces, l->n_pieces, err), err);
    io_queue_destroy(queue);
    report->exchange_s = middle - start;
    report->transfer_s = clock_now() - middle;
    return status;
}

static int compare_row(const load *l, const ckpt_piece *p, dcp_error *err) {
    const uint64_t *stored = p->file->crcs + p->row->first_block;
    const uint64_t *sums = l->sums + p->file->first_block + p->row->first_block;
    for (uint64_t b = 0; b < index_blocks(p->row->bytes); b++)
        if (crc64_finish(sums[b], index_block_bytes(p->row->bytes, b)) != stored[b])
            return core_fail(err, DCP_ERR_CORRUPT,
                             "%s: tensor %s, block %llu: what was read differs from what was saved",
                             p->file->path, p->row->tensor.path, (unsigned long long)b);
    return DCP_OK;
}

/* Ranks share the comparing. */
static int prove(load *l, dcp_error *err) {
    int status = comm_allreduce(l->comm, l->sums, l->ckpt->blocks, DCP_REDUCE_XOR, err);
    if (status) return status;
    for (size_t i = (size_t)l->comm->rank; i < l->n && !status; i += (size_t)l->comm->size) {
        const ckpt_tensor *t = l->stored[i];
        for (size_t k = 0; k < t->n_pieces && !status && l->boxes.exact[i]; k++)
            status = compare_row(l, &l->ckpt->pieces[t->first_piece + k], err);
    }
    return comm_agree(l->comm, status, err);
}

static int read_inexact(load *l, dcp_error *err) {
    int status = DCP_OK;
    for (size_t i = 0; i < l->boxes.n && !status; i++) {
        const plan_box *b = &l->boxes.boxes[i];
        if (!l->boxes.exact[b->tensor])
            status = dcp_checkpoint_read(l->ckpt, l->sorted[b->tensor]->tensor.path, &b->box->box,
                                         b->box->data, err);
    }
    return comm_agree(l->comm, status, err);
}

static int run(load *l, const dcp_state *state, dcp_report *report, dcp_error *err) {
    double start = clock_now();
    int status = comm_agree(l->comm, match(l, state, err), err);
    if (!status) status = plan_tensors(l->comm, l->sorted, l->n, err);
    if (!status) status = plan_exchange(l->comm, l->sorted, l->n, 0, &l->boxes, err);
    if (!status) status = comm_agree(l->comm, make_pieces(l, err), err);
    for (size_t i = 0; i < l->n; i++) report->bytes += l->sorted[i]->bytes;
    report->plan_s = clock_now() - start;
    if (!status) status = move(l, report, err);
    double moved = clock_now();
    if (!status) status = prove(l, err);
    if (!status) status = replicas_check(l->comm, l->sorted, &l->boxes, err);
    if (!status) status = read_inexact(l, err);
    report->sync_s = clock_now() - moved;
    report->total_s = clock_now() - start;
    return status;
}

int dcp_load(dcp_checkpoint *ckpt, const dcp_state *state, dcp_report *report, dcp_error *err) {
    if (!ckpt) return core_fail(err, DCP_ERR_ARG, "dcp_load: a checkpoint is needed");
    load l = {.ckpt = ckpt, .comm = ckpt->comm};
    dcp_report figures = {0};
    int status = run(&l, state, &figures, err);
    plan_boxes_free(&l.boxes);
    free(l.sorted);
    free(l.stored);
    free(l.pieces);
    free(l.sums);
    if (!status && report) *report = figures;
    return status;
}
