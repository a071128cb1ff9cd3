/* The hosts of the ranks that save into a store. */
#pragma once

#include "store/store.h"

#define STORE_HOST_NAME 68 /* of a host, with its end, as dcp_report has it */

/* Collective, once: how many there are, and on rank 0 each rank's, by name. */
int store_host_names_find(dcp_store *store, dcp_error *err);

/* The name of that rank's host, on rank 0; else "". */
const char *store_host_names_of(const dcp_store *store, int rank);
