/* Rebuilding the lost files of a step of a private store from its redundancy files. */
#pragma once

#include "store/store.h"

/* Collective. dcp_store_rebuild of one step of a private store. DCP_ERR_NOT_FOUND: too many of its
 * files are lost, or no redundancy file is left; DCP_ERR_CORRUPT: the same, and some are damaged.
 */
int store_restore_step(dcp_store *store, uint64_t step, int every_byte, int *rebuilt,
                       dcp_error *err);
