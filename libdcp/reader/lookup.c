#include "reader/lookup.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/bytes.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "reader/checkpoint.h"
#include "reader/packed.h"

#define READY_BYTES ((uint64_t)2 << 20) /* room for the first messages: a few thousand rows */

int reader_alltoall_make(reader_alltoall *alltoall, dcp_comm *comm, dcp_error *err) {
    size_t ranks = (size_t)comm->size;
    *alltoall =
        (reader_alltoall){.comm = comm, .bytes = calloc(3 * ranks, sizeof *alltoall->bytes)};
    if (!alltoall->bytes) return core_fail_memory(err, 3 * ranks * sizeof *alltoall->bytes);
    alltoall->at = alltoall->bytes + ranks;
    alltoall->received = alltoall->at + ranks;
    return DCP_OK;
}

int reader_alltoall_allocate(reader_alltoall *alltoall, dcp_error *err) {
    uint64_t total = 0;
    for (int r = 0; r < alltoall->comm->size; r++) {
        alltoall->at[r] = total;
        total += alltoall->bytes[r];
    }
    return comm_buffer_append(&alltoall->out, total) ? DCP_OK : core_fail_memory(err, total);
}

uint64_t *reader_alltoall_reserve(reader_alltoall *alltoall, int rank, uint64_t words) {
    uint64_t *at = (uint64_t *)(void *)(alltoall->out.data + alltoall->at[rank]);
    alltoall->at[rank] += 8 * words;
    return at;
}

int reader_alltoall_run(reader_alltoall *alltoall, int status, dcp_error *err) {
    if (alltoall->comm->size > 1)
        return comm_buffer_agree_exchange(alltoall->comm, status, READY_BYTES, &alltoall->out,
                                          alltoall->bytes, &alltoall->in, alltoall->received, err);
    if (status) return status;
    alltoall->in = alltoall->out;
    alltoall->received[0] = alltoall->bytes[0];
    alltoall->out = (comm_buffer){0};
    return DCP_OK;
}

void reader_alltoall_free(reader_alltoall *alltoall) {
    free(alltoall->bytes);
    free(alltoall->out.data);
    free(alltoall->in.data);
    *alltoall = (reader_alltoall){0};
}

/* Rows are sorted by path, so a path is found by binary search. The rows of a tensor need not be
 * adjacent: its first box has its path, "/a", and its second box "/a@1"; the row of another
 * tensor, "/a-b", is between them. */

enum { STRIDE = 16 }; /* the place in the blocks table is stored for every 16th row */

/* A row that was read. */
typedef struct found_row {
    unsigned char bytes[FORMAT_LONGEST_ROW];
    char path[FORMAT_LONGEST_PATH + 1];
} found_row;

static int read_row(format_file *file, uint64_t i, found_row *out, dcp_error *err) {
    const format_userblock *ub = &file->ub;
    uint64_t path_bytes = ub->row_bytes - format_index_row_bytes(0, ub->layout);
    int status = format_file_read(file, out->bytes, ub->row_bytes,
                                  ub->index.offset + i * ub->row_bytes, err);
    if (status) return status;
    memcpy(out->path, out->bytes, path_bytes);
    out->path[path_bytes] = 0;
    return DCP_OK;
}

/* Sets *first to the number of the first row at or after `low` whose path is not before `path`. */
static int first_row_from(format_file *file, const char *path, uint64_t low, uint64_t *first,
                          found_row *row, dcp_error *err) {
    uint64_t high = file->ub.rows;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        int status = read_row(file, middle, row, err);
        if (status) return status;
        if (strcmp(row->path, path) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *first = low;
    return DCP_OK;
}

/* Reads row i into *row. Sets *is to true if its path is `path`. */
static int is_row(format_file *file, uint64_t i, const char *path, bool *is, found_row *row,
                  dcp_error *err) {
    *is = false;
    if (i >= file->ub.rows) return DCP_OK;
    int status = read_row(file, i, row, err);
    if (!status) *is = !strcmp(row->path, path);
    return status;
}

/* Finds the row whose path is `path`, if it exists. First tries the row after the one that was
 * found last. */
static int find_row(format_file *file, const char *path, uint64_t *at, bool *is, found_row *row,
                    dcp_error *err) {
    *at = __atomic_load_n(&file->after_found, __ATOMIC_RELAXED);
    int status = is_row(file, *at, path, is, row, err);
    if (status || *is) return status;
    status = first_row_from(file, path, 0, at, row, err);
    return status ? status : is_row(file, *at, path, is, row, err);
}

static int take_row(const dcp_checkpoint *ckpt, const reader_tensor *t, const format_file *file,
                    const found_row *found, comm_buffer *out, dcp_error *err) {
    char path[FORMAT_LONGEST_PATH + 1];
    dcp_box box;
    format_row row;
    int status =
        format_index_decode_row(found->bytes, &file->ub, file->path, path, &box, &row, err);
    if (status) return status;
    size_t length = format_index_tensor_path(path);
    if (length != strlen(t->tensor.path)) return DCP_OK; /* another tensor's row, such as "/a@b" */
    if (row.tensor.dtype != t->tensor.dtype || row.tensor.ndim != t->tensor.ndim ||
        memcmp(row.tensor.shape, t->tensor.shape, 8ULL * t->tensor.ndim))
        return reader_join_fail_shape(ckpt, t->tensor.path, err);
    return reader_packed_append(out, (size_t)(t - ckpt->tensors), (size_t)(file - ckpt->files),
                                &row, path + length, NULL, err);
}

int reader_lookup_rows(const dcp_checkpoint *ckpt, const reader_tensor *t, format_file *file,
                       comm_buffer *out, dcp_error *err) {
    char path[DCP_MAX_PATH + 2];
    size_t length = strlen(t->tensor.path);
    found_row row;
    uint64_t at, next;
    bool is;
    int status = find_row(file, t->tensor.path, &at, &is, &row, err);
    if (!status && is) {
        status = take_row(ckpt, t, file, &row, out, err);
        __atomic_store_n(&file->after_found, ++at, __ATOMIC_RELAXED);
    }
    memcpy(path, t->tensor.path, length);
    memcpy(path + length, "@", 2);
    next = at;
    if (!status && at < file->ub.rows) status = read_row(file, at, &row, err);
    if (!status && at < file->ub.rows && strcmp(row.path, path) < 0)
        status = first_row_from(file, path, at, &next, &row, err);
    for (; !status && next < file->ub.rows; next++) {
        status = read_row(file, next, &row, err);
        if (status || strncmp(row.path, path, length + 1)) break;
        status = take_row(ckpt, t, file, &row, out, err);
    }
    return status;
}

/* Records where the blocks of rows 0, STRIDE, 2 * STRIDE ... begin in the blocks table. */
static int note_places(const format_file *file, const unsigned char *index, uint32_t *places,
                       dcp_error *err) {
    const format_userblock *ub = &file->ub;
    uint64_t blocks = 0;
    if (core_crc64(index, ub->index.bytes) != ub->index.crc)
        return core_fail_at(err, DCP_ERR_CORRUPT, file->path, "index: its checksum is wrong");
    for (uint64_t i = 0; i < ub->rows; i++) {
        if (i % STRIDE == 0) places[i / STRIDE] = (uint32_t)blocks;
        blocks += format_index_blocks(format_index_bytes_of(index + i * ub->row_bytes, ub));
    }
    return DCP_OK;
}

/* If several threads look for the places at once, the result of the first to finish is stored. */
static int find_places(format_file *file, const uint32_t **out, dcp_error *err) {
    const format_userblock *ub = &file->ub;
    uint32_t *kept = __atomic_load_n(&file->block_places, __ATOMIC_ACQUIRE);
    *out = kept;
    if (kept) return DCP_OK;
    unsigned char *index = malloc(ub->index.bytes + 1);
    uint32_t *places = core_array(ub->rows / STRIDE + 1, sizeof *places);
    int status = index && places
                     ? format_file_read(file, index, ub->index.bytes, ub->index.offset, err)
                     : core_fail_memory(err, ub->index.bytes);
    if (!status) status = note_places(file, index, places, err);
    free(index);
    if (!status && __atomic_compare_exchange_n(&file->block_places, &kept, places, 0,
                                               __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        kept = places;
    if (kept != places) free(places);
    *out = kept;
    return status;
}

/* Sets *first to the number, in the file, of the first block of the row whose path is `path`. */
static int find_blocks(format_file *file, const char *path, uint64_t *first, dcp_error *err) {
    const uint32_t *places;
    found_row row;
    uint64_t at;
    bool is;
    int status = find_places(file, &places, err);
    if (!status) status = find_row(file, path, &at, &is, &row, err);
    if (status) return status;
    if (!is)
        return core_fail_at(err, DCP_ERR_CORRUPT, file->path, "index: dataset %s has disappeared",
                            path);
    __atomic_store_n(&file->after_found, at + 1, __ATOMIC_RELAXED);
    *first = places[at / STRIDE];
    for (uint64_t i = at / STRIDE * STRIDE; i < at && !status; i++) {
        status = read_row(file, i, &row, err);
        *first += format_index_blocks(format_index_bytes_of(row.bytes, &file->ub));
    }
    return status;
}

int reader_lookup_crcs(reader_dataset *dataset, uint64_t **out, dcp_error *err) {
    format_file *file = dataset->file;
    uint64_t first, n = format_index_blocks(dataset->row->bytes);
    int status = find_blocks(file, dataset->row->tensor.path, &first, err);
    if (status) return status;
    if (first + n > file->ub.blocks.bytes / 8)
        return core_fail_at(err, DCP_ERR_CORRUPT, file->path, "index: it has changed");
    uint64_t *crcs = *out = core_array(n + 1, sizeof *crcs);
    if (!crcs) return core_fail_memory(err, n * sizeof *crcs);
    status = format_file_read(file, crcs, 8 * n, file->ub.blocks.offset + 8 * first, err);
    for (uint64_t b = 0; b < n && !status; b++)
        crcs[b] = core_get_u64((const unsigned char *)&crcs[b]);
    if (!status && format_index_join_blocks(crcs, dataset->row->bytes) != dataset->row->crc)
        status = core_fail_at(err, DCP_ERR_CORRUPT, file->path, "blocks: its checksum is wrong");
    if (status) free(crcs);
    return status;
}
