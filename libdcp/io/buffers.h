/* Memory for disk I/O: buffers, and how much memory is still available. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* How much memory this process can still use. For callers that use as much as is free. */

/* Returns the smallest of these numbers of bytes: the memory that the system has available, the
 * memory that is left to the control groups that contain the process (versions 1 and 2), and the
 * memory that RLIMIT_AS and RLIMIT_DATA leave. A group's file cache counts as free, since the
 * kernel drops it when necessary. Numbers that can't be read are ignored. Other processes use the
 * same memory. */
uint64_t io_available_memory(void);

/* Like io_available_memory, but without RLIMIT_AS and RLIMIT_DATA, and with the given folders in
 * place of /proc and /sys/fs/cgroup. */
uint64_t io_available_memory_in(const char *proc, const char *cgroups);

/* Memory for disk reads and writes. Its pages come fresh from the kernel, and are huge pages if the
 * kernel has any. A disk accepts only a limited number of separate pages per request (often 128 or
 * 254), and the pages of a used heap are all separate. */

/* Returns zeroed memory that begins at a huge page; NULL if memory is short. */
void *io_buffers_create(size_t bytes);
/* `bytes` is the size at creation. NULL is ignored. */
void io_buffers_free(void *memory, size_t bytes);
