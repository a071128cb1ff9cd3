/* Page-locked memory between a device and the files. */
#pragma once

#include <stddef.h>

#include "dcp/device.h"

/* Staging buffers: page-locked memory between the boxes on a device and the files. A batch is a set
 * of ranges of boxes that are copied together, in one direction, with the device's checksum of
 * each. Not thread-safe. */

struct state_box;

#define STAGING_SLOT_BYTES (4u << 20)
#define STAGING_LEAST 2u /* slots */
#define STAGING_MOST 32u

/* A range of a box, as it lies in a batch's memory. */
typedef struct staging_range {
    const struct state_box *box;
    const char *path; /* of its tensor, for messages; borrowed */
    uint64_t offset, bytes;
    uint64_t at;
} staging_range;

typedef enum staging_way { STAGING_TO_HOST, STAGING_TO_DEVICE } staging_way;

typedef struct staging_batch {
    unsigned char *memory; /* `room` bytes of it, page-locked, beginning on a page */
    uint64_t room, used;
    staging_range *ranges;
    unsigned n, most;
    uint64_t *sums; /* page-locked: the device's checksum of each range */
    unsigned event; /* its number among the stream's */
    int in_flight;
    unsigned cursor; /* of those who look for a range */
} staging_batch;

typedef struct staging {
    dcp_device device;    /* a copy: the caller's may be shorter */
    const dcp_device *of; /* the caller's, borrowed; says which device it is */
    void *stream;
    unsigned slots;
    unsigned char *memory;
    uint64_t *sums;
    staging_range *ranges;
    staging_batch batches[STAGING_MOST];
    unsigned n, turn; /* batches as cut last; the one in use or to be used next */
} staging;

/* Opens a stream of the device and takes `bytes` of page-locked memory, rounded to whole slots
 * within the limits above. DCP_ERR_NO_MEMORY, DCP_ERR_DEVICE. */
int device_staging_open(const dcp_device *device, uint64_t bytes, staging **out, dcp_error *err);
/* Waits for what is in flight. NULL is ignored. */
void device_staging_close(staging *s);

/* What is copied from now on comes after the program's work so far. */
int device_staging_follow(staging *s, dcp_error *err);

/* Waits for what is in flight, also where it failed, and divides the memory into n empty batches, 1
 * to s->slots. */
void device_staging_cut(staging *s, unsigned n);

/* Adds the part of `bytes` of the box at `offset` that there is room for, *taken, to a batch that
 * is not in flight. Returns the place of these bytes in the batch; NULL: the batch is full. Calls
 * with adjacent parts of a box become one range. */
unsigned char *device_staging_add(staging_batch *b, const struct state_box *box, const char *path,
                                  uint64_t offset, uint64_t bytes, uint64_t *taken);
/* Begins to copy the batch. */
int device_staging_send(staging *s, staging_batch *b, staging_way way, dcp_error *err);
/* Waits until a batch in flight is copied, and compares the device's checksums with those of the
 * batch's memory. DCP_ERR_DEVICE names the tensor. */
int device_staging_wait(const staging *s, staging_batch *b, dcp_error *err);
/* Empties a batch that is not in flight. */
void device_staging_clear(staging_batch *b);

/* The raw checksum (core/crc64.h) of bytes [offset, offset + bytes) of a box, by the device. No
 * batch is in flight. */
int device_staging_checksum(const staging *s, const struct state_box *box, const char *path,
                            uint64_t offset, uint64_t bytes, uint64_t *raw, dcp_error *err);

/* Page-locked memory for a copy of many boxes of a device at once, kept for the next one. */

typedef struct device_pinned device_pinned;

/* `bytes` of it, and room for so many ranges, for copies by that staging's stream, which may be
 * another one of the same device later. NULL: it is short. */
device_pinned *device_pinned_open(const staging *s, uint64_t bytes, size_t ranges);
/* NULL is ignored. */
void device_pinned_free(device_pinned *pinned);

/* Whether there is as much, of that staging's device. */
int device_pinned_holds(const device_pinned *pinned, const staging *s, uint64_t bytes,
                        size_t ranges);
/* It begins on a page. */
unsigned char *device_pinned_memory(const device_pinned *pinned);

/* Copies ranges: device_pinned_clear, device_pinned_add for each, then device_pinned_copy, which
 * returns once all are here. No batch of the staging is in flight. */
void device_pinned_clear(device_pinned *pinned);
void device_pinned_add(device_pinned *pinned, const staging_range *range);
int device_pinned_copy(device_pinned *pinned, staging *s, dcp_error *err);
/* Whether they are what the device had: DCP_ERR_DEVICE names the tensor. */
int device_pinned_prove(const device_pinned *pinned, const staging *s, dcp_error *err);
