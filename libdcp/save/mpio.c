/* Engine mpio. Rank 0 makes the file a valid HDF5 file; then every rank writes its boxes into the
 * datasets, in parts of a bounded size, independently. HDF5 changes no metadata; rank 0 puts its
 * bytes there once more, so that they are right whatever HDF5 wrote. All goes through the page
 * cache. */
#include <stdlib.h>

#include "core/clock.h"
#include "core/fail.h"
#include "h5/parallel.h"
#include "save/image.h"

#define PART_BYTES ((uint64_t)IO_SLOT_BYTES)

static int put_metadata(const image *im, dcp_error *err) {
    io_file file;
    int status = io_open_buffered(im->path, 1, &file, err);
    if (status) return status;
    status = io_reserve(&file, im->layout->skeleton.file_bytes, err);
    for (size_t i = 0; i < im->layout->skeleton.n_runs && !status; i++) {
        const skeleton_run *run = &im->layout->skeleton.runs[i];
        status = io_write_plain(file.fd, run->data, run->bytes, run->offset, im->path, err);
    }
    io_close(&file); /* other nodes see it when it is closed */
    return status;
}

typedef struct writer {
    image *im;
    h5_file *file;
    const piece *piece;
    unsigned char *buffer; /* PART_BYTES, for what is not in memory */
    dcp_error *err;
} writer;

/* `part` is bytes [offset, offset + bytes) of the box. */
static int write_part(writer *w, const dcp_box *part, uint64_t offset, uint64_t bytes) {
    const unsigned char *data = piece_memory(w->piece, offset);
    if (!data) {
        int status = piece_fetch(w->piece, offset, bytes, w->buffer, w->err);
        if (status) return status;
        data = w->buffer;
    }
    int status = h5_parallel_write(w->file, part, data, w->err);
    if (status) return status;
    piece_sum_box(w->piece, offset, data, bytes);
    save_progress_written(w->im->progress, bytes);
    return DCP_OK;
}

static int write_piece(writer *w) {
    const dcp_tensor *t = &w->piece->row->tensor;
    const dcp_box *box = &w->piece->box->box;
    uint32_t dims = core_box_dims(t->ndim);
    uint64_t size = dcp_dtype_bytes(t->dtype), all = dcp_box_elems(box, dims);
    int status = h5_parallel_dataset(w->file, w->piece->row, w->err);
    for (uint64_t at = 0, n; at < all && !status; at += n) {
        dcp_box part;
        n = dcp_box_slice(dims, box, at, PART_BYTES / size, &part);
        status = write_part(w, &part, at * size, n * size);
    }
    return status;
}

/* This rank's boxes. Not collective. */
static int write_boxes(image *im, dcp_error *err) {
    writer w = {.im = im, .err = err, .buffer = malloc(PART_BYTES)};
    if (!w.buffer) return core_fail_memory(err, PART_BYTES);
    int status = h5_parallel_open(im->path, 1, &w.file, err);
    for (size_t i = 0; i < im->n_pieces && !status; i++) {
        w.piece = &im->pieces[i];
        if (w.piece->row) status = write_piece(&w);
    }
    int closed = h5_parallel_close(w.file, status ? NULL : err);
    free(w.buffer);
    return status ? status : closed;
}

int write_mpio(image *im, dcp_report *report, dcp_error *err) {
    double start = core_clock_now();
    int is_first = im->comm->rank == 0;
    int status = comm_agree(im->comm, is_first ? put_metadata(im, err) : DCP_OK, err);
    /* opened before anything is written, so that its sync tells of all that fails */
    if (!status) status = comm_agree(im->comm, io_open_buffered(im->path, 1, &im->file, err), err);
    if (status) return status;
    int written = write_boxes(im, err);
    if (im->is_last) save_progress_release(im->progress);
    status = comm_agree(im->comm, written, err);
    if (!status) status = comm_agree(im->comm, is_first ? put_metadata(im, err) : DCP_OK, err);
    report->write_s += save_progress_phase(im->progress, DCP_PHASE_WRITE, start, core_clock_now());
    return status;
}
