/* Memory that the ranks of one host share. Public: dcp_host_memory_create. */
#pragma once

#include <stddef.h>

#include "comm/comm.h"

/* Collective: dcp_host_memory_create for the ranks of `comm`. *out stays NULL, on all ranks, where
 * it cannot be had, which is no failure. */
int comm_host_memory_create(dcp_comm *comm, size_t bytes, void **out, dcp_error *err);
