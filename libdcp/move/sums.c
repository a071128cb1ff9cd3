/* What is in memory is summed where it lies. */
#include "move/sums.h"

#include <stdlib.h>

#include "core/bytes.h"
#include "core/fail.h"
#include "device/staging.h"
#include "move/box_bytes.h"
#include "move/progress.h"

#define PART_BYTES ((uint64_t)4 << 20)
#define TOGETHER_BYTES (64u << 10) /* worth a call of the device */

/* On the device; fewer bytes of it would be many calls. */
static int is_summed_there(const move_piece *p) {
    return p->device && (!p->global || p->global->copy.run_bytes >= TOGETHER_BYTES);
}

static int sum_there(const move_piece *p, uint64_t offset, uint64_t bytes, dcp_error *err) {
    int status = DCP_OK;
    for (uint64_t end = offset + bytes, part; offset < end && !status; offset += part) {
        uint64_t raw = 0;
        part = move_piece_in_block(p, offset, end - offset);
        status = device_staging_checksum(p->device->staging, p->box, p->row->tensor.path, offset,
                                         part, &raw, err);
        if (!status) move_piece_add(p, offset, part, raw);
    }
    return status;
}

static int sum_part(const move_piece *p, uint64_t offset, uint64_t bytes, unsigned char **buffer,
                    dcp_error *err) {
    if (is_summed_there(p)) return sum_there(p, offset, bytes, err);
    if (p->box->data) {
        move_piece_sum_memory(p, offset, offset, bytes);
        return DCP_OK;
    }
    if (!*buffer && !(*buffer = malloc(PART_BYTES))) return core_fail_memory(err, PART_BYTES);
    int status = move_box_fetch(p, offset, bytes, *buffer, err);
    if (!status) move_piece_sum(p, offset, *buffer, bytes);
    return status;
}

typedef struct summing {
    unsigned char *buffer; /* PART_BYTES; NULL before the first use */
    move_progress *progress;
    dcp_error *err;
} summing;

/* Bytes [offset, offset + bytes) of the box, which is all of p's dataset. */
static int sum_range(void *ctx, const move_piece *p, uint64_t offset, uint64_t bytes) {
    summing *s = ctx;
    int status = DCP_OK;
    for (uint64_t at = 0, part; at < bytes && !status; at += part) {
        part = core_min_u64(PART_BYTES, bytes - at);
        status = sum_part(p, offset + at, part, &s->buffer, s->err);
        if (s->progress && !status) move_progress_read(s->progress, part);
        if (!status) status = move_progress_status(s->progress, s->err);
    }
    return status;
}

int move_sums(const move_piece *pieces, size_t n, move_progress *progress, dcp_error *err) {
    summing s = {NULL, progress, err};
    int status = DCP_OK;
    for (size_t i = 0; i < n && !status; i++)
        status = sum_range(&s, &pieces[i], 0, pieces[i].bytes);
    free(s.buffer);
    return status;
}

/* The same of the box by itself: a dataset of its own. */
static int sum_box_range(void *ctx, const move_piece *p, uint64_t offset, uint64_t bytes) {
    const move_piece box = {.bytes = p->copy->runs * p->copy->run_bytes,
                            .row = p->row,
                            .box = p->box,
                            .sums = p->own,
                            .device = p->device};
    return sum_range(ctx, &box, offset, bytes);
}

int move_sums_of_others(const move_piece *pieces, size_t n, move_progress *progress,
                        dcp_error *err) {
    summing s = {NULL, progress, err};
    int status = DCP_OK;
    for (size_t i = 0; i < n && !status; i++)
        if (pieces[i].holders && pieces[i].own)
            status = move_piece_others(&pieces[i], sum_box_range, &s);
    free(s.buffer);
    return status;
}
