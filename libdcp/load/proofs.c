/* Blocks are numbered as in l->sums. If each rank has all rows, an all-reduce chooses which rank
 * sums a block; for shards the tensors' homes choose. */
#include "load/proofs.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/box.h"
#include "core/bytes.h"
#include "core/fail.h"
#include "load/loading.h"
#include "reader/checkpoint.h"
#include "reader/lookup.h"
#include "reader/packed.h"
#include "reader/read.h"

bool load_proofs_are_due(const load_job *l) {
    for (size_t i = 0; i < l->chosen.n; i++)
        if (!l->boxes.exact[i]) return true;
    return false;
}

/* Returns how many turns precede the rank's turn at the block. The block is summed by the rank
 * whose turn comes first among the ranks that need some of it. */
static uint64_t turn_of_rank(const load_job *l, uint64_t rank, uint64_t block) {
    uint64_t ranks = (uint64_t)l->comm->size;
    return (rank + ranks - block % ranks) % ranks;
}

static uint64_t turn_of(const load_job *l, uint64_t block) {
    return turn_of_rank(l, (uint64_t)l->comm->rank, block);
}

static uint64_t prover_of(const load_job *l, uint64_t block, uint64_t turn) {
    return turn == UINT64_MAX ? 0 : 1 + (turn + block) % (uint64_t)l->comm->size;
}

/* Marks the blocks that the runs touch; `first` is the number of the dataset's first block. If
 * several short runs lie in one block, only one of them is examined. */
static void mark_runs(const load_job *l, const box_copy *copy, uint64_t first) {
    for (uint64_t i = 0, a, b; i < copy->runs;) {
        core_box_copy_run(copy, i, &a, &b);
        uint64_t last = (a + copy->run_bytes - 1) / BLOCK_BYTES;
        for (uint64_t block = first + a / BLOCK_BYTES; block <= first + last; block++)
            l->provers[block] = turn_of(l, block);
        uint64_t after = core_box_copy_find(copy, (last + 1) * BLOCK_BYTES);
        i = after > i ? after : i + 1;
    }
}

static void mark_box(const load_job *l, const plan_box *b) {
    const reader_datasets *known = load_datasets(l, b->tensor);
    const reader_dataset *datasets = known->datasets;
    size_t k, end;
    reader_join_near(l->chosen.stored[b->tensor], known, &b->box->box, &k, &end);
    for (; k < end; k++) {
        box_copy copy;
        if (format_index_shared(datasets[k].row, &b->box->box, &copy))
            mark_runs(l, &copy, l->first_sum[b->tensor] + datasets[k].known_blocks);
    }
}

static int mark_boxes(const load_job *l, dcp_error *err) {
    const plan_box *b = l->boxes.boxes, *end = b + l->boxes.n;
    int status = DCP_OK;
    for (; b < end && !status; b++) {
        if (l->boxes.exact[b->tensor]) continue;
        status = reader_view_open(l->ckpt, load_datasets(l, b->tensor), err);
        if (!status) mark_box(l, b);
        if (b + 1 == end || b[1].tensor != b->tensor)
            reader_view_close(load_datasets(l, b->tensor));
    }
    return status;
}

/* Numbers the blocks of the selected tensors whose home is this rank. Sets (*first)[i] to the
 * number of tensor i's first block, and the last element to the number of all these blocks. The
 * caller frees *first. */
static int load_proofs_list(const load_job *l, uint64_t **first, dcp_error *err) {
    uint64_t blocks = 0;
    *first = calloc(l->chosen.n + 1, sizeof **first);
    if (!*first) return core_fail_memory(err, l->chosen.n * sizeof **first);
    for (size_t i = 0; i < l->chosen.n; i++) {
        (*first)[i] = blocks;
        if (load_is_home(l, i)) blocks += l->chosen.stored[i]->blocks;
    }
    (*first)[l->chosen.n] = blocks;
    return DCP_OK;
}

/* A block of which a rank needs a part, as it is sent to the tensor's home. */
typedef struct wanted_block {
    uint64_t tensor, block; /* block: its number in the tensor */
    uint64_t own;           /* its index in the sender's l->provers */
} wanted_block;

enum { WANTED_WORDS = sizeof(wanted_block) / 8 };

/* Places the marked blocks into messages to their tensors' homes. */
static int place_wanted(const load_job *l, reader_alltoall *spread, dcp_error *err) {
    int status = DCP_OK;
    for (int placing = 0; placing < 2 && !status; placing++) {
        for (size_t i = 0; i < l->chosen.n; i++) {
            const reader_datasets *known = load_datasets(l, i);
            int home =
                reader_checkpoint_home(l->ckpt, (size_t)(l->chosen.stored[i] - l->ckpt->tensors));
            const uint64_t *row = known->rows;
            uint64_t own = l->first_sum[i];
            reader_packed p;
            for (size_t k = 0; k < known->n && !l->boxes.exact[i]; k++, row += p.words) {
                reader_packed_decode(l->ckpt, row, &p);
                for (uint64_t b = 0; b < format_index_blocks(p.bytes); b++) {
                    const wanted_block w = {i, p.first_block + b, own++};
                    if (l->provers[w.own] == UINT64_MAX) continue;
                    if (placing)
                        memcpy(reader_alltoall_reserve(spread, home, WANTED_WORDS), &w, sizeof w);
                    else
                        reader_alltoall_count(spread, home, WANTED_WORDS);
                }
            }
        }
        if (!placing) status = reader_alltoall_allocate(spread, err);
    }
    return status;
}

/* Called at the homes: chooses which of the ranks that need a block sums it. */
static int choose_provers(load_job *l, const reader_alltoall *wanted, const uint64_t *first,
                          dcp_error *err) {
    const wanted_block *w = (const wanted_block *)(const void *)wanted->in.data;
    for (uint64_t r = 0; r < (uint64_t)l->comm->size; r++)
        for (uint64_t n = wanted->received[r] / sizeof *w; n > 0; n--, w++) {
            if (w->tensor >= l->chosen.n || !load_is_home(l, w->tensor) ||
                w->block >= l->chosen.stored[w->tensor]->blocks)
                return core_fail(err, DCP_ERR_MISMATCH,
                                 "a rank requests a block that does not exist");
            uint64_t *prover = &l->home_provers[first[w->tensor] + w->block];
            if (!*prover || turn_of_rank(l, r, w->block) < turn_of_rank(l, *prover - 1, w->block))
                *prover = 1 + r;
        }
    return DCP_OK;
}

/* Puts the blocks that a rank sums into the answer to that rank, as indices into its l->provers. */
static int place_answers(const load_job *l, const reader_alltoall *wanted, const uint64_t *first,
                         reader_alltoall *answers, dcp_error *err) {
    int status = DCP_OK;
    for (int placing = 0; placing < 2 && !status; placing++) {
        const wanted_block *w = (const wanted_block *)(const void *)wanted->in.data;
        for (int r = 0; r < l->comm->size; r++)
            for (uint64_t n = wanted->received[r] / sizeof *w; n > 0; n--, w++) {
                if (l->home_provers[first[w->tensor] + w->block] != 1 + (uint64_t)r) continue;
                if (placing)
                    *reader_alltoall_reserve(answers, r, 1) = w->own;
                else
                    reader_alltoall_count(answers, r, 1);
            }
        if (!placing) status = reader_alltoall_allocate(answers, err);
    }
    return status;
}

static int take_answers(load_job *l, const comm_buffer *in, dcp_error *err) {
    const uint64_t *own = (const uint64_t *)(const void *)in->data;
    const uint64_t blocks = l->first_sum[l->chosen.n];
    memset(l->provers, 0, blocks * sizeof *l->provers);
    for (uint64_t i = 0; i < in->bytes / 8; i++) {
        if (own[i] >= blocks)
            return core_fail(err, DCP_ERR_MISMATCH, "a rank sends a block that does not exist");
        l->provers[own[i]] = 1 + (uint64_t)l->comm->rank;
    }
    return DCP_OK;
}

/* Used for shards: the tensors' homes choose which rank sums each block. Collective; begins with
 * comm_agree of `status`. */
static int agree_at_homes(load_job *l, int status, dcp_error *err) {
    reader_alltoall wanted = {.comm = l->comm}, answers = {.comm = l->comm};
    uint64_t *first = NULL;
    if (!status) status = reader_alltoall_make(&wanted, l->comm, err);
    if (!status) status = reader_alltoall_make(&answers, l->comm, err);
    if (!status) status = load_proofs_list(l, &first, err);
    if (!status && !(l->home_provers = calloc(first[l->chosen.n] + 1, sizeof *first)))
        status = core_fail_memory(err, first[l->chosen.n] * sizeof *first);
    if (!status) status = place_wanted(l, &wanted, err);
    status = reader_alltoall_run(&wanted, status, err);
    if (!status) {
        status = choose_provers(l, &wanted, first, err);
        if (!status) status = place_answers(l, &wanted, first, &answers, err);
        status = reader_alltoall_run(&answers, status, err);
    }
    if (!status) status = comm_agree(l->comm, take_answers(l, &answers.in, err), err);
    reader_alltoall_free(&wanted);
    reader_alltoall_free(&answers);
    free(first);
    return status;
}

int load_proofs_agree(load_job *l, dcp_error *err) {
    const uint64_t blocks = l->first_sum[l->chosen.n];
    l->provers = core_array(blocks + 1, sizeof *l->provers);
    int status = comm_agree(l->comm, l->provers ? DCP_OK : core_fail_memory(err, blocks * 8), err);
    if (status) return status;
    for (uint64_t b = 0; b < blocks; b++) l->provers[b] = UINT64_MAX;
    status = mark_boxes(l, err); /* can't fail if all rows are here */
    if (l->ckpt->rows != READER_ROWS_HERE) return agree_at_homes(l, status, err);
    status = comm_allreduce(l->comm, l->provers, blocks, DCP_REDUCE_MIN, err);
    for (uint64_t b = 0; b < blocks && !status; b++) l->provers[b] = prover_of(l, b, l->provers[b]);
    return status;
}

static void add_proof(const reader_dataset *p, uint64_t block, uint64_t *sums, move_piece *out) {
    const box_copy copy = {.run_bytes = format_index_block_bytes(p->row->bytes, block),
                           .runs = 1,
                           .base_a = block * BLOCK_BYTES};
    *out = (move_piece){.file_offset = p->file->base + p->row->offset,
                        .bytes = p->row->bytes,
                        .row = p->row,
                        .sums = sums};
    move_piece_set_copy(out, &copy);
    out->bulk = 0;
}

size_t load_proofs_of(const load_job *l, size_t tensor, move_piece *out) {
    const reader_datasets *known = load_datasets(l, tensor);
    size_t n = 0;
    if (l->boxes.exact[tensor]) return 0;
    for (size_t k = 0; k < known->n; k++) {
        const reader_dataset *p = &known->datasets[k];
        const uint64_t first = l->first_sum[tensor] + p->known_blocks;
        for (uint64_t b = 0; b < format_index_blocks(p->row->bytes); b++) {
            if (l->provers[first + b] != 1 + (uint64_t)l->comm->rank) continue;
            if (out) add_proof(p, b, l->sums + first, &out[n]);
            n++;
        }
    }
    return n;
}

/* Returns DCP_ERR_CORRUPT if one of the dataset's summed blocks differs from the saved one. `sums`
 * and `provers` belong to the dataset's blocks, and are combined over all ranks. */
static int load_proofs_compare(const reader_dataset *p, const uint64_t *sums,
                               const uint64_t *provers, dcp_error *err) {
    int status = DCP_OK;
    for (uint64_t b = 0; b < format_index_blocks(p->row->bytes) && !status; b++)
        if (provers[b]) status = reader_read_compare_sum(p, b, sums[b], err);
    return status;
}

/* If each rank has all rows, the sums are combined while the last pieces move (pieces.c). For
 * shards, each rank sends its sums of a tensor's datasets to the tensor's home, since only the home
 * has all of the tensor's rows. */

/* The sums and the provers of the blocks of all tensors that are compared on this rank. */
typedef struct compared {
    const uint64_t *first; /* [tensor]: where its blocks begin */
    const uint64_t *sums, *provers;
} compared;

/* Compares all datasets of a tensor whose home is this rank. */
static int compare_tensor(load_job *l, size_t tensor, const compared *c, dcp_error *err) {
    const reader_tensor *t = l->chosen.stored[tensor];
    const uint64_t *sums = c->sums + c->first[tensor];
    const uint64_t *provers = l->boxes.exact[tensor] ? NULL : c->provers + c->first[tensor];
    /* t->datasets may be used only if the rows are here: otherwise another thread may be setting it
     * at this moment. */
    const bool is_here = l->ckpt->rows == READER_ROWS_HERE;
    reader_dataset *expanded = NULL;
    int status =
        is_here ? DCP_OK : reader_packed_expand(l->ckpt, t->rows, t->n_datasets, &expanded, err);
    const reader_dataset *p = is_here ? t->datasets : expanded;
    for (size_t k = 0; k < t->n_datasets && !status; k++, p++) {
        status = provers ? load_proofs_compare(p, sums, provers, err)
                         : reader_read_compare_sums(p, sums, err);
        sums += format_index_blocks(p->row->bytes);
        if (provers) provers += format_index_blocks(p->row->bytes);
    }
    free(expanded);
    return status;
}

static int compare_all(load_job *l, const compared *c, dcp_error *err) {
    int status = DCP_OK;
    for (size_t i = 0; i < l->chosen.n && !status; i++)
        if (load_is_home(l, i)) status = compare_tensor(l, i, c, err);
    return status;
}

static bool has_sum(const uint64_t *sums, uint64_t n) {
    for (uint64_t b = 0; b < n; b++)
        if (sums[b]) return true;
    return false;
}

/* The rows of a tensor that remain to be walked, and the sums of their blocks. */
typedef struct row_walk {
    const uint64_t *row, *sums;
    size_t left;
} row_walk;

/* Consecutive blocks of a tensor for which this rank has sums. */
typedef struct sum_run {
    uint64_t first, blocks; /* the first block's number in the tensor; how many */
    const uint64_t *sums;
} sum_run;

/* Finds the next run. Returns false if there are no more. */
static bool next_run(const dcp_checkpoint *ckpt, row_walk *w, sum_run *run) {
    *run = (sum_run){0};
    for (; w->left > 0; w->left--) {
        reader_packed p;
        reader_packed_decode(ckpt, w->row, &p);
        const uint64_t blocks = format_index_blocks(p.bytes);
        const bool adds = has_sum(w->sums, blocks);
        if (run->blocks && (!adds || p.first_block != run->first + run->blocks)) break;
        if (adds && !run->blocks) *run = (sum_run){.first = p.first_block, .sums = w->sums};
        if (adds) run->blocks += blocks;
        w->row += p.words;
        w->sums += blocks;
    }
    return run->blocks != 0;
}

/* Places each run into the message to the tensor's home: tensor, first block, number of blocks,
 * sums. */
static int place_sums(const load_job *l, reader_alltoall *spread, dcp_error *err) {
    int status = DCP_OK;
    for (int placing = 0; placing < 2 && !status; placing++) {
        for (size_t i = 0; i < l->chosen.n; i++) {
            const reader_datasets *known = load_datasets(l, i);
            row_walk w = {known->rows, l->sums + l->first_sum[i], known->n};
            size_t number = (size_t)(l->chosen.stored[i] - l->ckpt->tensors);
            int home = reader_checkpoint_home(l->ckpt, number);
            for (sum_run run; next_run(l->ckpt, &w, &run);) {
                if (!placing) {
                    reader_alltoall_count(spread, home, 3 + run.blocks);
                    continue;
                }
                uint64_t *at = reader_alltoall_reserve(spread, home, 3 + run.blocks);
                at[0] = i;
                at[1] = run.first;
                at[2] = run.blocks;
                memcpy(at + 3, run.sums, 8 * run.blocks);
            }
        }
        if (!placing) status = reader_alltoall_allocate(spread, err);
    }
    return status;
}

static int add_sums(const load_job *l, const comm_buffer *in, const uint64_t *first, uint64_t *sums,
                    dcp_error *err) {
    const uint64_t *at = (const uint64_t *)(const void *)in->data, *end = at + in->bytes / 8;
    while (at < end) {
        uint64_t left = (uint64_t)(end - at), most;
        bool is_right =
            left >= 3 && at[0] < l->chosen.n && load_is_home(l, at[0]) && at[2] <= left - 3;
        most = is_right ? l->chosen.stored[at[0]]->blocks : 0;
        if (!is_right || at[1] > most || at[2] > most - at[1])
            return core_fail(err, DCP_ERR_MISMATCH,
                             "a rank sent invalid sums, or sums of a tensor with another home");
        for (uint64_t b = 0; b < at[2]; b++) sums[first[at[0]] + at[1] + b] ^= at[3 + b];
        at += 3 + at[2];
    }
    return DCP_OK;
}

/* Collective; begins with comm_agree of `status`. Sets *own to the result of this rank's own
 * comparison. */
static int compare_at_homes(load_job *l, int status, int *own, dcp_error *err) {
    reader_alltoall spread = {.comm = l->comm};
    uint64_t *first = NULL, *sums = NULL;
    if (!status) status = reader_alltoall_make(&spread, l->comm, err);
    if (!status) status = load_proofs_list(l, &first, err);
    if (!status && !(sums = calloc(first[l->chosen.n] + 1, sizeof *sums)))
        status = core_fail_memory(err, first[l->chosen.n] * sizeof *sums);
    if (!status) status = place_sums(l, &spread, err);
    status = reader_alltoall_run(&spread, status, err);
    if (!status) *own = add_sums(l, &spread.in, first, sums, err);
    if (!status && !*own) *own = compare_all(l, &(compared){first, sums, l->home_provers}, err);
    reader_alltoall_free(&spread);
    free(first);
    free(sums);
    return status;
}

int load_compare_sums(load_job *l, int status, dcp_error *err) {
    int own = DCP_OK;
    if (l->ckpt->rows != READER_ROWS_HERE)
        status = compare_at_homes(l, status, &own, err);
    else if (!status)
        own = compare_all(l, &(compared){l->first_sum, l->sums, l->provers}, err);
    return status ? status : comm_agree(l->comm, own, err);
}
