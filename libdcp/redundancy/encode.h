/* Writing the redundancy files of a step. */
#pragma once

#include "redundancy/groups.h"

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
