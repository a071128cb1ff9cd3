/* Writing the redundancy files of a step. */
#pragma once

#include "redundancy/groups.h"
#include "redundancy/parity.h"

/* A redundancy file or shard that is being written. It has a temporary name until it is complete
 * and durable. */

typedef struct redundancy_output {
    strip_file file;
    char *tmp, *path;
} redundancy_output;

/* Creates the file, with space for `bytes` bytes after its first `start` bytes. Checksums are
 * computed for blocks of `block_bytes`. A call that fails leaves no file behind. */
int redundancy_output_begin(redundancy_output *o, const char *folder, const char *name,
                            uint64_t start, uint64_t bytes, uint64_t block_bytes, dcp_error *err);

/* Writes the header and the table of a redundancy file, whose payload must have been written. */
int redundancy_output_header(const redundancy_output *o, parity_header *h, dcp_error *err);

/* Makes the file durable, gives it its name, and makes its folder durable. */
int redundancy_output_publish(redundancy_output *o, dcp_error *err);

/* Frees the output; removes the file if it has no name yet. Ignores an output that was not
 * begun. */
void redundancy_output_end(redundancy_output *o);

struct comm_stop;

/* Writes this rank's redundancy file into `folder`. Collective. The folder must already contain
 * this rank's complete shard, `shard-RRRRR-of-NNNNN.h5`, in which RRRRR is the rank and NNNNN the
 * communicator's size. On success the file and its entry in the folder are durable.
 *   folder  `DIR/.tmp-step-N` in the directory of this rank's node; the ranks of a node share it
 *   step    stored in the file
 *   stop    checked from time to time; NULL: never stop
 * Uses 16 MiB of extra memory per rank. Does nothing if groups->spec is none. If any rank fails,
 * all ranks return its status and remove their files. */
int redundancy_encode(dcp_comm *comm, const redundancy_groups *groups, const char *folder,
                      uint64_t step, struct comm_stop *stop, dcp_error *err);
