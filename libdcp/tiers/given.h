/* The list of stores as a caller gives it. */
#ifndef DCP_TIERS_GIVEN_H
#define DCP_TIERS_GIVEN_H

#include "dcp/tiers.h"

/* The path with {rank} and {host} replaced, malloc'd. DCP_ERR_ARG: other braces, or any of them in
 * a shared store's path. */
int tiers_given_path(const dcp_tier *given, int rank, char **out, dcp_error *err);

/* Collective: all ranks have the same list, but for the paths. */
int tiers_given_agree(dcp_comm *comm, const dcp_tier *list, size_t n, dcp_error *err);

#endif
