#include "pieces.h"

uint64_t pieces_next(const dcp_box *box, uint32_t ndim, uint64_t first, uint64_t max_elems,
                     dcp_box *piece) {
    return dcp_box_slice(ndim, box, first, max_elems, piece);
}
