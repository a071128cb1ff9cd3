/* Bulk parts: whole pages of long runs, written or read by the rank that holds them. */
#pragma once

#include "dcp/error.h"

struct move_transfer;

/* Moves the bulk parts of the transfer's pieces and adds them to their checksums. Not collective.
 * When it returns, the parts have been moved, except that bytes that a load puts on a device may
 * still be under way. */
int move_bulk(const struct move_transfer *t, dcp_error *err);
