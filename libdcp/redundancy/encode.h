/* Writing the redundancy files of a step. */
#pragma once

#include "redundancy/groups.h"
#include "redundancy/parity.h"

/* A redundancy file or shard that is being written: under a temporary name until it is complete and
 * durable. */

typedef struct redundancy_output {
    strip_file file;
    char *tmp, *path;
} redundancy_output;

/* Creates it with space for `bytes` after `start`. The file's checksums are of blocks of
 * `block_bytes`. On failure nothing is left. */
int redundancy_output_begin(redundancy_output *o, const char *folder, const char *name,
                            uint64_t start, uint64_t bytes, uint64_t block_bytes, dcp_error *err);

/* Writes header and table of a redundancy file, whose payload's checksums the output has. */
int redundancy_output_header(const redundancy_output *o, parity_header *h, dcp_error *err);

/* Durable, then named, then its folder durable. */
int redundancy_output_publish(redundancy_output *o, dcp_error *err);

/* Frees it; removes the file where it has no name yet. What was not begun is ignored. */
void redundancy_output_end(redundancy_output *o);

/* Writing the redundancy files of a step. */

struct comm_stop;

/* Collective. Writes this rank's redundancy file into `folder`, where its shard lies already,
 * `shard-RRRRR-of-NNNNN.h5` with its rank and the communicator's size, of any length and complete.
 * The file is durable on return, its folder's entry as well.
 *   folder  this rank's: `DIR/.tmp-step-N` of its node's directory; ranks of a node share it
 *   step    is kept in the file
 *   stop    asked now and then; NULL: never
 * Extra memory: 16 MiB a rank. Nothing happens where groups->spec is none. On failure of any rank
 * all return its status, and the file is not there. */
int redundancy_encode(dcp_comm *comm, const redundancy_groups *groups, const char *folder,
                      uint64_t step, struct comm_stop *stop, dcp_error *err);
