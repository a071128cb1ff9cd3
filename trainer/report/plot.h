/* --plot: loss, speed and what saves cost, drawn from a metrics file. */
#pragma once

#include <dcp/error.h>

/* Draws `metrics` as the SVG file `path`, which is made, or is a drawing that is replaced.
 * DCP_ERR_ARG: no metrics, or another file is there; DCP_ERR_IO: it could not be written. */
int report_plot(const char *metrics, const char *path, dcp_error *err);
