/* How much memory this process can still have, for those who take what is free. */
#pragma once

#include <stdint.h>

/* Bytes: the least of what the system has available, of what is left to the control groups that the
 * process is in (versions 1 and 2; their cache of files counts as free, as the kernel drops it),
 * and of what RLIMIT_AS and RLIMIT_DATA leave. What can't be read doesn't count. Other processes
 * take from the same. */
uint64_t io_available_memory(void);

/* The same without the limits, with other places of /proc and /sys/fs/cgroup. */
uint64_t io_available_memory_in(const char *proc, const char *cgroups);
