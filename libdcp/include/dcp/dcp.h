/* libdcp: sharded checkpoints that reshard on load to any world size. This header includes every
 * public header except dcp/mpi.h, which needs MPI's own headers.
 *
 * The state of a run is a set of named global tensors (dcp/state.h), of which each rank holds
 * boxes. A store (dcp/store.h) is a directory of steps. dcp_save (dcp/save.h) adds a step;
 * dcp_checkpoint_open and dcp_load (dcp/checkpoint.h) read one on any number of ranks. dcp/tiers.h
 * saves to and loads from a list of stores, from fast to safe. dcp/rewrite.h rewrites a step for
 * another world size, mesh or layout, from disk to disk. dcp/device.h saves and loads boxes in a
 * GPU's memory.
 *
 * Conventions. Functions return a status of dcp/error.h (DCP_OK is 0) and set outputs only on
 * success. NULL for a required object or output is DCP_ERR_ARG. Functions that return no status
 * return 0 or NULL in that case, except dcp_comm_rank and dcp_comm_size, which return DCP_ERR_ARG.
 * Structs for options, for reports and for tables of functions begin with their size and are
 * initialized with DCP_..._INIT (dcp/size.h); all other structs never change. A function that is
 * described as "collective" must be called by every rank of the communicator, in the same order as
 * other such functions. It returns the same status on all ranks, even if only one of them failed,
 * and never leaves a rank waiting. The library never prints, exits or aborts. It keeps no global
 * state: different threads may use different objects, but two threads must not use one object at
 * the same time. Any number of threads may read one checkpoint: see dcp_checkpoint_read.
 *
 * Paths are file system paths. A path that begins with a scheme and // (scheme://...) is refused
 * with DCP_ERR_UNSUPPORTED wherever a directory, a step or a file is expected. If a directory
 * really has such a name, write ./ before it.
 *
 * Forks. A child process may use the library with objects that it creates, whatever the threads of
 * its parent were doing at the fork. It may also read a checkpoint that its parent had open on a
 * communicator of one rank, with dcp_checkpoint_read or a reader of its own. It can do nothing with
 * the stores, communicators, saves and loads that it inherits except free them, which does not
 * affect the parent's. */
#ifndef DCP_DCP_H
#define DCP_DCP_H

#include "dcp/checkpoint.h"
#include "dcp/comm.h"
#include "dcp/device.h"
#include "dcp/error.h"
#include "dcp/inspect.h"
#include "dcp/prove.h"
#include "dcp/rewrite.h"
#include "dcp/safetensors.h"
#include "dcp/save.h"
#include "dcp/size.h"
#include "dcp/state.h"
#include "dcp/store.h"
#include "dcp/tensor.h"
#include "dcp/tiers.h"

#endif
