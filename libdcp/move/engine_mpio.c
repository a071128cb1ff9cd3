/* Engine mpio writes and reads datasets through HDF5's MPI-IO driver, each rank independently of
 * the others. All bytes go through the page cache.
 *
 * To a file: rank 0 writes the metadata, which makes the file a valid HDF5 file. Then every rank
 * writes its boxes into the datasets, in parts of a bounded size. HDF5 should not change the
 * metadata, but rank 0 writes it once more, so it is right whatever HDF5 wrote. From files: a rank
 * reads its boxes from the datasets, directly into their memory. HDF5 opens a file only after plain
 * reads have shown that its metadata is what was saved. */
#include <stdbool.h>
#include <stdlib.h>

#include "comm/comm.h"
#include "core/fail.h"
#include "core/system.h"
#include "h5/parallel.h"
#include "io/file.h"
#include "move/engine.h"
#include "move/piece.h"
#include "move/transfer.h"

#define BUFFER_BYTES ((uint64_t)4 << 20) /* for bytes that cannot be moved in place */
#define PART_BYTES ((uint64_t)32 << 20)  /* maximum of one read; progress is reported after each */

typedef struct mpio_mover {
    const move_transfer *transfer;
    const move_file *from; /* the file that is open as `file` */
    h5_file *file;
    const move_piece *piece;
    unsigned char *buffer; /* BUFFER_BYTES; from files: NULL before its first use */
    dcp_error *err;
} mpio_mover;

/* Pieces without a box are the file's metadata, which rank 0 has. */
static int put_metadata(const move_transfer *t, dcp_error *err) {
    io_file file;
    if (t->comm->rank) return DCP_OK;
    int status = io_open_buffered(t->files->path, true, &file, err);
    if (status) return status;
    status = io_reserve(&file, t->files->end, err);
    for (size_t i = 0; i < t->n_pieces && !status; i++) {
        const move_piece *p = &t->pieces[i];
        if (!p->box)
            status = io_write_plain(file.fd, p->raw, p->bytes, p->file_offset, t->files->path, err);
    }
    io_close(&file); /* other nodes see it after the close */
    return status;
}

/* Returns true if this rank supplies the part of the box at `offset`. Holders of a box take turns
 * at parts of BUFFER_BYTES, into which all of them cut the box in the same way. */
static bool is_supplied(const move_piece *p, uint64_t offset) {
    uint64_t number = (p->file_offset + offset) / BUFFER_BYTES;
    return !p->holders || number % p->holders == p->turn;
}

/* `part` is bytes [offset, offset + bytes) of the box. */
static int write_box_part(mpio_mover *m, const dcp_box *part, uint64_t offset, uint64_t bytes) {
    const bool supplied = is_supplied(m->piece, offset);
    const unsigned char *data = move_piece_memory(m->piece, offset, bytes);
    if (!data && (supplied || m->piece->own)) {
        int status = move_box_fetch(m->piece, offset, bytes, m->buffer, m->err);
        if (status) return status;
        data = m->buffer;
    }
    int status = supplied ? h5_parallel_write(m->file, part, data, m->err) : DCP_OK;
    if (status) return status;
    const move_piece own = move_piece_own_sums(m->piece);
    move_piece_sum_box(supplied ? m->piece : &own, offset, data, bytes);
    move_progress_written(m->transfer->progress, bytes);
    return move_progress_status(m->transfer->progress, m->err);
}

static int write_dataset(mpio_mover *m) {
    const dcp_tensor *t = &m->piece->row->tensor;
    const dcp_box *box = &m->piece->box->box;
    uint32_t dims = core_box_dims(t->ndim);
    uint64_t size = dcp_dtype_bytes(t->dtype), all = dcp_box_elems(box, dims);
    int status = h5_parallel_dataset(m->file, m->piece->row, m->err);
    for (uint64_t at = 0, n; at < all && !status; at += n) {
        dcp_box part;
        n = dcp_box_slice(dims, box, at, BUFFER_BYTES / size, &part);
        status = write_box_part(m, &part, at * size, n * size);
    }
    return status;
}

/* Boxes on a device are read ahead in the order of the file, not in parts of boxes, so their first
 * holder supplies everything. Not collective. */
static void give_to_first(move_piece *p) {
    if (!p->device || !p->holders) return;
    if (p->turn)
        p->turn = UINT16_MAX;
    else
        p->holders = 0;
}

/* Computes only the box's own checksums, for a piece of which this rank supplies nothing. */
static int sum_only(mpio_mover *m) {
    move_progress *progress = m->transfer->progress;
    move_progress_written(progress, m->piece->copy->runs * m->piece->copy->run_bytes);
    return move_sums_of_others(m->piece, 1, progress, m->err);
}

/* Writes this rank's boxes. Not collective. */
static int write_boxes(const move_transfer *t, dcp_error *err) {
    mpio_mover m = {.transfer = t, .err = err, .buffer = malloc(BUFFER_BYTES)};
    if (!m.buffer) return core_fail_memory(err, BUFFER_BYTES);
    int status = move_sums(t->replicas, t->n_replicas, t->progress, err);
    if (!status) status = h5_parallel_open(t->files->path, true, &m.file, err);
    for (size_t i = 0; i < t->n_pieces && !status; i++) {
        m.piece = &t->pieces[i];
        if (m.piece->row)
            status = m.piece->turn > m.piece->holders ? sum_only(&m) : write_dataset(&m);
    }
    int closed = h5_parallel_close(m.file, status ? NULL : err);
    free(m.buffer);
    return status ? status : closed;
}

static int write_datasets(move_transfer *t, dcp_error *err) {
    double start = core_clock_now();
    for (size_t i = 0; i < t->n_pieces; i++) {
        t->pieces[i].bulk = 0; /* so the whole piece consists of fragments, which are read ahead */
        give_to_first(&t->pieces[i]);
    }
    int status = comm_agree(t->comm, put_metadata(t, err), err);
    if (status) return status;
    status = move_transfer_finish(t, write_boxes(t, err), err);
    if (!status) status = comm_agree(t->comm, put_metadata(t, err), err);
    t->report->write_s +=
        move_progress_phase(t->progress, DCP_PHASE_WRITE, start, core_clock_now());
    return status;
}

static int open_piece_file(mpio_mover *m) {
    const move_file *file = move_transfer_file(m->transfer, m->piece->file_offset);
    if (m->from == file) return DCP_OK;
    int status = h5_parallel_close(m->file, m->err);
    m->file = NULL;
    if (!status) status = m->transfer->check_metadata(file->owner, m->err);
    if (!status) status = h5_parallel_open(file->path, false, &m->file, m->err);
    m->from = file;
    return status;
}

static void sum_piece(const move_piece *p) {
    for (uint64_t i = 0, a, b; i < p->copy->runs; i++) {
        core_box_copy_run(p->copy, i, &a, &b);
        move_piece_sum_memory(p, a, b, p->copy->run_bytes);
    }
}

/* Copies `part` (some of the elements that the dataset and the box share) from the buffer, where it
 * is dense, to its places in the box. Does not add bytes to the checksums if they go into memory
 * without a cast: these are summed later, in memory. */
static int put_part(const mpio_mover *m, const dcp_box *part) {
    const move_piece *p = m->piece;
    const dcp_tensor *t = &p->row->tensor;
    uint32_t dims = core_box_dims(t->ndim);
    uint64_t size = dcp_dtype_bytes(t->dtype);
    box_copy copy;
    int status = DCP_OK;
    format_index_shared(p->row, part, &copy);
    for (uint64_t i = 0, a, b; i < copy.runs && (p->device || p->cast); i++) {
        core_box_copy_run(&copy, i, &a, &b);
        move_piece_sum(p, a, m->buffer + b, copy.run_bytes);
    }
    core_box_copy_between(&copy, dims, size, &p->box->box, part);
    for (uint64_t i = 0, a, b; i < copy.runs && !status; i++) {
        core_box_copy_run(&copy, i, &a, &b);
        status = move_box_put(p, a, m->buffer + b, copy.run_bytes, m->err);
    }
    return status;
}

static int report_read(const mpio_mover *m, const dcp_box *part) {
    const dcp_tensor *t = &m->piece->row->tensor;
    move_progress *progress = m->transfer->progress;
    uint64_t elems = dcp_box_elems(part, core_box_dims(t->ndim));
    move_progress_written(progress, elems * dcp_dtype_bytes(t->dtype));
    return move_progress_status(progress, m->err);
}

static int read_by_buffer(mpio_mover *m, const dcp_box *shared) {
    const dcp_tensor *t = &m->piece->row->tensor;
    uint32_t dims = core_box_dims(t->ndim);
    uint64_t most = BUFFER_BYTES / dcp_dtype_bytes(t->dtype), all = dcp_box_elems(shared, dims);
    if (!m->buffer && !(m->buffer = malloc(BUFFER_BYTES)))
        return core_fail_memory(m->err, BUFFER_BYTES);
    int status = h5_parallel_dataset(m->file, m->piece->row, m->err);
    for (uint64_t at = 0; at < all && !status;) {
        dcp_box part;
        at += dcp_box_slice(dims, shared, at, most, &part);
        status = h5_parallel_read(m->file, &part, &part, m->buffer, m->err);
        if (!status) status = put_part(m, &part);
        if (!status) status = report_read(m, &part);
    }
    return status;
}

static int read_in_place(mpio_mover *m, const dcp_box *shared) {
    const move_piece *p = m->piece;
    const dcp_tensor *t = &p->row->tensor;
    uint32_t dims = core_box_dims(t->ndim);
    uint64_t most = PART_BYTES / dcp_dtype_bytes(t->dtype), all = dcp_box_elems(shared, dims);
    dcp_box part;
    int status = h5_parallel_dataset(m->file, p->row, m->err);
    for (uint64_t at = 0; at < all && !status;) {
        at += dcp_box_slice(dims, shared, at, most, &part);
        status = h5_parallel_read(m->file, &part, &p->box->box, p->box->data, m->err);
        if (!status) status = report_read(m, &part);
    }
    return status;
}

static int read_dataset(mpio_mover *m) {
    const move_piece *p = m->piece;
    dcp_box held = format_index_row_box(p->row), shared;
    if (!core_box_intersect(core_box_dims(p->row->tensor.ndim), &held, &p->box->box, &shared))
        return DCP_OK;
    const bool in_place = p->box->data && !p->box->strides && !p->cast;
    int status = (in_place ? read_in_place : read_by_buffer)(m, &shared);
    if (!status && !p->device && !p->cast && p->sums) sum_piece(p);
    return status;
}

/* Not collective. */
static int read_boxes(const move_transfer *t, dcp_error *err) {
    mpio_mover m = {.transfer = t, .err = err};
    int status = DCP_OK;
    for (size_t i = 0; i < t->n_pieces && !status; i++) {
        m.piece = &t->pieces[i];
        status = open_piece_file(&m);
        if (!status) status = read_dataset(&m);
    }
    int closed = h5_parallel_close(m.file, status ? NULL : err);
    free(m.buffer);
    return status ? status : closed;
}

static int read_datasets(move_transfer *t, dcp_error *err) {
    double start = core_clock_now();
    int status = move_transfer_finish(t, read_boxes(t, err), err);
    t->report->write_s += core_clock_now() - start;
    return status;
}

static int open_to_write(const char *path, io_file *out, dcp_error *err) {
    return io_open_buffered(path, true, out, err);
}

const move_engine move_engine_mpio = {
    .engine = DCP_ENGINE_MPIO,
    .name = "mpio",
    /* PVFS2 and OrangeFS by design have no POSIX semantics between clients: they have no locks, and
     * a client's cache does not see the writes of other nodes. They are made for MPI-IO. */
    .file_systems = {0x20030528},
    .check = h5_parallel_check,
    .open = open_to_write,
    .to_file = write_datasets,
    .from_files = read_datasets,
};
