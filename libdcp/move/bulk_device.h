/* Bulk parts of boxes on a device, written from staging buffers. */
#ifndef DCP_MOVE_BULK_DEVICE_H
#define DCP_MOVE_BULK_DEVICE_H

#include "dcp/error.h"

struct move_transfer;

/* Whether the transfer, which is to a file, has such parts. */
int move_bulk_is_on_device(const struct move_transfer *t);

/* Not collective. Writes them; the fragments of their pieces have been read. */
int move_bulk_from_device(const struct move_transfer *t, dcp_error *err);

#endif
