/* Checking blocks at their files. The ranks mark which blocks they took bytes of; the readers of
 * the files read those, each once, and compare their checksums. */
#include "load/blocks.h"

#include <stdlib.h>

#include "core/box.h"
#include "core/fail.h"
#include "load/read.h"

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

static void mark_box(const load *l, const plan_box *b, uint64_t *marks) {
    const step_tensor *t = l->chosen.stored[b->tensor];
    const step_dataset *pieces = &l->ckpt->pieces[t->first_piece];
    size_t k, end;
    step_checkpoint_near(l->ckpt, t, &b->box->box, &k, &end);
    for (; k < end; k++) {
        const dcp_box held = step_index_row_box(pieces[k].row);
        box_copy copy;
        if (pieces[k].row->bytes &&
            core_box_copy_between(&copy, t->tensor.ndim, dcp_dtype_bytes(t->tensor.dtype), &held,
                                  &b->box->box))
            mark_runs(&copy, marks + l->first_sum[b->tensor] + pieces[k].first_block);
    }
}

static int check_tensor(load *l, size_t tensor, const uint64_t *marks, dcp_error *err) {
    const step_tensor *t = l->chosen.stored[tensor];
    int status = DCP_OK;
    marks += l->first_sum[tensor];
    for (size_t k = 0; k < t->n_pieces && !status; k++) {
        const step_dataset *p = &l->ckpt->pieces[t->first_piece + k];
        uint64_t blocks = step_index_blocks(p->row->bytes);
        for (uint64_t b = 0; b < blocks && p->file->reader == l->comm->rank && !status; b++)
            if (marks[b]) status = checkpoint_block(l->ckpt, p, b, err);
        marks += blocks;
    }
    return status;
}

int load_blocks_check(load *l, dcp_error *err) {
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
        if (!l->boxes.exact[i]) status = check_tensor(l, i, marks, err);
    status = comm_agree(l->comm, status, err);
free_marks:
    free(marks);
    return status;
}
