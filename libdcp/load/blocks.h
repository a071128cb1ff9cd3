/* Blocks of tensors that the ranks' boxes don't cover exactly, in files that some ranks don't see.
 */
#ifndef DCP_LOAD_BLOCKS_H
#define DCP_LOAD_BLOCKS_H

#include "load/pieces.h"

/* Collective. Each file's reader checks the blocks that any rank took something from. */
int load_blocks_check(load *l, dcp_error *err);

#endif
