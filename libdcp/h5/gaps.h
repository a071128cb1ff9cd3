/* The bytes of a laid-out file that lie between its datasets. */
#ifndef DCP_H5_GAPS_H
#define DCP_H5_GAPS_H

#include "h5/skeleton.h"

/* Fills s->runs from the memory file `fd`, whose datasets are those of the rows and s's tables.
 * What it kept before a failure is freed with s. */
int h5_gaps_collect(int fd, const step_row *rows, size_t n, skeleton *s, dcp_error *err);

#endif
