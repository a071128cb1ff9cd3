/* Adding a range to a batch only records it, so adjacent ranges become one copy. The copies begin
 * when the batch is sent. Between device_staging_send and device_staging_wait, the batch's memory
 * must not be touched. */
#include "device/staging.h"

#include <assert.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/checks.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "core/state_dict.h"

#define RANGES 64u /* per slot */

static int device_failed(const staging *s, int code, const char *what, dcp_error *err) {
    return core_fail(err, DCP_ERR_DEVICE, "%s: %s: %s", s->device.name, what,
                     s->device.error_text(s->device.ctx, code));
}

static int open_failed(staging *s, int status) {
    free(s->ranges);
    free(s);
    return status;
}

int device_staging_open(const dcp_device *device, uint64_t bytes, staging **out, dcp_error *err) {
    staging *s = calloc(1, sizeof *s);
    uint64_t slots = bytes / STAGING_SLOT_BYTES;
    if (slots < STAGING_LEAST) slots = STAGING_LEAST;
    if (slots > STAGING_MOST) slots = STAGING_MOST;
    if (s) s->ranges = calloc(slots * RANGES, sizeof *s->ranges);
    if (!s || !s->ranges) {
        free(s);
        return core_fail_memory(err, slots * RANGES * sizeof *s->ranges);
    }
    s->of = device;
    int code = core_sized_copy_in(&s->device, sizeof s->device, device, "DCP_DEVICE_INIT", err);
    if (code) return open_failed(s, code);
    s->slots = (unsigned)slots;
    code = s->device.open(s->device.ctx, s->slots, &s->stream);
    if (code) return open_failed(s, device_failed(s, code, "no stream for copies", err));
    void *memory;
    bytes = slots * STAGING_SLOT_BYTES;
    code = s->device.alloc_pinned(s->device.ctx, bytes + slots * RANGES * sizeof *s->sums, &memory);
    if (code) {
        s->device.close(s->device.ctx, s->stream);
        return open_failed(s, core_fail(err, DCP_ERR_NO_MEMORY,
                                        "%s: %llu MiB of page-locked memory: %s", s->device.name,
                                        (unsigned long long)(bytes >> 20),
                                        s->device.error_text(s->device.ctx, code)));
    }
    s->memory = memory;
    s->sums = (uint64_t *)(void *)(s->memory + bytes);
    device_staging_cut(s, STAGING_LEAST);
    *out = s;
    return DCP_OK;
}

void device_staging_close(staging *s) {
    if (!s) return;
    s->device.close(s->device.ctx, s->stream);
    s->device.free_pinned(s->device.ctx, s->memory);
    free(s->ranges);
    free(s);
}

int device_staging_order_after(staging *s, dcp_error *err) {
    int code = s->device.follow(s->device.ctx, s->stream);
    return code ? device_failed(s, code, "cannot wait for the program's work", err) : DCP_OK;
}

/* Waits for the stream's operations, even if some of them failed. */
static void device_staging_wait_all(const staging *s) {
    if (!s->device.record(s->device.ctx, s->stream, 0)) s->device.wait(s->device.ctx, s->stream, 0);
}

void device_staging_cut(staging *s, unsigned n) {
    bool in_flight = false;
    for (unsigned i = 0; i < s->n; i++) in_flight |= s->batches[i].in_flight;
    if (in_flight) device_staging_wait_all(s);
    assert(n > 0 && n <= s->slots);
    unsigned each = s->slots / n;
    s->n = n;
    s->turn = 0;
    for (unsigned i = 0; i < n; i++)
        s->batches[i] = (staging_batch){.memory = s->memory + (size_t)i * each * STAGING_SLOT_BYTES,
                                        .room = (uint64_t)each * STAGING_SLOT_BYTES,
                                        .ranges = s->ranges + i * each * RANGES,
                                        .most = each * RANGES,
                                        .sums = s->sums + i * each * RANGES,
                                        .event = i};
}

unsigned char *device_staging_add(staging_batch *b, const state_box *box, const char *path,
                                  uint64_t offset, uint64_t bytes, uint64_t *taken) {
    staging_range *last = b->n ? &b->ranges[b->n - 1] : NULL;
    bool goes_on = last && last->box == box && last->offset + last->bytes == offset;
    uint64_t at = goes_on ? b->used : (b->used + 7) / 8 * 8;
    if (at >= b->room || (!goes_on && b->n == b->most)) return NULL;
    if (bytes > b->room - at) bytes = b->room - at;
    if (goes_on)
        last->bytes += bytes;
    else
        b->ranges[b->n++] = (staging_range){box, path, offset, bytes, at};
    b->used = at + bytes;
    *taken = bytes;
    return b->memory + at;
}

static int range_failed(const staging *s, int code, const staging_range *r, const char *what,
                        dcp_error *err) {
    return core_fail_tensor(core_fail(err, DCP_ERR_DEVICE, "%s: tensor %s: %s %llu bytes: %s",
                                      s->device.name, r->path, what, (unsigned long long)r->bytes,
                                      s->device.error_text(s->device.ctx, code)),
                            r->path, err);
}

static int begin_range(const staging *s, const staging_batch *b, unsigned i, staging_way way,
                       dcp_error *err) {
    const dcp_device *d = &s->device;
    const staging_range *r = &b->ranges[i];
    unsigned char *there = (unsigned char *)r->box->device_data + r->offset;
    unsigned char *here = b->memory + r->at;
    int code = way == STAGING_TO_HOST ? d->to_host(d->ctx, s->stream, here, there, r->bytes)
                                      : d->to_device(d->ctx, s->stream, there, here, r->bytes);
    if (code)
        return range_failed(s, code, r,
                            way == STAGING_TO_HOST ? "cannot copy from the device"
                                                   : "cannot copy to the device",
                            err);
    code = d->checksum(d->ctx, s->stream, there, r->bytes, &b->sums[i]);
    return code ? range_failed(s, code, r, "cannot take the checksum of", err) : DCP_OK;
}

int device_staging_send(staging *s, staging_batch *b, staging_way way, dcp_error *err) {
    int status = DCP_OK;
    b->in_flight = true;
    for (unsigned i = 0; i < b->n && !status; i++) status = begin_range(s, b, i, way, err);
    if (status) return status;
    int code = s->device.record(s->device.ctx, s->stream, b->event);
    return code ? device_failed(s, code, "cannot record an event", err) : DCP_OK;
}

/* Waits until the copies of a batch in flight are complete. */
static int device_staging_arrive(const staging *s, staging_batch *b, dcp_error *err) {
    if (!b->in_flight) return DCP_OK;
    int code = s->device.wait(s->device.ctx, s->stream, b->event);
    if (code) return range_failed(s, code, &b->ranges[0], "cannot copy or checksum", err);
    b->in_flight = false;
    return DCP_OK;
}

/* Compares the device's checksums with those of the batch's memory. */
static int device_staging_compare(const staging *s, const staging_batch *b, dcp_error *err) {
    for (unsigned i = 0; i < b->n; i++) {
        const staging_range *r = &b->ranges[i];
        if (core_crc64_raw(0, b->memory + r->at, r->bytes) != b->sums[i])
            return core_fail_tensor(
                core_fail(err, DCP_ERR_DEVICE,
                          "%s: tensor %s: bytes %llu to %llu of this rank's box have another "
                          "checksum on the device than in host memory: the copy went wrong, or "
                          "they were changed before the fence",
                          s->device.name, r->path, (unsigned long long)r->offset,
                          (unsigned long long)(r->offset + r->bytes)),
                r->path, err);
    }
    return DCP_OK;
}

int device_staging_wait(const staging *s, staging_batch *b, dcp_error *err) {
    if (!b->in_flight) return DCP_OK;
    const int status = device_staging_arrive(s, b, err);
    return status ? status : device_staging_compare(s, b, err);
}

void device_staging_clear(staging_batch *b) {
    b->n = b->cursor = 0;
    b->used = 0;
}

int device_staging_checksum(const staging *s, const state_box *box, const char *path,
                            uint64_t offset, uint64_t bytes, uint64_t *raw, dcp_error *err) {
    const staging_range all = {.box = box, .path = path, .offset = offset, .bytes = bytes};
    const dcp_device *d = &s->device;
    const unsigned char *there = (const unsigned char *)box->device_data + offset;
    int code = d->checksum(d->ctx, s->stream, there, bytes, &s->sums[0]);
    if (code) return range_failed(s, code, &all, "cannot take the checksum of", err);
    code = d->record(d->ctx, s->stream, 0);
    if (!code) code = d->wait(d->ctx, s->stream, 0);
    if (code) return device_failed(s, code, "cannot take checksums", err);
    *raw = s->sums[0];
    return DCP_OK;
}

/* A single batch with its own memory. */

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

bool device_pinned_holds(const device_pinned *pinned, const staging *s, uint64_t bytes,
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
    if (status) { /* wait, so that nothing is copied into the memory after the return */
        device_staging_wait_all(s);
        pinned->batch.in_flight = false;
    }
    return status;
}

int device_pinned_prove(const device_pinned *pinned, const staging *s, dcp_error *err) {
    return device_staging_compare(s, &pinned->batch, err);
}
