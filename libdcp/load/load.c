/* dcp_load: select, plan, move, prove, cast. Tensors that the ranks' boxes cover exactly are proven
 * by one sum of checksums over what arrived in memory; the others' blocks are checked one by one as
 * they are read (load/read.c), or, where not all ranks see all files, by the files' readers
 * (load/blocks.c). */
#include <stdlib.h>

#include "core/clock.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "load/blocks.h"
#include "load/cast.h"
#include "load/replicas.h"
#include "plan/tensors.h"

/* Of boxes that are filled where they are; see cast_narrow. */
static size_t add_pieces(const load *l, move_piece *out) {
    size_t n = 0;
    for (size_t i = 0; i < l->boxes.n; i++) {
        const plan_box *b = &l->boxes.boxes[i];
        if (out && i + PREFETCH_DISTANCE < l->boxes.n)
            core_prefetch(b[PREFETCH_DISTANCE].box, sizeof *b->box);
        if (load_pieces_fill(l, b->tensor) && !(l->cast.narrows && cast_is_narrow(l, b->tensor)))
            n += load_pieces_of(l, b, b->box, out ? out + n : NULL);
    }
    return n;
}

/* Collective. Fills the boxes that need no scratch memory. */
static int move_boxes(load *l, dcp_error *err) {
    size_t n = add_pieces(l, NULL);
    move_piece *pieces = calloc(n + 1, sizeof *pieces);
    if (pieces) n = add_pieces(l, pieces);
    int complete = pieces && move_pieces_have_copies(pieces, n);
    int status =
        comm_agree(l->comm, complete ? DCP_OK : core_fail_memory(err, n * sizeof *pieces), err);
    if (!status) status = load_pieces_move(l, pieces, n, err);
    move_pieces_free(pieces, n);
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
        if (!load_pieces_fill(l, l->boxes.boxes[i].tensor))
            status = cast_read(l, &l->boxes.boxes[i], err);
    if (!status) status = move_device_flush(&l->device, err);
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

/* All ranks want the same engine; where they leave the choice, rank 0 chooses. */
static int choose_engine(load *l, dcp_error *err) {
    const move_engine *own = l->ckpt->scattered
                                 ? move_engine_for_scattered()
                                 : move_engine_choose(l->options->engine, l->ckpt->path);
    uint64_t engine = own->engine;
    int status = comm_broadcast(l->comm, &engine, sizeof engine, 0, err);
    if (status) return status;
    l->report.engine = (dcp_engine)engine;
    l->engine = move_engine_row(l->report.engine);
    return DCP_OK;
}

static int plan(load *l, const dcp_state *state, dcp_error *err) {
    double start = core_clock_now();
    int status = choose(l, state, err);
    if (!status) status = choose_engine(l, err);
    if (!status) status = comm_agree(l->comm, move_device_open(&l->device, state, err), err);
    if (!status) status = cast_agree(l, err);
    if (!status) status = comm_agree(l->comm, cast_prepare(l, err), err);
    if (!status) status = plan_exchange(l->comm, l->cast.tensors, l->chosen.n, 0, &l->boxes, err);
    if (!status) status = comm_agree(l->comm, load_pieces_prepare(l, err), err);
    for (size_t i = 0; i < l->chosen.n && !status; i++)
        l->report.bytes += l->chosen.stored[i]->bytes;
    l->report.plan_s = core_clock_now() - start;
    return status;
}

static int run(load *l, const dcp_state *state, dcp_error *err) {
    double start = core_clock_now();
    int status = plan(l, state, err);
    if (!status) status = move_boxes(l, err);
    if (!status) status = cast_narrow(l, err);
    double moved = core_clock_now();
    if (!status) status = prove(l, err);
    if (!status)
        status = replicas_check(l->comm, l->cast.tensors, &l->boxes, l->device.staging, err);
    if (!status) status = (l->ckpt->scattered ? load_blocks_check : read_inexact)(l, err);
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
    load_pieces_free(&l);
    device_staging_close(l.device.staging);
    plan_boxes_free(&l.boxes);
    cast_free(&l.cast);
    select_free(&l.chosen);
    if (!status && report) *report = l.report;
    return status;
}

int dcp_load(dcp_checkpoint *ckpt, const dcp_state *state, dcp_report *report, dcp_error *err) {
    return dcp_load_with(ckpt, state, NULL, report, err);
}
