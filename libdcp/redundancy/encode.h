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

/* Creates the file with space for `bytes` after `start`. Its checksums are those of blocks of
 * `block_bytes`. If it fails, it leaves no file behind. */
int redundancy_output_begin(redundancy_output *o, const char *folder, const char *name,
                            uint64_t start, uint64_t bytes, uint64_t block_bytes, dcp_error *err);

/* Writes header and table of a redundancy file; the output contains the checksums of its
 * payload. */
int redundancy_output_header(const redundancy_output *o, parity_header *h, dcp_error *err);

/* Makes the file durable, gives it its name, and makes its folder durable. */
int redundancy_output_publish(redundancy_output *o, dcp_error *err);

/* Frees the output; removes the file if it has no name yet. Ignores an output that was not
 * begun. */
void redundancy_output_end(redundancy_output *o);

struct comm_stop;

/* Writes this rank's redundancy file into `folder`. Collective. The folder must already contain
 * this rank's complete shard, `shard-RRRRR-of-NNNNN.h5` with its rank and the communicator's size.
 * On return the file and its folder's entry are durable.
 *   folder  this rank's: `DIR/.tmp-step-N` in its node's directory; the ranks of a node share it
 *   step    stored in the file
 *   stop    asked from time to time whether to stop; NULL: never stop
 * Uses 16 MiB of extra memory per rank. Does nothing if groups->spec is none. If any rank fails,
 * all return its status, and no file is left. */
int redundancy_encode(dcp_comm *comm, const redundancy_groups *groups, const char *folder,
                      uint64_t step, struct comm_stop *stop, dcp_error *err);
