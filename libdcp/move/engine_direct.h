/* Bulk parts: whole pages of long runs, written or read by the rank that holds them. */
#pragma once

#include "dcp/error.h"

struct move_transfer;

/* Not collective. Moves the bulk parts of the transfer's pieces and adds them to their checksums.
 * Done when it returns, but what a load has put on a device may still be on its way. */
int move_bulk(const struct move_transfer *t, dcp_error *err);
