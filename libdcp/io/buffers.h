/* Memory for disk I/O: buffers, and how much memory is still available. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* How much memory this process can still use, for callers that use what is free. */

/* Returns a number of bytes: the minimum of what the system has available, what is left to the
 * control groups that contain the process (versions 1 and 2; their file cache counts as free, as
 * the kernel drops it), and what RLIMIT_AS and RLIMIT_DATA leave. Anything that can't be read is
 * ignored. Other processes use the same memory. */
uint64_t io_available_memory(void);

/* Does the same without the limits, for other places of /proc and /sys/fs/cgroup. */
uint64_t io_available_memory_in(const char *proc, const char *cgroups);

/* Memory that disks read from and write into: pages fresh from the kernel, huge ones if it has
 * them. A disk accepts only a limited number of separate pages per request (often 128 or 254), and
 * the pages of a used heap are all separate. */

/* Returns zeroed memory that begins at a huge page; NULL if memory is short. */
void *io_buffers_create(size_t bytes);
/* `bytes` is the size at creation. NULL is ignored. */
void io_buffers_free(void *memory, size_t bytes);
