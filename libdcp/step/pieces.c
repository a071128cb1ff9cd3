/* The boxes and datasets of a tensor, for callers, who ask when they like. */
#include "core/sized.h"
#include "dcp/inspect.h"
#include "step/view.h"

int dcp_checkpoint_box(const dcp_checkpoint *ckpt, size_t i, size_t k, dcp_box *box) {
    step_dataset p;
    if (!box || k >= dcp_checkpoint_boxes(ckpt, i) ||
        step_view_dataset((dcp_checkpoint *)ckpt, &ckpt->tensors[i], k, 0, &p, NULL))
        return -1;
    *box = step_index_row_box(p.row);
    return (int)(p.file - ckpt->files);
}

size_t dcp_checkpoint_pieces(const dcp_checkpoint *ckpt, size_t i) {
    return ckpt && i < ckpt->n_tensors && ckpt->tensors[i].bytes ? ckpt->tensors[i].n_datasets : 0;
}

int dcp_checkpoint_piece(const dcp_checkpoint *ckpt, size_t i, size_t k, dcp_piece *out) {
    if (!out || core_sized_check(out, sizeof *out, "DCP_PIECE_INIT", NULL) ||
        k >= dcp_checkpoint_pieces(ckpt, i))
        return DCP_ERR_ARG;
    step_dataset p;
    int status = step_view_dataset((dcp_checkpoint *)ckpt, &ckpt->tensors[i], k, 1, &p, NULL);
    if (status) return status;
    const dcp_piece piece = {.size = sizeof piece,
                             .box = step_index_row_box(p.row),
                             .file = (int)(p.file - ckpt->files),
                             .bytes = p.row->bytes,
                             .crc = p.row->crc,
                             .block_crcs = p.crcs};
    core_sized_give(out, &piece, sizeof piece);
    return DCP_OK;
}
