/* Memory that lies in a file: what is not at work takes room on a disk, and the page cache's while
 * there is some. The file has no name, so nobody else opens it, and nothing is left of it however
 * the process ends. All of its room is taken at once: a disk that runs full later does no harm. */
#ifndef TRAINER_STATE_OFFLOAD_H
#define TRAINER_STATE_OFFLOAD_H

#include <stdint.h>

#include <dcp/error.h>

typedef struct offload offload;

/* `bytes` of zeros in a file in `folder`. DCP_ERR_ARG: it is no folder that files can be made in.
 * DCP_ERR_NO_SPACE. */
int state_offload_create(const char *folder, uint64_t bytes, offload **out, dcp_error *err);
/* NULL is ignored. */
void state_offload_destroy(offload *o);

/* The memory, on a page's boundary. */
void *state_offload_memory(const offload *o);

/* The process lets go of the pages of [from, from + bytes), and the disk begins to write what
 * changed. The content stays, and is there again when it is touched. From any thread, also while
 * others use the pages. */
void state_offload_release(const offload *o, const void *from, uint64_t bytes);
void state_offload_release_all(const offload *o);

#endif
