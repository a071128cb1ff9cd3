/* dcp_load: select, plan, move, prove, cast. Tensors that the ranks' boxes cover exactly are proven
 * by one sum of checksums over what arrived in memory; the others' blocks are checked one by one as
 * they are read (load/read.c), or, where not all ranks see all files, by the files' readers
 * (load/blocks.c). */
#include "load/load.h"

#include <stdlib.h>

#include "core/box.h"
#include "core/clock.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "load/cast.h"
#include "load/place.h"
#include "load/replicas.h"
#include "plan/plan.h"
#include "plan/tensors.h"

/* What one dataset holds of one box. */
static int make_piece(const load *l, const plan_box *b, const state_box *box,
                      const step_dataset *from, piece *out) {
    const dcp_tensor *t = &l->chosen.stored[b->tensor]->tensor;
    const dcp_box held = step_index_row_box(from->row);
    box_copy copy;
    if (!from->row->bytes ||
        !core_box_copy_between(&copy, t->ndim, dcp_dtype_bytes(t->dtype), &held, &box->box))
        return 0;
    *out = (piece){.file_offset = from->file->base + from->row->offset,
                   .bytes = from->row->bytes,
                   .row = from->row,
                   .box = box};
    if (b->keeper && l->boxes.exact[b->tensor])
        out->sums = l->sums + l->first_sum[b->tensor] + from->first_block;
    piece_set_copy(out, &copy);
    if (from->file->hidden) out->direct = 0;
    if (box->device) out->staging = l->staging;
    return 1;
}

size_t load_pieces(const load *l, const plan_box *b, const state_box *box, piece *out) {
    const step_tensor *t = l->chosen.stored[b->tensor];
    const step_dataset *from = &l->ckpt->pieces[t->first_piece];
    size_t n = 0, k, end;
    step_checkpoint_near(l->ckpt, t, &box->box, &k, &end);
    if (!out) return end - k;
    for (; k < end; k++) n += (size_t)make_piece(l, b, box, &from[k], out + n);
    return n;
}

/* Of boxes that are filled where they are; see cast_narrow. */
static size_t add_pieces(const load *l, piece *out) {
    size_t n = 0;
    for (size_t i = 0; i < l->boxes.n; i++) {
        const plan_box *b = &l->boxes.boxes[i];
        if (out && i + PREFETCH_DISTANCE < l->boxes.n)
            core_prefetch(b[PREFETCH_DISTANCE].box, sizeof *b->box);
        if (load_moves(l, b->tensor) && !(l->cast.narrows && cast_is_narrow(l, b->tensor)))
            n += load_pieces(l, b, b->box, out ? out + n : NULL);
    }
    return n;
}

static int make_sums(load *l, dcp_error *err) {
    uint64_t blocks = 0;
    l->first_sum = calloc(l->chosen.n + 1, sizeof *l->first_sum);
    if (!l->first_sum) return core_fail_memory(err, l->chosen.n * sizeof *l->first_sum);
    for (size_t i = 0; i < l->chosen.n; i++) {
        l->first_sum[i] = blocks;
        blocks += l->chosen.stored[i]->blocks;
    }
    l->first_sum[l->chosen.n] = blocks;
    l->sums = calloc(blocks + 1, sizeof *l->sums);
    return l->sums ? DCP_OK : core_fail_memory(err, blocks * sizeof *l->sums);
}

static int make_pieces(load *l, dcp_error *err) {
    int status = make_sums(l, err);
    if (status) return status;
    l->n_pieces = add_pieces(l, NULL);
    l->pieces = calloc(l->n_pieces + 1, sizeof *l->pieces);
    if (!l->pieces) return core_fail_memory(err, l->n_pieces * sizeof *l->pieces);
    l->n_pieces = add_pieces(l, l->pieces);
    if (!pieces_stand(l->pieces, l->n_pieces))
        return core_fail_memory(err, l->n_pieces * sizeof *l->pieces);
    if (l->engine == DCP_ENGINE_MPIO) return DCP_OK;
    for (size_t f = 0; f < l->ckpt->n_files && !status; f++)
        if (!l->ckpt->files[f].hidden) status = step_file_open(&l->ckpt->files[f], err);
    return status ? status : io_queue_create(&l->queue, err);
}

static int move_mpio(load *l, const piece *pieces, size_t n, dcp_error *err) {
    double start = core_clock_now();
    int status = load_mpio(l->ckpt, pieces, n, err);
    if (!status) status = place_rest(l->staging, err);
    status = comm_agree(l->comm, status, err);
    l->report.write_s += core_clock_now() - start;
    return status;
}

int load_move(load *l, piece *pieces, size_t n, dcp_error *err) {
    double start = core_clock_now();
    piece_sort(pieces, n);
    if (l->engine == DCP_ENGINE_MPIO) return move_mpio(l, pieces, n, err);
    double waited_before = io_queue_waited(l->queue);
    int status = load_fragments(l->ckpt, l->queue, pieces, n, err);
    double middle = core_clock_now(), waited = io_queue_waited(l->queue) - waited_before;
    if (!status) {
        status = load_direct(l->ckpt, l->queue, pieces, n, err);
        if (!status) status = place_rest(l->staging, err);
        status = comm_agree(l->comm, status, err);
    }
    double waited_in_all = io_queue_waited(l->queue) - waited_before;
    l->report.gather_s += middle - start - waited;
    l->report.copy_s += core_clock_now() - middle - (waited_in_all - waited);
    l->report.write_s += waited_in_all;
    return status;
}

static int compare_row(const step_dataset *p, const uint64_t *sums, dcp_error *err) {
    const uint64_t *stored = p->file->crcs + p->row->first_block;
    for (uint64_t b = 0; b < step_index_blocks(p->row->bytes); b++)
        if (core_crc64_finish(sums[b], step_index_block_bytes(p->row->bytes, b)) != stored[b])
            return core_fail(err, DCP_ERR_CORRUPT,
                             "%s: tensor %s, block %llu: what was read differs from what was saved",
                             p->file->path, p->row->tensor.path, (unsigned long long)b);
    return DCP_OK;
}

/* Ranks share the comparing. */
static int prove(load *l, dcp_error *err) {
    int status = comm_allreduce(l->comm, l->sums, l->first_sum[l->chosen.n], DCP_REDUCE_XOR, err);
    if (status) return status;
    for (size_t i = (size_t)l->comm->rank; i < l->chosen.n; i += (size_t)l->comm->size) {
        const step_tensor *t = l->chosen.stored[i];
        const uint64_t *sums = l->sums + l->first_sum[i];
        for (size_t k = 0; k < t->n_pieces && !status && l->boxes.exact[i]; k++) {
            const step_dataset *p = &l->ckpt->pieces[t->first_piece + k];
            status = compare_row(p, sums, err);
            sums += step_index_blocks(p->row->bytes);
        }
    }
    return comm_agree(l->comm, status, err);
}

static int read_inexact(load *l, dcp_error *err) {
    int status = DCP_OK;
    for (size_t i = 0; i < l->boxes.n && !status; i++)
        if (!load_moves(l, l->boxes.boxes[i].tensor))
            status = cast_read(l, &l->boxes.boxes[i], err);
    if (!status) status = place_rest(l->staging, err);
    return comm_agree(l->comm, status, err);
}

static int choose(load *l, const dcp_state *state, dcp_error *err) {
    selection *s = &l->chosen;
    int status = select_agree(l->comm, l->options, err);
    if (!status)
        status = comm_agree(l->comm, select_tensors(l->ckpt, state, l->options, s, err), err);
    if (!status) status = plan_tensors(l->comm, s->wanted, s->n, err);
    if (!status) select_drop_missing(s, l->options);
    return status;
}

/* All ranks want the same engine; where they leave the choice, rank 0 chooses. HDF5 can only read
 * what its rank sees. */
static int choose_engine(load *l, dcp_error *err) {
    dcp_engine wanted = l->ckpt->scattered ? DCP_ENGINE_DIRECT : l->options->engine;
    uint64_t engine = plan_engine(wanted, l->ckpt->path);
    int status = comm_broadcast(l->comm, &engine, sizeof engine, 0, err);
    l->engine = l->report.engine = (dcp_engine)engine;
    return status;
}

static int plan(load *l, const dcp_state *state, dcp_error *err) {
    double start = core_clock_now();
    int status = choose(l, state, err);
    if (!status) status = choose_engine(l, err);
    if (!status) status = comm_agree(l->comm, place_prepare(state, &l->staging, err), err);
    if (!status) status = cast_agree(l, err);
    if (!status) status = comm_agree(l->comm, cast_prepare(l, err), err);
    if (!status) status = plan_exchange(l->comm, l->cast.tensors, l->chosen.n, 0, &l->boxes, err);
    if (!status) status = comm_agree(l->comm, make_pieces(l, err), err);
    for (size_t i = 0; i < l->chosen.n && !status; i++)
        l->report.bytes += l->chosen.stored[i]->bytes;
    l->report.plan_s = core_clock_now() - start;
    return status;
}

static int run(load *l, const dcp_state *state, dcp_error *err) {
    double start = core_clock_now();
    int status = plan(l, state, err);
    if (!status) status = load_move(l, l->pieces, l->n_pieces, err);
    if (!status) status = cast_narrow(l, err);
    double moved = core_clock_now();
    if (!status) status = prove(l, err);
    if (!status) status = replicas_check(l->comm, l->cast.tensors, &l->boxes, l->staging, err);
    if (!status) status = (l->ckpt->scattered ? load_check_blocks : read_inexact)(l, err);
    if (!status) cast_in_place(l);
    l->report.sync_s = core_clock_now() - moved;
    l->report.total_s = core_clock_now() - start;
    return status;
}

int dcp_load_with(dcp_checkpoint *ckpt, const dcp_state *state, const dcp_load_options *options,
                  dcp_report *report, dcp_error *err) {
    static const dcp_load_options defaults;
    if (!ckpt) return core_fail(err, DCP_ERR_ARG, "dcp_load: a checkpoint is needed");
    load l = {.ckpt = ckpt, .comm = ckpt->comm, .options = options ? options : &defaults};
    int status = run(&l, state, err);
    io_queue_destroy(l.queue);
    device_staging_close(l.staging);
    plan_boxes_free(&l.boxes);
    cast_free(&l.cast);
    select_free(&l.chosen);
    pieces_free(l.pieces, l.n_pieces);
    free(l.sums);
    free(l.first_sum);
    if (!status && report) *report = l.report;
    return status;
}

int dcp_load(dcp_checkpoint *ckpt, const dcp_state *state, dcp_report *report, dcp_error *err) {
    return dcp_load_with(ckpt, state, NULL, report, err);
}
