#include "core/bytes.h"
#include "reader/union.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/box.h"
#include "core/fail.h"
#include "io/descriptors.h"
#include "reader/checkpoint.h"
#include "reader/lookup.h"
#include "reader/packed.h"

/* Reads one file's tables, packs its rows, and frees the tables. */
static int read_own(reader_own_files *own, size_t f, dcp_error *err) {
    format_file *file = &own->ckpt->files[f];
    int status = format_tables_read(file, err);
    if (!status) status = reader_join_check_layout(own->ckpt, file, err);
    for (uint64_t i = 0; i < file->ub.rows && !status; i++) {
        const format_row *row = &file->rows[i];
        size_t path_bytes = format_index_tensor_path(row->tensor.path);
        uint32_t number = 0;
        status = reader_own_files_name(own, &own->names, &row->tensor, path_bytes, &number, err);
        if (!status)
            status = reader_packed_append(&own->rows, number, f, row, row->tensor.path + path_bytes,
                                          file->crcs + row->first_block, err);
    }
    format_tables_free_rows(file);
    return status;
}

/* Reads one file's meta, and checks that it agrees with the metas of the other files that this rank
 * reads. */
static int read_own_meta(reader_own_files *own, size_t f, dcp_error *err) {
    dcp_checkpoint *ckpt = own->ckpt;
    int status = own->first == SIZE_MAX ? reader_join_first_meta(ckpt, f, err)
                                        : reader_join_check_meta(ckpt, own->first, f, err);
    if (own->first == SIZE_MAX) own->first = f;
    free(ckpt->files[f].meta);
    ckpt->files[f].meta = NULL;
    return status;
}

static int read_own_files(reader_own_files *own, dcp_error *err) {
    int status = DCP_OK;
    for (size_t f = 0; f < own->ckpt->n_files && !status; f++) {
        if (!reader_reads_file(own->ckpt, f)) continue;
        status = comm_stop_poll(&own->stop, err);
        if (!status) status = read_own(own, f, err);
        if (!status) status = read_own_meta(own, f, err);
    }
    return status;
}

enum { FACTS = 13 }; /* number of words that describe a user block */

static void put_facts(const format_userblock *ub, uint64_t *facts) {
    const uint64_t all[FACTS] = {
        ub->file_bytes, ub->rows,          ub->row_bytes,    ub->index.offset, ub->index.bytes,
        ub->index.crc,  ub->blocks.offset, ub->blocks.bytes, ub->blocks.crc,   ub->meta.offset,
        ub->meta.bytes, ub->meta.crc,      ub->outside_crc};
    memcpy(facts, all, sizeof all);
}

/* Builds a user block from the words that another rank sent, and checks it with the decoder that is
 * used for files. */
static int take_facts(dcp_checkpoint *ckpt, format_file *file, const uint64_t *facts,
                      dcp_error *err) {
    unsigned char bytes[USERBLOCK_BYTES];
    const format_userblock ub = {.layout = ckpt->layout,
                                 .file_bytes = facts[0],
                                 .rows = facts[1],
                                 .row_bytes = facts[2],
                                 .index = {facts[3], facts[4], facts[5]},
                                 .blocks = {facts[6], facts[7], facts[8]},
                                 .meta = {facts[9], facts[10], facts[11]},
                                 .outside_crc = facts[12]};
    format_userblock_encode(&ub, bytes);
    int status = format_userblock_decode(bytes, ub.file_bytes, file->path, &file->ub, err);
    if (!status) status = format_index_check_rows(NULL, 0, 0, &file->ub, file->path, err);
    return status;
}

/* Each message begins with the user blocks of the files that its sender reads. Returns how many
 * words the user blocks take in each message that this rank sends. */
static uint64_t words_of_facts(const dcp_checkpoint *ckpt) {
    uint64_t words = 0;
    for (size_t f = 0; f < ckpt->n_files; f++)
        if (reader_reads_file(ckpt, f)) words += FACTS;
    return words;
}

static void place_facts(const dcp_checkpoint *ckpt, reader_alltoall *alltoall) {
    for (int r = 0; r < ckpt->comm->size; r++)
        for (size_t f = 0; f < ckpt->n_files; f++)
            if (reader_reads_file(ckpt, f))
                put_facts(&ckpt->files[f].ub, reader_alltoall_reserve(alltoall, r, FACTS));
}

/* Sets the user blocks of the files that other ranks read, and removes all user blocks from the
 * received messages, which then contain only rows. */
static int take_all_facts(dcp_checkpoint *ckpt, reader_alltoall *alltoall, dcp_error *err) {
    const size_t ranks = (size_t)ckpt->comm->size;
    uint64_t *in = (uint64_t *)(void *)alltoall->in.data, words = 0, kept = 0;
    uint64_t *at = calloc(2 * ranks, sizeof *at);
    int status = DCP_OK;
    if (!at) return core_fail_memory(err, 2 * ranks * sizeof *at);
    uint64_t *end = at + ranks;
    for (size_t r = 0; r < ranks; r++) {
        at[r] = words;
        end[r] = words += alltoall->received[r] / 8;
    }
    for (size_t f = 0; f < ckpt->n_files && !status; f++) {
        const size_t r = (size_t)ckpt->files[f].reader;
        if (end[r] - at[r] < FACTS) {
            status = core_fail(err, DCP_ERR_MISMATCH, "a rank sent no user block");
        } else if (!reader_reads_file(ckpt, f)) {
            status = take_facts(ckpt, &ckpt->files[f], in + at[r], err);
            format_tables_prepare(&ckpt->files[f]);
        }
        at[r] += FACTS;
    }
    for (size_t r = 0; r < ranks && !status; kept += end[r] - at[r], r++)
        memmove(in + kept, in + at[r], 8 * (end[r] - at[r]));
    alltoall->in.bytes = 8 * kept;
    free(at);
    return status;
}

/* Replaces the tensors' numbers in this rank's rows, which are numbers in own->names, with their
 * numbers in the checkpoint. */
static int renumber_rows(reader_own_files *own, dcp_error *err) {
    const dcp_checkpoint *ckpt = own->ckpt;
    size_t *numbers = core_array(own->names.n + 1, sizeof *numbers);
    if (!numbers) return core_fail_memory(err, own->names.n * sizeof *numbers);
    int status = DCP_OK;
    for (size_t i = 0; i < own->names.n && !status; i++) {
        const reader_tensor *t = reader_checkpoint_lookup(ckpt, own->names.list[i].path);
        if (!t)
            status = core_fail(err, DCP_ERR_MISMATCH, "a rank lost a tensor's name");
        else if (!core_tensor_same(&t->tensor, &own->names.list[i])) /* ndim determines row sizes */
            status = reader_join_fail_shape(ckpt, t->tensor.path, err);
        numbers[i] = t ? (size_t)(t - ckpt->tensors) : 0;
    }
    uint64_t *at = (uint64_t *)(void *)own->rows.data, *end = at + own->rows.bytes / 8;
    while (at < end && !status) {
        reader_packed p;
        reader_packed_renumber(at, numbers[reader_packed_tensor(at)]);
        reader_packed_decode(ckpt, at, &p);
        at += p.words;
    }
    free(numbers);
    return status;
}

/* Puts each row into the message to its tensor's home. */
static int place_rows(const reader_own_files *own, reader_alltoall *alltoall, dcp_error *err) {
    const uint64_t *begin = (const uint64_t *)(const void *)own->rows.data,
                   *end = begin + own->rows.bytes / 8;
    const uint64_t facts = words_of_facts(own->ckpt);
    int status = DCP_OK;
    for (int r = 0; r < own->ckpt->comm->size; r++) reader_alltoall_count(alltoall, r, facts);
    for (int placing = 0; placing < 2 && !status; placing++) {
        if (placing) place_facts(own->ckpt, alltoall);
        for (const uint64_t *at = begin; at < end;) {
            reader_packed p;
            reader_packed_decode(own->ckpt, at, &p);
            int home = reader_checkpoint_home(own->ckpt, p.tensor);
            if (placing)
                memcpy(reader_alltoall_reserve(alltoall, home, p.words), at, 8 * p.words);
            else
                reader_alltoall_count(alltoall, home, p.words);
            at += p.words;
        }
        if (!placing) status = reader_alltoall_allocate(alltoall, err);
    }
    return status;
}

static int count_rows(const dcp_checkpoint *ckpt, const comm_buffer *in, size_t *ends,
                      dcp_error *err) {
    const uint64_t *at = (const uint64_t *)(const void *)in->data, *end = at + in->bytes / 8;
    int status = DCP_OK;
    while (at < end && !status) {
        reader_packed p;
        status = reader_packed_check(ckpt, at, end, &p, err);
        if (status) break;
        ends[p.tensor]++;
        at += p.words;
    }
    for (size_t i = 1; i < ckpt->n_tensors; i++) ends[i] += ends[i - 1];
    return status;
}

/* Sorts the rows by tensor, and within a tensor by arrival. On return, ends[i] is the index of
 * tensor i's first row in in_order. */
static int sort_rows(dcp_checkpoint *ckpt, const comm_buffer *in, size_t *ends, dcp_error *err) {
    int status = count_rows(ckpt, in, ends, err);
    size_t n = ckpt->n_tensors ? ends[ckpt->n_tensors - 1] : 0;
    if (status) return status;
    ckpt->in_order = core_array(n + 1, sizeof *ckpt->in_order);
    if (!ckpt->in_order) return core_fail_memory(err, n * sizeof *ckpt->in_order);
    /* ends[i] becomes the beginning of tensor i's rows */
    for (size_t i = ckpt->n_tensors; i > 0; i--) ends[i] = ends[i - 1];
    ends[0] = 0;
    const uint64_t *at = (const uint64_t *)(const void *)in->data, *end = at + in->bytes / 8;
    while (at < end) {
        reader_packed p;
        reader_packed_decode(ckpt, at, &p);
        ckpt->in_order[ends[p.tensor]++] = at;
        at += p.words;
    }
    for (size_t i = ckpt->n_tensors; i > 0; i--) ends[i] = ends[i - 1];
    ends[0] = 0;
    return DCP_OK;
}

static int by_file(const void *a, const void *b) {
    const uint64_t *x = *(const uint64_t *const *)a, *y = *(const uint64_t *const *)b;
    if (reader_packed_file(x) != reader_packed_file(y))
        return reader_packed_file(x) < reader_packed_file(y) ? -1 : 1;
    return (x > y) - (x < y);
}

/* Joins the rows of the tensors whose home is this rank. */
static int join_rows(dcp_checkpoint *ckpt, const size_t *first, dcp_error *err) {
    int status = DCP_OK;
    for (size_t i = (size_t)ckpt->comm->rank; i < ckpt->n_tensors && !status;
         i += (size_t)ckpt->comm->size) {
        reader_tensor *t = &ckpt->tensors[i];
        const uint64_t **rows = ckpt->in_order + first[i];
        size_t n = first[i + 1] - first[i];
        if (n > 1) qsort(rows, n, sizeof *rows, by_file);
        status = reader_packed_join(ckpt, t, (uint64_t **)rows, n, err);
        t->rows = rows;
    }
    return status;
}

/* Takes ownership of the received rows. */
static int keep_rows(dcp_checkpoint *ckpt, reader_alltoall *alltoall, size_t **first,
                     dcp_error *err) {
    ckpt->packed = (uint64_t *)(void *)alltoall->in.data;
    comm_buffer in = alltoall->in;
    alltoall->in = (comm_buffer){0};
    *first = calloc(ckpt->n_tensors + 1, sizeof **first);
    if (!*first) return core_fail_memory(err, ckpt->n_tensors * sizeof **first);
    return sort_rows(ckpt, &in, *first, err);
}

static int check_homes(const dcp_checkpoint *ckpt, const size_t *first, dcp_error *err) {
    for (size_t i = 0; i < ckpt->n_tensors; i++)
        if (first[i + 1] > first[i] && reader_checkpoint_home(ckpt, i) != ckpt->comm->rank)
            return core_fail(err, DCP_ERR_MISMATCH,
                             "a rank sent rows to a rank that is not their home");
    return DCP_OK;
}

/* Collective; begins with comm_agree of `status`. *own_status is this rank's status afterwards. */
static int send_rows_home(reader_own_files *own, int status, int *own_status, dcp_error *err) {
    dcp_checkpoint *ckpt = own->ckpt;
    const bool is_alone = ckpt->comm->size == 1;
    reader_alltoall alltoall = {.comm = ckpt->comm};
    size_t *first = NULL;
    if (!status) status = reader_alltoall_make(&alltoall, ckpt->comm, err);
    if (!status) status = renumber_rows(own, err);
    if (!status && !is_alone) status = place_rows(own, &alltoall, err);
    if (is_alone)
        alltoall.in = own->rows;
    else
        free(own->rows.data);
    own->rows = (comm_buffer){0};
    if (!is_alone) status = reader_alltoall_run(&alltoall, status, err);
    if (!status) {
        *own_status = is_alone ? DCP_OK : take_all_facts(ckpt, &alltoall, err);
        if (!*own_status) *own_status = reader_join_assign_addresses(ckpt, err);
        if (!*own_status) *own_status = keep_rows(ckpt, &alltoall, &first, err);
        if (!*own_status) *own_status = check_homes(ckpt, first, err);
        if (!*own_status) *own_status = join_rows(ckpt, first, err);
    }
    free(first);
    reader_alltoall_free(&alltoall);
    return status;
}

enum { NUMBERS = 7 }; /* number of words about a tensor that its home sends to all ranks */

static void put_numbers(const reader_tensor *t, uint64_t *numbers) {
    const uint64_t all[NUMBERS] = {t->n_datasets, t->blocks, t->longest,          t->crc,
                                   t->digest,     t->sweep,  (uint64_t)t->is_runs};
    memcpy(numbers, all, sizeof all);
}

static int take_numbers(reader_tensor *t, const uint64_t *numbers, dcp_error *err) {
    uint32_t dims = core_box_dims(t->tensor.ndim);
    uint64_t most = t->bytes / BLOCK_BYTES + numbers[0];
    if (numbers[0] > (t->bytes ? t->bytes : SIZE_MAX / 256) || numbers[1] > most ||
        numbers[5] >= dims || numbers[2] > t->tensor.shape[numbers[5]])
        return core_fail(err, DCP_ERR_MISMATCH, "tensor %s: its home sent invalid numbers",
                         t->tensor.path);
    t->n_datasets = numbers[0];
    t->blocks = numbers[1];
    t->longest = numbers[2];
    t->crc = numbers[3];
    t->digest = numbers[4];
    t->sweep = (uint32_t)numbers[5];
    t->is_runs = numbers[6] != 0;
    return DCP_OK;
}

/* Allocates the words that ranks exchange: the NUMBERS words of each tensor; the
 * READER_DIGEST_WORDS of rank 0; one bit per rank, set if the step is gone on that rank;
 * COMM_XOR_SCRATCH. Returns NULL if memory is short. */
static uint64_t *room_for_numbers(const dcp_checkpoint *ckpt) {
    return calloc(NUMBERS * ckpt->n_tensors + READER_DIGEST_WORDS +
                      2 * COMM_XOR_SCRATCH(ckpt->comm->size),
                  sizeof(uint64_t));
}

/* Collective; begins with comm_agree of `status`. All ranks receive the same numbers. If names were
 * forged to have equal fingerprints, the numbers can be valid on some ranks but not on others; then
 * all ranks fail. */
static int share_numbers(dcp_checkpoint *ckpt, int status, uint64_t *numbers, bool *moved,
                         dcp_error *err) {
    const size_t n = ckpt->n_tensors, rank = (size_t)ckpt->comm->rank;
    const size_t room = COMM_XOR_SCRATCH(ckpt->comm->size);
    uint64_t *alike = numbers + NUMBERS * n, *gone = alike + READER_DIGEST_WORDS;
    if (reader_checkpoint_is_gone(ckpt)) gone[rank / 64] = 1ULL << rank % 64;
    for (size_t i = rank; i < n && !status; i += (size_t)ckpt->comm->size)
        put_numbers(&ckpt->tensors[i], numbers + NUMBERS * i);
    if (!rank && !status) status = reader_digest_make(ckpt, alike, err);
    status =
        comm_agree_xor(ckpt->comm, status, numbers, NUMBERS * n + READER_DIGEST_WORDS + room, err);
    if (status) return status;
    for (size_t i = 0; i < room; i++) *moved |= gone[i] != 0;
    if (rank) status = reader_digest_check(ckpt, alike, err);
    for (size_t i = 0; i < n && !status; i++)
        status = take_numbers(&ckpt->tensors[i], numbers + NUMBERS * i, err);
    return comm_agree(ckpt->comm, status, err);
}

/* Copies the rows whose home is this rank into the message to each rank. */
static int place_copies(const dcp_checkpoint *ckpt, reader_alltoall *alltoall, dcp_error *err) {
    int status = DCP_OK, size = ckpt->comm->size;
    for (int placing = 0; placing < 2 && !status; placing++) {
        for (size_t i = (size_t)ckpt->comm->rank; i < ckpt->n_tensors; i += (size_t)size)
            for (size_t k = 0; k < ckpt->tensors[i].n_datasets; k++) {
                const uint64_t *row = ckpt->tensors[i].rows[k];
                reader_packed p;
                reader_packed_decode(ckpt, row, &p);
                for (int r = 0; r < size; r++)
                    if (placing)
                        memcpy(reader_alltoall_reserve(alltoall, r, p.words), row, 8 * p.words);
                    else
                        reader_alltoall_count(alltoall, r, p.words);
            }
        if (!placing) status = reader_alltoall_allocate(alltoall, err);
    }
    return status;
}

static int take_copies(dcp_checkpoint *ckpt, reader_alltoall *alltoall, dcp_error *err) {
    size_t *first = NULL;
    free(ckpt->packed);
    free(ckpt->in_order);
    ckpt->in_order = NULL;
    int status = keep_rows(ckpt, alltoall, &first, err);
    for (size_t i = 0; i < ckpt->n_tensors && !status; i++) {
        ckpt->tensors[i].rows = ckpt->in_order + first[i];
        if (first[i + 1] - first[i] != ckpt->tensors[i].n_datasets)
            status = core_fail(err, DCP_ERR_MISMATCH,
                               "tensor %s: its home sent more or fewer rows than it has datasets",
                               ckpt->tensors[i].tensor.path);
    }
    free(first);
    return status;
}

/* Collective. Copies all rows to each rank. */
static int copy_rows(dcp_checkpoint *ckpt, dcp_error *err) {
    reader_alltoall alltoall;
    int status = reader_alltoall_make(&alltoall, ckpt->comm, err);
    if (!status) status = place_copies(ckpt, &alltoall, err);
    status = reader_alltoall_run(&alltoall, status, err);
    if (!status) {
        status = comm_agree(ckpt->comm, take_copies(ckpt, &alltoall, err), err);
        ckpt->rows = READER_ROWS_COPIED;
    }
    reader_alltoall_free(&alltoall);
    return status;
}

/* Collective; called when the tensors are known. `own_status` is this rank's status. */
static int share_rows(reader_own_files *own, int own_status, bool *moved, dcp_error *err) {
    dcp_checkpoint *ckpt = own->ckpt;
    uint64_t *numbers = NULL;
    int status = own_status;
    if (!status && !(numbers = room_for_numbers(ckpt)))
        status = core_fail_memory(err, 8 * NUMBERS * ckpt->n_tensors);
    status = send_rows_home(own, status, &own_status, err);
    if (!status) status = share_numbers(ckpt, own_status, numbers, moved, err);
    free(numbers);
    return status;
}

int reader_homes_open(dcp_checkpoint *ckpt, int status, bool *moved, dcp_error *err) {
    reader_own_files own = {.ckpt = ckpt,
                            .first = SIZE_MAX,
                            .stop =
                                comm_stop_of(ckpt->comm, "opening the step", "nothing is read")};
    int own_status = DCP_OK;
    ckpt->rows = READER_ROWS_AT_HOMES;
    if (!status) status = read_own_files(&own, err);
    status = reader_union_make(&own, status, &own_status, err);
    if (!status) status = share_rows(&own, own_status, moved, err);
    if (!status && ckpt->scattered && ckpt->copies_rows) status = copy_rows(ckpt, err);
    reader_names_free(&own.names);
    free(own.rows.data);
    return status;
}
