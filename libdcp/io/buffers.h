/* Memory for disk I/O: buffers, and how much memory is still available. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* How much memory this process can still have, for those who take what is free. */

/* Bytes: the least of what the system has available, of what is left to the control groups that the
 * process is in (versions 1 and 2; their cache of files counts as free, as the kernel drops it),
 * and of what RLIMIT_AS and RLIMIT_DATA leave. What can't be read doesn't count. Other processes
 * take from the same. */
uint64_t io_available_memory(void);

/* The same without the limits, with other places of /proc and /sys/fs/cgroup. */
uint64_t io_available_memory_in(const char *proc, const char *cgroups);

/* Memory that disks read from and write into: pages of the kernel's own giving, in huge ones where
 * it has them. A disk takes only so many separate pages in a request (often 128 or 254), and those
 * of a heap that was used before are all apart. */

/* Zeroed, and begins on a huge page; NULL where memory is short. */
void *io_buffers_create(size_t bytes);
/* Of so many bytes. NULL is ignored. */
void io_buffers_free(void *memory, size_t bytes);
