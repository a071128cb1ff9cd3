/* libdcp: sharded checkpoints that reshard on load to any world size. Includes every public header
 * but dcp/mpi.h, which needs MPI's own.
 *
 * A run's state is a set of named global tensors (dcp/state.h) of which each rank holds boxes. A
 * store (dcp/store.h) is a directory of steps; dcp_save (dcp/save.h) adds one; dcp_checkpoint_open
 * and dcp_load (dcp/checkpoint.h) read one on any number of ranks. dcp/tiers.h does both with a
 * list of stores, from fast to safe; dcp/rewrite.h makes a step of another one, from disk to disk.
 * dcp/device.h: boxes in a GPU's memory.
 *
 * Conventions. Functions return a status of dcp/error.h (DCP_OK is 0) and set outputs only on
 * success. A NULL where an object or an output is needed is DCP_ERR_ARG; functions without a status
 * answer with 0 or NULL then, dcp_comm_rank and dcp_comm_size with DCP_ERR_ARG. Structs of options,
 * reports and tables of functions say their size and are made by DCP_..._INIT (dcp/size.h); the
 * others never change. "Collective" functions are called by every rank of the communicator in the
 * same order; they return the same status on all of them, also when only one rank failed, and never
 * leave a rank waiting. The library never prints, exits or aborts and keeps no global state: one
 * object must not be used by two threads at once, different objects may. A checkpoint may be read
 * by any number of threads: dcp_checkpoint_read.
 *
 * Paths are those of a file system. scheme: followed by // is DCP_ERR_UNSUPPORTED wherever a
 * directory, a step or a file is given; a directory of that name is written with ./ before it.
 *
 * Forks. A child may use the library, whatever threads of its parent were doing: with objects of
 * its own, and with a checkpoint on one rank that its parent had open, by dcp_checkpoint_read or
 * a reader of its own. Stores, communicators, saves and loads that it has inherited it can only
 * free, which leaves the parent's alone. */
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
