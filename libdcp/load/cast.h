/* Casts on load. Where the state's elements are as large as the stored ones or larger, the stored
 * bytes arrive at the end of the box's memory, are checked there, and are converted in place. Where
 * they are smaller, or where some rank's boxes are on a device or have strides, elements are summed
 * and converted on the way into the box (move_cast). */
#pragma once

#include <stddef.h>

#include "dcp/error.h"

struct load_job;
struct load_casting;

/* Not collective. Fills l->cast from l->chosen. */
int load_cast_prepare(struct load_job *l, dcp_error *err);

/* 1 where the tensor's elements are converted on the way. */
int load_cast_is_narrow(const struct load_job *l, size_t tensor);

/* Converts in place what arrived as it was stored. */
void load_cast_in_place(const struct load_job *l);

void load_cast_free(struct load_casting *cast);
