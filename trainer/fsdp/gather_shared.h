/* Gathering in memory that the ranks of a host share. */
#pragma once

#include "fsdp/gather.h"

/* memory: [fsdp_gather_shared_bytes], zeroed, seen by all ranks of the group and by the kernels;
 * borrowed. comm: of the group. plan->is_shared is set. */
int fsdp_gather_in_shared_memory(const fsdp_plan *plan, MPI_Comm comm, void *memory,
                                 const fsdp_gather_of *of, fsdp_gather **out, dcp_error *err);
/* 0 where nothing is gathered. */
uint64_t fsdp_gather_shared_bytes(const fsdp_plan *plan);
/* The part of them that a rank never reads which looks up so many rows of each table: others' rows
 * of tables. */
uint64_t fsdp_gather_shared_unread(const fsdp_plan *plan, double lookups);
/* Where the storage of parameters is in that memory; NULL: it is not in there, they are not stored
 * in place. */
float *fsdp_gather_shared_params(const fsdp_plan *plan, void *memory);
