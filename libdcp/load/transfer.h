/* Moving bytes of a checkpoint's files into a rank's boxes. Addresses: step/tables.h. */
#ifndef DCP_LOAD_TRANSFER_H
#define DCP_LOAD_TRANSFER_H

#include "copy/window.h"
#include "step/checkpoint.h"

/* Starts reading [address, address + bytes), in one file, into buffer. */
void load_read(dcp_checkpoint *ckpt, io_queue *queue, unsigned slot, void *buffer, uint64_t bytes,
               uint64_t address);
/* The file that holds the address. */
step_file *load_file(const dcp_checkpoint *ckpt, uint64_t address);

/* Collective. Ranks read their regions' pages that anybody wants, and send each rank its fragments.
 * Adds what arrived to the pieces' checksums. */
int load_fragments(dcp_checkpoint *ckpt, io_queue *queue, const piece *pieces, size_t n,
                   dcp_error *err);

/* Not collective. Reads whole pages of direct pieces. */
int load_direct(dcp_checkpoint *ckpt, io_queue *queue, const piece *pieces, size_t n,
                dcp_error *err);

/* Engine mpio, not collective: reads all pieces (ascending by address) into their boxes. */
int load_mpio(dcp_checkpoint *ckpt, const piece *pieces, size_t n, dcp_error *err);

#endif
