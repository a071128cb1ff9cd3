/* Opening a checkpoint. */
#pragma once

#include "reader/checkpoint.h"

/* Fails with the status of `why`, the first failure to read a copy of `step` (core_fail_is_unread).
 * The message says that no older step is loaded instead, and how to load one on purpose. */
int reader_fail_unread(uint64_t step, const dcp_error *why, dcp_error *err);

/* Collective. Like dcp_checkpoint_open_private, but no rank receives copies of all rows, so
 * reader_view_all can fail. Meant for callers that only load. */
int reader_open_private(dcp_comm *comm, const char *own_path, dcp_checkpoint **out, dcp_error *err);
