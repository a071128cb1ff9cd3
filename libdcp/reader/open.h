/* Opening a checkpoint. */
#pragma once

#include "reader/checkpoint.h"

/* The failure of a load of `step` whose copies could not be looked at (core_fail_is_unread), as
 * `why` says of the first: no older step is taken for it, and how one is taken on purpose. */
int reader_fail_unread(uint64_t step, const dcp_error *why, dcp_error *err);

/* Collective: dcp_checkpoint_open_private for what asks for nothing but loads and the own files'
 * rows: no rank gets copies of all rows. */
int reader_open_private(dcp_comm *comm, const char *own_path, dcp_checkpoint **out, dcp_error *err);
