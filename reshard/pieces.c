/* A run of elements that begins at a boundary of dimension d (all later indices are 0) and stays
 * within one index of the dimensions before it is a box: some rows of d, whole in what follows. */
#include "pieces.h"

uint64_t pieces_next(const dcp_box *box, uint32_t ndim, uint64_t first, uint64_t max_elems,
                     dcp_box *piece) {
    uint64_t inner = dcp_box_elems(box, ndim), rest = first;
    *piece = *box;
    for (uint32_t d = 0; d < ndim; d++) {
        inner /= box->count[d];
        uint64_t index = rest / inner;
        rest %= inner;
        piece->start[d] = box->start[d] + index;
        if (rest == 0 && inner <= max_elems) {
            uint64_t rows = box->count[d] - index;
            if (rows > max_elems / inner) rows = max_elems / inner;
            piece->count[d] = rows;
            return rows * inner;
        }
        piece->count[d] = 1;
    }
    return 1;
}
