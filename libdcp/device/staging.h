/* Page-locked memory between a device and the files. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "dcp/device.h"

/* Staging buffers: page-locked memory between the boxes on a device and the files. A batch is a set
 * of ranges of boxes that are copied together, in one direction, with the device's checksum of
 * each. Not thread-safe. */

struct state_box;

#define STAGING_SLOT_BYTES (4u << 20)
#define STAGING_LEAST 2u /* in slots */
#define STAGING_MOST 32u

/* A range of a box, and its place in a batch's memory. */
typedef struct staging_range {
    const struct state_box *box;
    const char *path; /* the tensor's path, for messages; borrowed */
    uint64_t offset, bytes;
    uint64_t at;
} staging_range;

typedef enum staging_way { STAGING_TO_HOST, STAGING_TO_DEVICE } staging_way;

typedef struct staging_batch {
    unsigned char *memory; /* page-locked; `room` bytes, beginning at a page boundary */
    uint64_t room, used;
    staging_range *ranges;
    unsigned n, most;
    uint64_t *sums; /* page-locked: the device's checksum of each range */
    unsigned event; /* the event's number in the stream */
    bool in_flight;
    unsigned cursor; /* for callers that search for a range */
} staging_batch;

typedef struct staging {
    dcp_device device;    /* a copy, since the caller's struct may be shorter (dcp/size.h) */
    const dcp_device *of; /* the caller's, borrowed; identifies the device */
    void *stream;
    unsigned slots;
    unsigned char *memory;
    uint64_t *sums;
    staging_range *ranges;
    staging_batch batches[STAGING_MOST];
    unsigned n, turn; /* n: number of batches; turn: the current or next one */
} staging;

/* Opens a stream of the device and allocates `bytes` of page-locked memory, rounded to whole slots
 * within the limits above. Fails with DCP_ERR_NO_MEMORY or DCP_ERR_DEVICE. */
int device_staging_open(const dcp_device *device, uint64_t bytes, staging **out, dcp_error *err);
/* Waits for copies in flight before it frees the memory. NULL is ignored. */
void device_staging_close(staging *s);

/* Orders all later copies after the program's work so far. */
int device_staging_order_after(staging *s, dcp_error *err);

/* Waits for copies in flight, even if they failed, and divides the memory into n empty batches; n
 * is 1 to s->slots. */
void device_staging_cut(staging *s, unsigned n);

/* Adds up to `bytes` bytes of the box, starting at `offset`, to a batch that is not in flight.
 * *taken becomes the number of bytes that fit. Returns their place in the batch's memory; NULL: the
 * batch is full. Adjacent parts of a box become one range. */
unsigned char *device_staging_add(staging_batch *b, const struct state_box *box, const char *path,
                                  uint64_t offset, uint64_t bytes, uint64_t *taken);
/* Starts to copy the batch. */
int device_staging_send(staging *s, staging_batch *b, staging_way way, dcp_error *err);
/* Waits until a batch in flight is copied, and compares the device's checksums with those of the
 * batch's memory. Returns DCP_ERR_DEVICE if they differ; the message names the tensor. */
int device_staging_wait(const staging *s, staging_batch *b, dcp_error *err);
/* Empties a batch that is not in flight. */
void device_staging_clear(staging_batch *b);

/* Computes the raw checksum (core/crc64.h) of bytes [offset, offset + bytes) of a box on the
 * device. No batch may be in flight. */
int device_staging_checksum(const staging *s, const struct state_box *box, const char *path,
                            uint64_t offset, uint64_t bytes, uint64_t *raw, dcp_error *err);

/* Page-locked memory into which many boxes of a device are copied at once. The memory is retained
 * for the next copy. */

typedef struct device_pinned device_pinned;

/* Allocates `bytes` bytes, and room for `ranges` ranges. The result can be used with this staging,
 * and later with other stagings of the same device. Returns NULL if memory is short. */
device_pinned *device_pinned_open(const staging *s, uint64_t bytes, size_t ranges);
/* NULL is ignored. */
void device_pinned_free(device_pinned *pinned);

/* Returns true if `pinned` belongs to the staging's device, and has at least this much memory, and
 * room for this many ranges. */
bool device_pinned_holds(const device_pinned *pinned, const staging *s, uint64_t bytes,
                         size_t ranges);
/* Returns the memory, which begins at a page boundary. */
unsigned char *device_pinned_memory(const device_pinned *pinned);

/* Copies ranges: call device_pinned_clear, device_pinned_add for each, then device_pinned_copy,
 * which returns when all ranges have arrived. No batch of the staging may be in flight. */
void device_pinned_clear(device_pinned *pinned);
void device_pinned_add(device_pinned *pinned, const staging_range *range);
int device_pinned_copy(device_pinned *pinned, staging *s, dcp_error *err);
/* Checks, by the device's checksums, that the ranges were copied correctly. Returns DCP_ERR_DEVICE
 * if not; the message names the tensor. */
int device_pinned_prove(const device_pinned *pinned, const staging *s, dcp_error *err);
