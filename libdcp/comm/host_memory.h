/* Memory that the ranks of one host share. Public: dcp_host_memory_create. */
#pragma once

#include <stddef.h>

#include "comm/comm.h"

/* A file that exists in memory alone, as processes of its maker's user and PID namespace find it.
 * fd -1: none. */
typedef struct comm_memory_file {
    int64_t pid, fd;
    uint64_t device, inode;
} comm_memory_file;

/* Makes one of zeros. Returns its descriptor, which has to stay open until all others have opened
 * it; -1: it can't be had, and file->fd stays as it was. */
int comm_memory_file_make(size_t bytes, comm_memory_file *file);
/* Another process's. Returns a descriptor; -1: it can't be opened. */
int comm_memory_file_open(const comm_memory_file *file);
/* Of an open one; to be freed with dcp_host_memory_free, the descriptor may be closed before. NULL:
 * it failed. */
void *comm_memory_file_map(int fd, size_t bytes);

/* Collective: dcp_host_memory_create for the ranks of `comm`. *out stays NULL, on all ranks, where
 * it cannot be had, which is no failure. */
int comm_host_memory_create(dcp_comm *comm, size_t bytes, void **out, dcp_error *err);
