/* Memory that disks read from and write into: pages of the kernel's own giving, in huge ones where
 * it has them. A disk takes only so many separate pages in a request (often 128 or 254), and those
 * of a heap that was used before are all apart. */
#pragma once

#include <stddef.h>

/* Zeroed, and begins on a huge page; NULL where memory is short. */
void *io_buffers_create(size_t bytes);
/* Of so many bytes. NULL is ignored. */
void io_buffers_free(void *memory, size_t bytes);
