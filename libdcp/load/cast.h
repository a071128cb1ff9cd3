/* Casts on load. Where the state's elements are as large as the stored ones or larger, the stored
 * bytes arrive at the end of the box's memory, are proven there, and are converted in place. Where
 * they are smaller, or on some rank are to be on a device, parts of boxes arrive in scratch memory,
 * are summed, and converted from there. */
#ifndef DCP_LOAD_CAST_H
#define DCP_LOAD_CAST_H

#include "load/pieces.h"

/* Collective. Whether any rank's boxes are on a device; before what follows. */
int cast_agree(load *l, dcp_error *err);

/* Not collective. Fills l->cast from l->chosen. */
int cast_prepare(load *l, dcp_error *err);

/* 1 where the tensor's boxes are filled by cast_narrow. */
int cast_is_narrow(const load *l, size_t tensor);

/* Collective. Moves and converts the boxes of tensors whose elements become smaller, but those that
 * cast_read reads. */
int cast_narrow(load *l, dcp_error *err);

/* Not collective. Reads and checks one box of a tensor that the boxes don't cover exactly, and
 * converts it where cast_narrow would have done. */
int cast_read(load *l, const plan_box *b, dcp_error *err);

/* Converts in place what arrived as it was stored. */
void cast_in_place(const load *l);

void cast_free(casting *cast);

#endif
