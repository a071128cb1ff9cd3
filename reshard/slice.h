/* "NAME[0:2,:,-1]": a tensor and a box of it, in Python's manner without steps. */
#ifndef RESHARD_SLICE_H
#define RESHARD_SLICE_H

#include "dcp/checkpoint.h"

/* Finds the tensor (NAME may lack the leading slash, or "/model/") and the box (whole where there
 * is no bracket). 0, or the status to exit with. */
int slice_parse(const dcp_checkpoint *ckpt, const char *text, const dcp_tensor **tensor,
                dcp_box *box);

#endif
