/* Blocks are numbered as in l->sums. Where all rows are on each rank, an all-reduce chooses who
 * sums a block; of shards the tensors' homes do. */
#include "load/proofs.h"

#include <stdlib.h>
#include <string.h>

#include "core/box.h"
#include "core/fail.h"
#include "load/loading.h"
#include "step/joined.h"
#include "step/packed.h"
#include "step/read.h"
#include "step/spread.h"

int load_proofs_are_due(const load_job *l) {
    for (size_t i = 0; i < l->chosen.n; i++)
        if (!l->boxes.exact[i]) return 1;
    return 0;
}

/* How soon it is a rank's turn at a block: the first of those who want something of it sums it. */
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

/* Marks the blocks that the runs touch, from number `first` on; of short runs, one a block is
 * enough. */
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
    const step_known *known = load_known(l, b->tensor);
    const step_dataset *datasets = known->datasets;
    size_t k, end;
    step_join_near(l->chosen.stored[b->tensor], known, &b->box->box, &k, &end);
    for (; k < end; k++) {
        box_copy copy;
        if (step_index_shared(datasets[k].row, &b->box->box, &copy))
            mark_runs(l, &copy, l->first_sum[b->tensor] + datasets[k].known_blocks);
    }
}

static int mark_boxes(const load_job *l, dcp_error *err) {
    const plan_box *b = l->boxes.boxes, *end = b + l->boxes.n;
    int status = DCP_OK;
    for (; b < end && !status; b++) {
        if (l->boxes.exact[b->tensor]) continue;
        status = step_view_open(l->ckpt, load_known(l, b->tensor), err);
        if (!status) mark_box(l, b);
        if (b + 1 == end || b[1].tensor != b->tensor) step_view_close(load_known(l, b->tensor));
    }
    return status;
}

int load_proofs_list(const load_job *l, uint64_t **first, dcp_error *err) {
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

/* A block that a rank wants something of, in messages to its tensor's home. */
typedef struct wanted_block {
    uint64_t tensor, block; /* of the tensor */
    uint64_t own;           /* its number in that rank's l->provers */
} wanted_block;

enum { WANTED_WORDS = sizeof(wanted_block) / 8 };

/* Those that are marked. */
static int place_wanted(const load_job *l, step_spread *spread, dcp_error *err) {
    int status = DCP_OK;
    for (int placing = 0; placing < 2 && !status; placing++) {
        for (size_t i = 0; i < l->chosen.n; i++) {
            const step_known *known = load_known(l, i);
            int home =
                step_checkpoint_home(l->ckpt, (size_t)(l->chosen.stored[i] - l->ckpt->tensors));
            const uint64_t *row = known->rows;
            uint64_t own = l->first_sum[i];
            step_packed p;
            for (size_t k = 0; k < known->n && !l->boxes.exact[i]; k++, row += p.words) {
                step_packed_look(l->ckpt, row, &p);
                for (uint64_t b = 0; b < step_index_blocks(p.bytes); b++) {
                    const wanted_block w = {i, p.first_block + b, own++};
                    if (l->provers[w.own] == UINT64_MAX) continue;
                    if (placing)
                        memcpy(step_spread_place(spread, home, WANTED_WORDS), &w, sizeof w);
                    else
                        step_spread_count(spread, home, WANTED_WORDS);
                }
            }
        }
        if (!placing) status = step_spread_begin(spread, err);
    }
    return status;
}

/* At home: who of those who want a block sums it. */
static int choose_provers(load_job *l, const step_spread *wanted, const uint64_t *first,
                          dcp_error *err) {
    const wanted_block *w = (const wanted_block *)(const void *)wanted->in.data;
    for (uint64_t r = 0; r < (uint64_t)l->comm->size; r++)
        for (uint64_t n = wanted->received[r] / sizeof *w; n > 0; n--, w++) {
            if (w->tensor >= l->chosen.n || !load_is_home(l, w->tensor) ||
                w->block >= l->chosen.stored[w->tensor]->blocks)
                return core_fail(err, DCP_ERR_MISMATCH, "a rank wants a block that is none");
            uint64_t *prover = &l->home_provers[first[w->tensor] + w->block];
            if (!*prover || turn_of_rank(l, r, w->block) < turn_of_rank(l, *prover - 1, w->block))
                *prover = 1 + r;
        }
    return DCP_OK;
}

/* The blocks that each rank sums, by its own numbers. */
static int place_answers(const load_job *l, const step_spread *wanted, const uint64_t *first,
                         step_spread *answers, dcp_error *err) {
    int status = DCP_OK;
    for (int placing = 0; placing < 2 && !status; placing++) {
        const wanted_block *w = (const wanted_block *)(const void *)wanted->in.data;
        for (int r = 0; r < l->comm->size; r++)
            for (uint64_t n = wanted->received[r] / sizeof *w; n > 0; n--, w++) {
                if (l->home_provers[first[w->tensor] + w->block] != 1 + (uint64_t)r) continue;
                if (placing)
                    *step_spread_place(answers, r, 1) = w->own;
                else
                    step_spread_count(answers, r, 1);
            }
        if (!placing) status = step_spread_begin(answers, err);
    }
    return status;
}

static int take_answers(load_job *l, const comm_message *in, dcp_error *err) {
    const uint64_t *own = (const uint64_t *)(const void *)in->data;
    const uint64_t blocks = l->first_sum[l->chosen.n];
    memset(l->provers, 0, blocks * sizeof *l->provers);
    for (uint64_t i = 0; i < in->bytes / 8; i++) {
        if (own[i] >= blocks)
            return core_fail(err, DCP_ERR_MISMATCH, "a rank gives a block that is none");
        l->provers[own[i]] = 1 + (uint64_t)l->comm->rank;
    }
    return DCP_OK;
}

/* Collective, of shards, beginning with comm_agree of `status`: the tensors' homes choose. */
static int agree_at_homes(load_job *l, int status, dcp_error *err) {
    step_spread wanted = {.comm = l->comm}, answers = {.comm = l->comm};
    uint64_t *first = NULL;
    if (!status) status = step_spread_make(&wanted, l->comm, err);
    if (!status) status = step_spread_make(&answers, l->comm, err);
    if (!status) status = load_proofs_list(l, &first, err);
    if (!status && !(l->home_provers = calloc(first[l->chosen.n] + 1, sizeof *first)))
        status = core_fail_memory(err, first[l->chosen.n] * sizeof *first);
    if (!status) status = place_wanted(l, &wanted, err);
    status = step_spread_exchange(&wanted, status, err);
    if (!status) {
        status = choose_provers(l, &wanted, first, err);
        if (!status) status = place_answers(l, &wanted, first, &answers, err);
        status = step_spread_exchange(&answers, status, err);
    }
    if (!status) status = comm_agree(l->comm, take_answers(l, &answers.in, err), err);
    step_spread_free(&wanted);
    step_spread_free(&answers);
    free(first);
    return status;
}

int load_proofs_agree(load_job *l, dcp_error *err) {
    const uint64_t blocks = l->first_sum[l->chosen.n];
    l->provers = malloc((blocks + 1) * sizeof *l->provers);
    int status = comm_agree(l->comm, l->provers ? DCP_OK : core_fail_memory(err, blocks * 8), err);
    if (status) return status;
    for (uint64_t b = 0; b < blocks; b++) l->provers[b] = UINT64_MAX;
    status = mark_boxes(l, err); /* where all rows are here, it can't fail */
    if (l->ckpt->rows != STEP_ROWS_HERE) return agree_at_homes(l, status, err);
    status = comm_allreduce(l->comm, l->provers, blocks, DCP_REDUCE_MIN, err);
    for (uint64_t b = 0; b < blocks && !status; b++) l->provers[b] = prover_of(l, b, l->provers[b]);
    return status;
}

static void add_proof(const step_dataset *p, uint64_t block, uint64_t *sums, move_piece *out) {
    const box_copy copy = {.run_bytes = step_index_block_bytes(p->row->bytes, block),
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
    const step_known *known = load_known(l, tensor);
    size_t n = 0;
    if (l->boxes.exact[tensor]) return 0;
    for (size_t k = 0; k < known->n; k++) {
        const step_dataset *p = &known->datasets[k];
        const uint64_t first = l->first_sum[tensor] + p->known_blocks;
        for (uint64_t b = 0; b < step_index_blocks(p->row->bytes); b++) {
            if (l->provers[first + b] != 1 + (uint64_t)l->comm->rank) continue;
            if (out) add_proof(p, b, l->sums + first, &out[n]);
            n++;
        }
    }
    return n;
}

int load_proofs_compare(const step_dataset *p, const uint64_t *sums, const uint64_t *provers,
                        dcp_error *err) {
    int status = DCP_OK;
    for (uint64_t b = 0; b < step_index_blocks(p->row->bytes) && !status; b++)
        if (provers[b]) status = step_read_compare_sum(p, b, sums[b], err);
    return status;
}
