/* All ranks have the fingerprints of all tensors. So each rank can find the changed tensors without
 * communication, with the same result; rank 0 logs the result.
 *
 * The first save after a restart makes the history from the tables of the loaded step, as if this
 * store had saved that step. So a frozen tensor is not written again. If the tables are unusable,
 * nothing is shared; that is not an error. */
#include "save/history.h"

#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "format/folder.h"
#include "format/tables.h"
#include "move/engine.h"
#include "save/plan.h"
#include "save/request.h"

/* Returns how many files of a step this rank writes, alone or with others. */
static size_t count_files(const dcp_comm *comm, const save_request *r) {
    if (r->layout == DCP_LAYOUT_GLOBAL) return 1;
    return (size_t)(r->shards / comm->size + (comm->rank < r->shards % comm->size));
}

int save_history_make(const dcp_store *store, const save_request *r, const save_plan *plan,
                      struct save_history **out, dcp_error *err) {
    struct save_history *h = calloc(1, sizeof *h);
    if (!h) return core_fail_memory(err, sizeof *h);
    *h = (struct save_history){.step = r->step,
                               .tensors = plan->tensors,
                               .n = r->n,
                               .layout = r->layout,
                               .shards = r->shards,
                               .n_files = count_files(store->comm, r)};
    h->prints = calloc(r->n + 1, sizeof *h->prints);
    h->files = calloc(h->n_files + 1, sizeof *h->files);
    if (!h->prints || !h->files) {
        save_history_free(h);
        return core_fail_memory(err, r->n * sizeof *h->prints);
    }
    *out = h;
    return DCP_OK;
}

void save_history_free(struct save_history *history) {
    if (!history) return;
    for (size_t i = 0; history->files && i < history->n_files; i++) {
        free(history->files[i].age);
        free(history->files[i].steady);
        free(history->files[i].sums);
    }
    free(history->files);
    free(history->prints);
    free(history);
}

void save_history_record(struct save_history *now, const save_request *r, const uint64_t *sums) {
    for (size_t i = 0; i < r->n; i++) {
        uint64_t blocks = format_index_blocks(r->sorted[i]->bytes);
        now->prints[i] = core_crc64_raw(~0ULL, sums, blocks * sizeof *sums);
        sums += blocks;
    }
}

void save_history_compare(const dcp_store *store, const struct save_history *last,
                          const struct save_history *now, const save_request *r,
                          dcp_report *report) {
    if (!last || last->tensors != now->tensors || last->n != now->n) return;
    core_section_changes changes = {0};
    for (size_t i = 0; i < r->n; i++) {
        if (!r->sorted[i]->bytes) continue;
        const core_section section = core_section_of(r->sorted[i]->tensor.path);
        const bool is_unchanged = last->prints[i] == now->prints[i];
        (is_unchanged ? changes.unchanged : changes.changed)[section]++;
        report->unchanged += is_unchanged;
    }
    if (store->comm->rank != 0 || last->step >= now->step) return;
    char complaint[512];
    core_section_diagnose(&changes, now->step, last->step, complaint, sizeof complaint);
    if (complaint[0]) store_log(store, DCP_LOG_WARNING, "%s", complaint);
}

uint64_t save_history_rows(const format_row *rows, size_t n) {
    uint64_t raw = ~0ULL;
    for (size_t i = 0; i < n; i++) {
        raw = core_crc64_raw(raw, rows[i].tensor.path, strlen(rows[i].tensor.path) + 1);
        raw = core_crc64_raw(raw, (uint64_t[]){rows[i].offset, rows[i].bytes}, 16);
    }
    return raw;
}

/* Allocates `n` rows, all of them steady, and `blocks` checksums. Returns false if memory is
 * short. */
static bool make_record(save_file_record *f, uint64_t rows, size_t n, uint64_t blocks) {
    f->age = calloc(n + 1, 1);
    f->steady = malloc(n + 1);
    f->sums = calloc(blocks + 1, sizeof *f->sums);
    if (!f->age || !f->steady || !f->sums) return false;
    for (size_t i = 0; i < n; i++) f->steady[i] = 1;
    f->rows = rows;
    f->n = n;
    return true;
}

static void fill_record(save_file_record *f, const format_file *file) {
    for (size_t i = 0; i < f->n; i++) {
        const format_row *row = &file->rows[i];
        for (uint64_t b = 0; b < format_index_blocks(row->bytes); b++)
            f->sums[row->first_block + b] = core_crc64_unfinish(
                file->crcs[row->first_block + b], format_index_block_bytes(row->bytes, b));
    }
}

/* Reads a file's record from its tables, and returns the number of blocks. On failure returns 0,
 * and the record has no rows. */
static uint64_t read_record(save_file_record *f, const dcp_store *store, const save_request *r,
                            uint64_t step, size_t number) {
    char folder[PATH_MAX];
    format_file file = format_file_of(NULL);
    if (!format_name_path(store->dir, "", step, folder, NULL))
        file.path = format_folder_path(folder, r->layout, number, (size_t)r->shards);
    uint64_t blocks = 0;
    if (file.path && !format_tables_read(&file, NULL)) {
        blocks = file.ub.blocks.bytes / 8;
        int fd = open(file.path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 &&
            make_record(f, save_history_rows(file.rows, file.ub.rows), file.ub.rows, blocks)) {
            fill_record(f, &file);
            io_identify(fd, f->identity);
        }
        if (fd >= 0) close(fd);
    }
    format_tables_free(&file);
    return f->n ? blocks : 0;
}

/* Not collective. Rank 0 reads the record of the file of layout global, and sets *serves to 1 if
 * that file is laid out like the new one, otherwise to 0. The other ranks allocate memory for the
 * checksums that rank 0 will send. */
static int read_global(const dcp_store *store, const save_request *r, const save_plan *plan,
                       struct save_history *h, uint64_t *serves, dcp_error *err) {
    const save_file *file = &plan->file;
    const uint64_t rows = save_history_rows(file->rows, file->n);
    save_file_record *f = &h->files[0];
    *serves = 1;
    if (store->comm->rank)
        return make_record(f, rows, file->n, file->blocks)
                   ? DCP_OK
                   : core_fail_memory(err, file->blocks * 8);
    const uint64_t blocks = read_record(f, store, r, h->step, 0);
    *serves = f->n == file->n && f->rows == rows && blocks == file->blocks;
    return DCP_OK;
}

/* Not collective. */
static int read_history(const dcp_store *store, const save_request *r, const save_plan *plan,
                        struct save_history **out, uint64_t *serves, dcp_error *err) {
    struct save_history *h = NULL;
    int status = save_history_make(store, r, plan, &h, err);
    if (status) return status;
    *out = h;
    *serves = 1;
    h->step = plan->intact;
    h->n = 0; /* tensors are compared only with saves that this process made */
    h->tensors = 0;
    if (r->layout == DCP_LAYOUT_GLOBAL) return read_global(store, r, plan, h, serves, err);
    for (size_t i = 0; i < h->n_files; i++)
        read_record(&h->files[i], store, r, h->step,
                    (size_t)store->comm->rank + i * (size_t)store->comm->size);
    return DCP_OK;
}

int save_history_recall(const dcp_store *store, const save_request *r, const save_plan *plan,
                        struct save_history **out, dcp_error *err) {
    struct save_history *h = NULL;
    uint64_t serves;
    if (!plan->engine->is_by_position || plan->intact == UINT64_MAX) return DCP_OK;
    int status = read_history(store, r, plan, &h, &serves, err);
    status = comm_agree_min(store->comm, status, &serves, 1, err);
    if (!status && serves && r->layout == DCP_LAYOUT_GLOBAL)
        status = comm_broadcast(store->comm, h->files[0].sums,
                                plan->file.blocks * sizeof *h->files[0].sums, 0, err);
    if (status || !serves)
        save_history_free(h);
    else
        *out = h;
    return status;
}

/* Ranks form up to 60 groups. A rank's word consists of the rank's time per MiB (its figure) and
 * the rank's number. The vote keeps the largest word of each group, which is the word of the
 * group's slowest rank. One more word receives the largest number of bytes that any rank wrote. */

#define GROUPS (SAVE_SLOW_WORDS - 1)
#define RANK_BITS 24
#define MOST_FIGURE 1e12 /* leaves RANK_BITS for the rank */
#define MIB 1048576.0
#define LEAST_PART 8 /* ranks that wrote less than 1/8 of a fair share are not compared */
static const double least_ratio = 3, least_s = 0.5;

void save_slow_vote(comm_vote *v, const dcp_comm *comm, double own_s, uint64_t bytes,
                    uint64_t total, uint64_t words[SAVE_SLOW_WORDS]) {
    const uint64_t size = (uint64_t)comm->size, rank = (uint64_t)comm->rank;
    memset(words, 0, SAVE_SLOW_WORDS * sizeof *words);
    comm_vote_max(v, words, SAVE_SLOW_WORDS);
    words[GROUPS] = bytes;
    if (!bytes || own_s <= 0 || bytes < total / size / LEAST_PART) return;
    const uint64_t group = size <= GROUPS ? rank : rank * GROUPS / size;
    double figure = own_s * 1e9 / ((double)bytes / MIB); /* nanoseconds per MiB */
    if (figure > MOST_FIGURE) figure = MOST_FIGURE;
    words[group] = (uint64_t)figure << RANK_BITS | rank;
}

static int compare_words(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

void save_slow_find(const uint64_t words[SAVE_SLOW_WORDS], dcp_report *report) {
    uint64_t slowest[GROUPS];
    size_t n = 0;
    for (size_t i = 0; i < GROUPS; i++)
        if (words[i]) slowest[n++] = words[i];
    if (n < 2) return;
    qsort(slowest, n, sizeof *slowest, compare_words);
    const double each = (double)words[GROUPS] / MIB / 1e9; /* converts ns per MiB to seconds */
    const double most = (double)(slowest[n - 1] >> RANK_BITS) * each,
                 median = (double)(slowest[(n - 1) / 2] >> RANK_BITS) * each;
    if (most < least_ratio * median || most - median < least_s || median <= 0) return;
    report->slow_ratio = most / median;
    report->slow_s = most;
    report->median_s = median;
    report->slow_rank = (int)(slowest[n - 1] & ((1u << RANK_BITS) - 1));
}
