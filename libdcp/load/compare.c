/* Where all rows are on each rank, sums are joined as the last pieces move (pieces.c). Of shards
 * each rank sends those of the datasets that it has something of to their tensors' homes, which
 * alone have all of a tensor's. */
#include "load/compare.h"

#include <stdlib.h>
#include <string.h>

#include "core/fail.h"
#include "load/loading.h"
#include "load/proofs.h"
#include "step/packed.h"
#include "step/read.h"
#include "step/spread.h"

/* Sums, and who proves which block, of all tensors that are compared here. */
typedef struct compared {
    const uint64_t *first; /* where each tensor's begin */
    const uint64_t *sums, *provers;
} compared;

/* All datasets of a tensor that is at home here. */
static int compare_tensor(load_job *l, size_t tensor, const compared *c, dcp_error *err) {
    const step_tensor *t = l->chosen.stored[tensor];
    const uint64_t *sums = c->sums + c->first[tensor];
    const uint64_t *provers = l->boxes.exact[tensor] ? NULL : c->provers + c->first[tensor];
    const int is_here = l->ckpt->rows == STEP_ROWS_HERE; /* else readers may be finding them */
    step_dataset *expanded = NULL;
    int status =
        is_here ? DCP_OK : step_packed_expand(l->ckpt, t->rows, t->n_datasets, &expanded, err);
    const step_dataset *p = is_here ? t->datasets : expanded;
    for (size_t k = 0; k < t->n_datasets && !status; k++, p++) {
        status = provers ? load_proofs_compare(p, sums, provers, err)
                         : step_read_compare_sums(p, sums, err);
        sums += step_index_blocks(p->row->bytes);
        if (provers) provers += step_index_blocks(p->row->bytes);
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

static int has_sum(const uint64_t *sums, uint64_t n) {
    for (uint64_t b = 0; b < n; b++)
        if (sums[b]) return 1;
    return 0;
}

/* A tensor's rows that are still to be walked, and their blocks' sums. */
typedef struct row_walk {
    const uint64_t *row, *sums;
    size_t left;
} row_walk;

/* Blocks of a tensor one after the other that this rank has something of. */
typedef struct sum_run {
    uint64_t first, blocks; /* the first one's number in the tensor; how many */
    const uint64_t *sums;
} sum_run;

/* 0: there are no more. */
static int next_run(const dcp_checkpoint *ckpt, row_walk *w, sum_run *run) {
    *run = (sum_run){0};
    for (; w->left > 0; w->left--) {
        step_packed p;
        step_packed_look(ckpt, w->row, &p);
        const uint64_t blocks = step_index_blocks(p.bytes);
        const int adds = has_sum(w->sums, blocks);
        if (run->blocks && (!adds || p.first_block != run->first + run->blocks)) break;
        if (adds && !run->blocks) *run = (sum_run){.first = p.first_block, .sums = w->sums};
        if (adds) run->blocks += blocks;
        w->row += p.words;
        w->sums += blocks;
    }
    return run->blocks != 0;
}

/* Of each run: tensor, first block, number of blocks, sums. */
static int place_sums(const load_job *l, step_spread *spread, dcp_error *err) {
    int status = DCP_OK;
    for (int placing = 0; placing < 2 && !status; placing++) {
        for (size_t i = 0; i < l->chosen.n; i++) {
            const step_known *known = load_known(l, i);
            row_walk w = {known->rows, l->sums + l->first_sum[i], known->n};
            size_t number = (size_t)(l->chosen.stored[i] - l->ckpt->tensors);
            int home = step_checkpoint_home(l->ckpt, number);
            for (sum_run run; next_run(l->ckpt, &w, &run);) {
                if (!placing) {
                    step_spread_count(spread, home, 3 + run.blocks);
                    continue;
                }
                uint64_t *at = step_spread_place(spread, home, 3 + run.blocks);
                at[0] = i;
                at[1] = run.first;
                at[2] = run.blocks;
                memcpy(at + 3, run.sums, 8 * run.blocks);
            }
        }
        if (!placing) status = step_spread_begin(spread, err);
    }
    return status;
}

static int add_sums(const load_job *l, const comm_message *in, const uint64_t *first,
                    uint64_t *sums, dcp_error *err) {
    const uint64_t *at = (const uint64_t *)(const void *)in->data, *end = at + in->bytes / 8;
    while (at < end) {
        uint64_t left = (uint64_t)(end - at), most;
        int is_right =
            left >= 3 && at[0] < l->chosen.n && load_is_home(l, at[0]) && at[2] <= left - 3;
        most = is_right ? l->chosen.stored[at[0]]->blocks : 0;
        if (!is_right || at[1] > most || at[2] > most - at[1])
            return core_fail(err, DCP_ERR_MISMATCH, "a rank sent sums of no tensor that is here");
        for (uint64_t b = 0; b < at[2]; b++) sums[first[at[0]] + at[1] + b] ^= at[3 + b];
        at += 3 + at[2];
    }
    return DCP_OK;
}

/* Collective, beginning with comm_agree of `status`. *own: what this rank has found. */
static int compare_at_homes(load_job *l, int status, int *own, dcp_error *err) {
    step_spread spread = {.comm = l->comm};
    uint64_t *first = NULL, *sums = NULL;
    if (!status) status = step_spread_make(&spread, l->comm, err);
    if (!status) status = load_proofs_list(l, &first, err);
    if (!status && !(sums = calloc(first[l->chosen.n] + 1, sizeof *sums)))
        status = core_fail_memory(err, first[l->chosen.n] * sizeof *sums);
    if (!status) status = place_sums(l, &spread, err);
    status = step_spread_exchange(&spread, status, err);
    if (!status) *own = add_sums(l, &spread.in, first, sums, err);
    if (!status && !*own) *own = compare_all(l, &(compared){first, sums, l->home_provers}, err);
    step_spread_free(&spread);
    free(first);
    free(sums);
    return status;
}

int load_compare_sums(load_job *l, int status, dcp_error *err) {
    int own = DCP_OK;
    if (l->ckpt->rows != STEP_ROWS_HERE)
        status = compare_at_homes(l, status, &own, err);
    else if (!status)
        own = compare_all(l, &(compared){l->first_sum, l->sums, l->provers}, err);
    return status ? status : comm_agree(l->comm, own, err);
}
