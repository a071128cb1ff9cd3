/* The first save of a store after a restart: what the loaded step holds comes from its tables, as
 * if this store had saved it, so that a frozen tensor is not written anew. Without good tables
 * nothing is shared, which is no failure. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/crc64.h"
#include "core/fail.h"
#include "save/reuse.h"
#include "step/checkpoint.h"
#include "step/files.h"
#include "step/list.h"

/* Room for `n` rows, all of them steady, and `blocks` checksums; 0 where memory is short. */
static int make_record(file_record *f, uint64_t rows, size_t n, uint64_t blocks) {
    f->age = calloc(n + 1, 1);
    f->steady = malloc(n + 1);
    f->sums = calloc(blocks + 1, sizeof *f->sums);
    if (!f->age || !f->steady || !f->sums) return 0;
    for (size_t i = 0; i < n; i++) f->steady[i] = 1;
    f->rows = rows;
    f->n = n;
    return 1;
}

static void fill_record(file_record *f, const step_file *file) {
    for (size_t i = 0; i < f->n; i++) {
        const index_row *row = &file->rows[i];
        for (uint64_t b = 0; b < step_index_blocks(row->bytes); b++)
            f->sums[row->first_block + b] = core_crc64_unfinish(
                file->crcs[row->first_block + b], step_index_block_bytes(row->bytes, b));
    }
}

/* The record of a file as its tables have it; left without rows where that does not work. */
static uint64_t read_record(file_record *f, const dcp_store *store, const save_request *r,
                            uint64_t step, size_t number) {
    char name[64], folder[PATH_MAX];
    step_file file = {.file.fd = -1, .plain = -1};
    step_name_write(name, "", step);
    if (snprintf(folder, sizeof folder, "%s/%s", store->dir, name) < (int)sizeof folder)
        file.path = step_files_path(folder, r->layout, number, (size_t)r->shards);
    uint64_t blocks = 0;
    if (file.path && !step_tables_read(&file, NULL)) {
        blocks = file.ub.blocks.bytes / 8;
        int fd = open(file.path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0 && make_record(f, reuse_rows(file.rows, file.ub.rows), file.ub.rows, blocks)) {
            fill_record(f, &file);
            io_identify(fd, f->identity);
        }
        if (fd >= 0) close(fd);
    }
    step_tables_free(&file);
    return f->n ? blocks : 0;
}

/* Collective: rank 0 reads, all have it. */
static int recall_global(dcp_store *store, const save_request *r, struct save_history *h,
                         dcp_error *err) {
    file_record *f = &h->files[0];
    int reads = store->comm->rank == 0;
    uint64_t head[3] = {0};
    if (reads) head[2] = read_record(f, store, r, h->step, 0);
    if (reads) head[0] = f->rows, head[1] = f->n;
    int status = comm_broadcast(store->comm, head, sizeof head, 0, err);
    if (status || !head[1]) return status;
    int has_room = reads || make_record(f, head[0], head[1], head[2]);
    status = comm_agree(store->comm, has_room ? DCP_OK : core_fail_memory(err, head[2] * 8), err);
    if (status) return status;
    return comm_broadcast(store->comm, f->sums, head[2] * sizeof *f->sums, 0, err);
}

int history_recall(dcp_store *store, const save_request *r, const struct save_layout *plan,
                   dcp_error *err) {
    uint64_t step = store->has_intact ? store->newest_intact : UINT64_MAX;
    uint64_t vote[2] = {step, ~step};
    struct save_history *h = NULL;
    if (store->history || plan->engine == DCP_ENGINE_MPIO) return DCP_OK;
    int status = comm_allreduce(store->comm, vote, 2, DCP_REDUCE_MIN, err);
    if (status || vote[0] != ~vote[1] || step == UINT64_MAX) return status;
    status = comm_agree(store->comm, history_make(store, r, plan, &h, err), err);
    if (status) goto free_history;
    h->step = step;
    h->n = 0; /* tensors are compared with those of this store's own saves */
    h->tensors = 0;
    if (r->layout == DCP_LAYOUT_GLOBAL)
        status = recall_global(store, r, h, err);
    else
        for (size_t i = 0; i < h->n_files; i++)
            read_record(&h->files[i], store, r, step,
                        (size_t)store->comm->rank + i * (size_t)store->comm->size);
    if (status) goto free_history;
    store->history = h;
    store->history_free = history_free;
    return DCP_OK;
free_history:
    history_free(h);
    return status;
}
