/* One batch of a staging, in memory of its own. */
#include "device/pinned.h"

#include <limits.h>
#include <stdlib.h>

struct device_pinned {
    dcp_device device; /* a copy */
    const dcp_device *of;
    staging_batch batch;
};

device_pinned *device_pinned_open(const staging *s, uint64_t bytes, size_t ranges) {
    const uint64_t room = (bytes + 7) / 8 * 8;
    if (ranges > UINT_MAX) return NULL;
    device_pinned *p = calloc(1, sizeof *p);
    staging_range *list = calloc(ranges + 1, sizeof *list);
    void *memory = NULL;
    if (!p || !list ||
        s->device.alloc_pinned(s->device.ctx, room + ranges * sizeof(uint64_t), &memory)) {
        free(p);
        free(list);
        return NULL;
    }
    *p = (device_pinned){.device = s->device, .of = s->of};
    p->batch = (staging_batch){.memory = memory,
                               .room = bytes,
                               .ranges = list,
                               .most = (unsigned)ranges,
                               .sums = (uint64_t *)(void *)((unsigned char *)memory + room)};
    return p;
}

void device_pinned_free(device_pinned *pinned) {
    if (!pinned) return;
    pinned->device.free_pinned(pinned->device.ctx, pinned->batch.memory);
    free(pinned->batch.ranges);
    free(pinned);
}

int device_pinned_holds(const device_pinned *pinned, const staging *s, uint64_t bytes,
                        size_t ranges) {
    return pinned && pinned->of == s->of && pinned->batch.room >= bytes &&
           pinned->batch.most >= ranges;
}

unsigned char *device_pinned_memory(const device_pinned *pinned) { return pinned->batch.memory; }

void device_pinned_clear(device_pinned *pinned) { device_staging_clear(&pinned->batch); }

void device_pinned_add(device_pinned *pinned, const staging_range *range) {
    pinned->batch.ranges[pinned->batch.n++] = *range;
}

int device_pinned_copy(device_pinned *pinned, staging *s, dcp_error *err) {
    int status = device_staging_send(s, &pinned->batch, STAGING_TO_HOST, err);
    if (!status) status = device_staging_arrive(s, &pinned->batch, err);
    if (status) { /* nothing may come into the memory any more */
        device_staging_settle(s);
        pinned->batch.in_flight = 0;
    }
    return status;
}

int device_pinned_prove(const device_pinned *pinned, const staging *s, dcp_error *err) {
    return device_staging_compare(s, &pinned->batch, err);
}
