/* Page-locked memory for a copy of many boxes of a device at once, kept for the next one. */
#pragma once

#include <stddef.h>

#include "device/staging.h"

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
