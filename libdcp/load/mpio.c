/* Engine mpio: a rank reads its boxes out of the datasets, straight into their memory. HDF5 sees a
 * file only after plain reads have shown that its metadata is what was saved. */
#include <stdlib.h>

#include "core/fail.h"
#include "h5/parallel.h"
#include "load/place.h"
#include "load/transfer.h"
#include "step/outside.h"

#define PART_BYTES ((uint64_t)256 << 20) /* MPI-IO's transfers stay below 2 GiB */
#define BUFFER_BYTES (4u << 20)

typedef struct reader {
    const step_file *from; /* of `file` */
    h5_file *file;
    const piece *piece;
    unsigned char *buffer; /* BUFFER_BYTES, for boxes on a device; NULL before the first one */
    dcp_error *err;
} reader;

/* Once for each file. */
static int check_metadata(step_file *file, dcp_error *err) {
    if (file->outside_is_intact) return DCP_OK;
    int status = step_file_open_plain(file, err);
    unsigned char *buffer = status ? NULL : malloc(BLOCK_BYTES);
    if (!status && !buffer) status = core_fail_memory(err, BLOCK_BYTES);
    if (!status)
        status = step_outside_check(file, buffer, NULL, NULL, &file->outside_is_intact, err);
    free(buffer);
    if (status || file->outside_is_intact) return status;
    return core_fail(err, DCP_ERR_CORRUPT,
                     "%s: HDF5 metadata or padding: bytes outside the tensors and tables are "
                     "damaged",
                     file->path);
}

static int turn_to(reader *r, step_file *file) {
    if (r->from == file) return DCP_OK;
    int status = h5_parallel_close(r->file, r->err);
    r->file = NULL;
    if (!status) status = check_metadata(file, r->err);
    if (!status) status = h5_parallel_open(file->path, 0, &r->file, r->err);
    r->from = file;
    return status;
}

static void sum(const piece *p) {
    const unsigned char *memory = p->box->data;
    for (uint64_t i = 0, a, b; i < p->copy->runs; i++) {
        core_box_copy_run(p->copy, i, &a, &b);
        piece_sum(p, a, memory + b, p->copy->run_bytes);
    }
}

/* A part of what the dataset and the box share, dense in the buffer, to where it belongs. */
static int hand_on(const reader *r, const dcp_box *part) {
    const piece *p = r->piece;
    const dcp_tensor *t = &p->row->tensor;
    uint32_t dims = core_box_dims(t->ndim);
    uint64_t size = dcp_dtype_bytes(t->dtype);
    const dcp_box held = step_index_row_box(p->row);
    box_copy copy;
    int status = DCP_OK;
    core_box_copy_between(&copy, dims, size, &held, part);
    for (uint64_t i = 0, a, b; i < copy.runs; i++) {
        core_box_copy_run(&copy, i, &a, &b);
        piece_sum(p, a, r->buffer + b, copy.run_bytes);
    }
    core_box_copy_between(&copy, dims, size, &p->box->box, part);
    for (uint64_t i = 0, a, b; i < copy.runs && !status; i++) {
        core_box_copy_run(&copy, i, &a, &b);
        status = place(p, a, r->buffer + b, copy.run_bytes, r->err);
    }
    return status;
}

static int read_to_device(reader *r, const dcp_box *shared) {
    const dcp_tensor *t = &r->piece->row->tensor;
    uint32_t dims = core_box_dims(t->ndim);
    uint64_t most = BUFFER_BYTES / dcp_dtype_bytes(t->dtype), all = dcp_box_elems(shared, dims);
    if (!r->buffer && !(r->buffer = malloc(BUFFER_BYTES)))
        return core_fail_memory(r->err, BUFFER_BYTES);
    int status = h5_parallel_dataset(r->file, r->piece->row, r->err);
    for (uint64_t at = 0; at < all && !status;) {
        dcp_box part;
        at += dcp_box_slice(dims, shared, at, most, &part);
        status = h5_parallel_read(r->file, &part, &part, r->buffer, r->err);
        if (!status) status = hand_on(r, &part);
    }
    return status;
}

static int read_piece(reader *r) {
    const piece *p = r->piece;
    const dcp_tensor *t = &p->row->tensor;
    uint32_t dims = core_box_dims(t->ndim);
    dcp_box held = step_index_row_box(p->row), shared, part;
    if (!core_box_intersect(dims, &held, &p->box->box, &shared)) return DCP_OK;
    if (p->staging) return read_to_device(r, &shared);
    uint64_t most = PART_BYTES / dcp_dtype_bytes(t->dtype), all = dcp_box_elems(&shared, dims);
    int status = h5_parallel_dataset(r->file, p->row, r->err);
    for (uint64_t at = 0; at < all && !status;) {
        at += dcp_box_slice(dims, &shared, at, most, &part);
        status = h5_parallel_read(r->file, &part, &p->box->box, p->box->data, r->err);
    }
    if (!status && p->sums) sum(p);
    return status;
}

int load_mpio(dcp_checkpoint *ckpt, const piece *pieces, size_t n, dcp_error *err) {
    reader r = {.err = err};
    int status = DCP_OK;
    for (size_t i = 0; i < n && !status; i++) {
        r.piece = &pieces[i];
        status = turn_to(&r, load_file(ckpt, pieces[i].file_offset));
        if (!status) status = read_piece(&r);
    }
    int closed = h5_parallel_close(r.file, status ? NULL : err);
    free(r.buffer);
    return status ? status : closed;
}
