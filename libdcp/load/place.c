/* Batches in turn: one is filled while those before it are being copied. */
#include "load/place.h"

#include <string.h>

#define MEMORY_BYTES (16u << 20)

int place_prepare(const dcp_state *state, staging **out, dcp_error *err) {
    if (!state->device) return DCP_OK;
    int status = device_staging_open(state->device, MEMORY_BYTES, out, err);
    if (status) return status;
    device_staging_cut(*out, (*out)->slots);
    return device_staging_follow(*out, err);
}

/* Sends the batch, and makes the next one empty. */
static int turn(staging *s, dcp_error *err) {
    staging_batch *b = &s->batches[s->turn];
    int status = b->n ? device_staging_send(s, b, STAGING_TO_DEVICE, err) : DCP_OK;
    s->turn = (s->turn + 1) % s->n;
    if (!status) status = device_staging_wait(s, &s->batches[s->turn], err);
    if (!status) device_staging_clear(&s->batches[s->turn]);
    return status;
}

int place_range(staging *s, const state_box *box, const char *path, uint64_t offset,
                const void *data, uint64_t bytes, dcp_error *err) {
    const unsigned char *from = data;
    int status = DCP_OK;
    while (bytes && !status) {
        uint64_t part;
        unsigned char *to =
            device_staging_add(&s->batches[s->turn], box, path, offset, bytes, &part);
        if (!to) {
            status = turn(s, err);
            continue;
        }
        memcpy(to, from, part);
        from += part;
        offset += part;
        bytes -= part;
    }
    return status;
}

int place(const piece *p, uint64_t offset, const void *data, uint64_t bytes, dcp_error *err) {
    return place_range(p->staging, p->box, p->row->tensor.path, offset, data, bytes, err);
}

int place_rest(staging *s, dcp_error *err) {
    int status = DCP_OK;
    for (unsigned i = 0; s && i < s->n && !status; i++) status = turn(s, err);
    return status;
}
