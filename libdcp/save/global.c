/* Layout global: one file, written by all ranks. */
#include "save/global.h"

#include <stdlib.h>
#include <string.h>

#include "core/clock.h"
#include "core/fail.h"
#include "move/engine.h"
#include "save/context.h"
#include "save/history.h"
#include "save/reuse.h"
#include "save/write.h"

static void add_boxes(save_image *im, const save_request *r, const save_layout *plan) {
    for (size_t i = 0; i < plan->boxes.n; i++) {
        const plan_box *b = &plan->boxes.boxes[i];
        if (!b->keeper) continue;
        const dcp_tensor *t = &r->sorted[b->tensor]->tensor;
        const dcp_box all = dcp_box_whole(t);
        box_copy copy;
        core_box_copy_between(&copy, t->ndim, dcp_dtype_bytes(t->dtype), &all, &b->box->box);
        save_image_add(im, b->tensor, b->box, &copy);
    }
}

static int move_apart(save_image *im, dcp_report *report, dcp_error *err) {
    double start = core_clock_now();
    int status = comm_agree(im->comm, im->mover->move(im->mover->ctx, &im, 1, err), err);
    report->write_s += move_progress_phase(im->progress, DCP_PHASE_WRITE, start, core_clock_now());
    return status;
}

int save_global(dcp_store *store, const save_request *r, const save_layout *plan,
                const char *folder, move_progress *progress, dcp_report *report, dcp_error *err) {
    save_image im;
    int status = save_image_prepare(&im, store->comm, &plan->file, folder, "state.h5",
                                    plan->boxes.n, progress, err);
    im.store = store;
    im.is_last = 1;
    im.engine = plan->engine;
    im.mover = plan->engine->is_by_position ? r->mover : NULL;
    if (!status) add_boxes(&im, r, plan);
    if (!status && !move_pieces_have_copies(im.pieces, im.n_pieces))
        status = core_fail_memory(err, im.n_pieces * sizeof *im.pieces);
    if (!status) status = save_reuse_prepare(&im, store, 0, err);
    if (!status) save_image_take_recycled(&im);
    if (!status && r->meta && !(im.meta = strdup(r->meta)))
        status = core_fail_memory(err, strlen(r->meta));
    status = comm_agree(store->comm, status, err);
    if (!status) status = save_image_write(&im, report, err);
    if (!status && im.mover) status = move_apart(&im, report, err);
    if (!status) status = save_image_join_sums(&im, err);
    if (!status && r->mover)
        status = comm_agree(store->comm, r->mover->prove(r->mover->ctx, im.sums, err), err);
    if (!status) save_history_note(save_context_of(store)->noted, r, im.sums);
    if (!status) report->cloned_bytes = im.reuse->bytes;
    if (!status) status = save_image_finish(&im, report, err);
    if (!status) save_image_note_recycled(&im, r->step);
    save_image_free(&im);
    return status;
}
