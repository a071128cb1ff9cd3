/* Opening a checkpoint. */
#pragma once

#include "reader/checkpoint.h"

/* Reports that the copies of `step` could not be examined (core_fail_is_unread); `why` is the first
 * such failure. The message says that no older step is loaded instead, and how to load one on
 * purpose. */
int reader_fail_unread(uint64_t step, const dcp_error *why, dcp_error *err);

/* Collective. Like dcp_checkpoint_open_private, but no rank receives copies of all rows: for
 * callers that only load, and read rows of their own files. */
int reader_open_private(dcp_comm *comm, const char *own_path, dcp_checkpoint **out, dcp_error *err);
