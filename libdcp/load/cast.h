/* Casts on load. Where the state's elements are as large as the stored ones or larger, the stored
 * bytes arrive at the end of the box's memory, are checked there, and are converted in place. Where
 * they are smaller, or where some rank's boxes are on a device or have strides, parts of boxes
 * arrive in scratch memory, are summed, and are converted from there. */
#pragma once

#include <stddef.h>

#include "dcp/error.h"

struct dcp_state;
struct load_job;
struct load_casting;
struct plan_box;

/* Collective. Whether any rank's boxes are on a device or have strides; before what follows. */
int load_cast_agree(struct load_job *l, const struct dcp_state *state, dcp_error *err);

/* Not collective. Fills l->cast from l->chosen. */
int load_cast_prepare(struct load_job *l, dcp_error *err);

/* 1 where the tensor's boxes are filled by load_cast_narrow. */
int load_cast_is_narrow(const struct load_job *l, size_t tensor);

/* Collective. Moves and converts the boxes of tensors whose elements become smaller, except those
 * that load_cast_read reads. */
int load_cast_narrow(struct load_job *l, dcp_error *err);

/* Not collective. Reads and checks one box of a tensor that the boxes don't cover exactly, and
 * converts it where load_cast_narrow would have done. */
int load_cast_read(struct load_job *l, const struct plan_box *b, dcp_error *err);

/* Converts in place what arrived as it was stored. */
void load_cast_in_place(const struct load_job *l);

void load_cast_free(struct load_casting *cast);
