/* What about.json says of a run's arithmetic: equal bits are promised only by equal kernels on the
 * same kind of processor. */
#pragma once

#include <dcp/error.h>

/* Members for dcp_save_options.about_json; freed with free(). NULL: out of memory. kernels: what
 * kernels.describe says. */
char *state_provenance_members(const char *kernels);

/* Warns where the step's about.json names other kernels or another processor, or is missing or
 * damaged. */
void state_provenance_compare_kernels(const char *step_path, const char *kernels);
