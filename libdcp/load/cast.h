/* Casts on load. Where the state's elements are as large as the stored ones or larger, the stored
 * bytes arrive at the end of the box's memory, are proven there, and are converted in place. Where
 * they are smaller, or on some rank are to be on a device, parts of boxes arrive in scratch memory,
 * are summed, and converted from there. */
#ifndef DCP_LOAD_CAST_H
#define DCP_LOAD_CAST_H

#include "load/pieces.h"

/* Collective. Whether any rank's boxes are on a device; before what follows. */
int load_cast_agree(load_job *l, dcp_error *err);

/* Not collective. Fills l->cast from l->chosen. */
int load_cast_prepare(load_job *l, dcp_error *err);

/* 1 where the tensor's boxes are filled by load_cast_narrow. */
int load_cast_is_narrow(const load_job *l, size_t tensor);

/* Collective. Moves and converts the boxes of tensors whose elements become smaller, but those that
 * load_cast_read reads. */
int load_cast_narrow(load_job *l, dcp_error *err);

/* Not collective. Reads and checks one box of a tensor that the boxes don't cover exactly, and
 * converts it where load_cast_narrow would have done. */
int load_cast_read(load_job *l, const plan_box *b, dcp_error *err);

/* Converts in place what arrived as it was stored. */
void load_cast_in_place(const load_job *l);

void load_cast_free(load_casting *cast);

#endif
