/* The bytes of pieces' boxes, wherever the boxes are: in memory, behind a source function of the
 * caller, or on a device, which is reached through staging buffers. */
#pragma once

#include "move/piece.h"

struct staging;

/* A device that boxes of the moved pieces are on. */
typedef struct move_device {
    struct staging *staging;  /* NULL: there is none */
    const move_piece *pieces; /* to a file: all pieces, sorted, which are read ahead */
    size_t n;
} move_device;

/* Bytes [offset, offset + bytes) of the box, dense, into out. What lies on a device is read in
 * batches of what the walk over the file needs next, so that many small boxes and short runs are
 * one copy and one wait. Before: move_device_begin. */
int move_box_fetch(const move_piece *p, uint64_t offset, uint64_t bytes, void *out, dcp_error *err);

/* The same, and adds them to the checksums of the dataset, whose bytes from dataset_offset on they
 * are. */
int move_box_take(const move_piece *p, uint64_t dataset_offset, uint64_t offset, uint64_t bytes,
                  void *out, dcp_error *err);

/* The other way: what belongs to bytes [offset, offset + bytes) of a box in memory or on a device,
 * as they are stored. With a cast, only one element may come in parts. It is copied
 * before the return, and has arrived on a device after move_device_flush. */
int move_box_put(const move_piece *p, uint64_t offset, const void *data, uint64_t bytes,
                 dcp_error *err);

/* The same, and adds them to the checksums of the dataset, whose bytes from dataset_offset on they
 * are: those in memory as they lie there then, unless they were cast. Without a box it only adds
 * them. */
int move_box_place(const move_piece *p, uint64_t dataset_offset, uint64_t offset, const void *data,
                   uint64_t bytes, dcp_error *err);

/* Divides the staging buffers to read ahead from the pieces, which stay. Without a device nothing
 * is done. */
void move_device_begin(move_device *d, const move_piece *pieces, size_t n);

/* Staging buffers for a load into the state's boxes; none where no box is on a device. The
 * program's work on the device so far comes before the load's copies. */
int move_device_open(move_device *d, const dcp_state *state, dcp_error *err);

/* move_box_put for a box that is no piece's; `path`, the tensor's, stays until move_device_flush.
 */
int move_device_put(move_device *d, const state_box *box, const char *path, uint64_t offset,
                    const void *data, uint64_t bytes, dcp_error *err);

/* Waits until all that was put is on the device, and proves it by the device's checksums. */
int move_device_flush(move_device *d, dcp_error *err);
