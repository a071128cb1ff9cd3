/* Plans and computes checksums as a save does, but writes no file. Each box that this rank keeps is
 * read once, as if it were a separate dataset, and contributes to the checksums of the whole
 * tensor. */
#include "dcp/prove.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "core/bytes.h"
#include "core/checks.h"
#include "core/fail.h"
#include "device/staging.h"
#include "move/transfer.h"
#include "plan/agreement.h"
#include "save/plan.h"

struct dcp_proof {
    dcp_tensor *tensors;
    size_t n;
    uint64_t *crcs; /* one per tensor */
    char *paths;
    uint64_t id;
};

typedef struct prover {
    dcp_comm *comm;
    const dcp_prove_options *options;
    state_tensor **sorted;
    size_t n;
    plan_boxes boxes;
    save_replicas *replicas; /* NULL: replicas are not compared */
    move_device device;
    move_progress progress;
    move_piece *pieces; /* for the boxes that this rank keeps */
    format_row *rows;   /* one per piece */
    move_global *global;
    size_t n_pieces;
    /* checksums of the blocks of whole tensors, each tensor's first block, and the number of
     * blocks */
    uint64_t *sums, *first, blocks;
} prover;

static int make_tensor_sums(prover *p, dcp_error *err) {
    p->first = calloc(p->n + 1, sizeof *p->first);
    if (!p->first) return core_fail_memory(err, p->n * sizeof *p->first);
    for (size_t i = 0; i < p->n; i++) {
        p->first[i] = p->blocks;
        p->blocks += format_index_blocks(p->sorted[i]->bytes);
    }
    p->sums = calloc(p->blocks + 1, sizeof *p->sums);
    return p->sums ? DCP_OK : core_fail_memory(err, p->blocks * sizeof *p->sums);
}

/* Adds a piece for box k at `address`. Pieces lie one after the other, as if in a file. */
static void add_kept(prover *p, size_t k, uint64_t address) {
    const plan_box *b = &p->boxes.boxes[k];
    const state_tensor *t = p->sorted[b->tensor];
    const dcp_box whole = dcp_box_whole(&t->tensor);
    const uint64_t size = dcp_dtype_bytes(t->tensor.dtype);
    const box_copy dense = {.run_bytes = dcp_box_elems(&b->box->box, t->tensor.ndim) * size,
                            .runs = 1};
    move_global *global = &p->global[p->n_pieces];
    format_row *row = &p->rows[p->n_pieces];
    move_piece *piece = &p->pieces[p->n_pieces++];
    *global = (move_global){.bytes = t->bytes, .sums = p->sums + p->first[b->tensor]};
    core_box_copy_between(&global->copy, t->tensor.ndim, size, &whole, &b->box->box);
    *row = (format_row){.tensor = t->tensor, .bytes = dense.run_bytes};
    *piece = (move_piece){.file_offset = address,
                          .bytes = dense.run_bytes,
                          .row = row,
                          .box = b->box,
                          .global = global,
                          .own = save_replicas_own(p->replicas, k)};
    move_piece_set_copy(piece, &dense);
    piece->bulk = 0;
    if (b->box->device) piece->device = &p->device;
}

static int make_kept_pieces(prover *p, dcp_error *err) {
    const size_t n = p->boxes.n;
    uint64_t address = 0;
    p->pieces = calloc(n + 1, sizeof *p->pieces);
    p->rows = calloc(n + 1, sizeof *p->rows);
    p->global = calloc(n + 1, sizeof *p->global);
    if (!p->pieces || !p->rows || !p->global)
        return core_fail_memory(err, n * (sizeof *p->pieces + sizeof *p->rows));
    for (size_t k = 0; k < n; k++) {
        if (!p->boxes.boxes[k].keeper) continue;
        add_kept(p, k, address);
        address += core_round_to_pages(p->pieces[p->n_pieces - 1].bytes);
    }
    return move_pieces_have_copies(p->pieces, p->n_pieces)
               ? DCP_OK
               : core_fail_memory(err, n * sizeof *p->pieces);
}

static bool compares(const prover *p) {
    return p->boxes.has_replicas && p->options->replicas != DCP_REPLICAS_TRUST;
}

/* Reads this rank's boxes. Not collective. */
static int sum_boxes(prover *p, dcp_error *err) {
    int status = make_tensor_sums(p, err);
    if (!status && compares(p))
        status =
            save_replicas_make(p->sorted, &p->boxes, false, p->device.staging, &p->replicas, err);
    if (!status) status = make_kept_pieces(p, err);
    if (status) return status;
    move_device_begin(&p->device, p->pieces, p->n_pieces);
    status = move_progress_poll(&p->progress, err);
    if (!status) status = move_sums(p->pieces, p->n_pieces, &p->progress, err);
    if (!status && p->replicas)
        status = move_sums(p->replicas->pieces, p->replicas->n, &p->progress, err);
    return status;
}

static int compare_replicas(const prover *p, dcp_error *err) {
    dcp_error why;
    uint64_t differ;
    if (!compares(p)) return DCP_OK;
    int status =
        plan_replicas_compare(p->comm, p->sorted, &p->boxes, &p->replicas->sums, &differ, &why);
    if (status == DCP_ERR_MISMATCH && p->options->replicas == DCP_REPLICAS_WARN) {
        if (p->comm->rank == 0 && p->options->log)
            p->options->log(p->options->log_ctx, DCP_LOG_WARNING, why.message);
        return DCP_OK;
    }
    if (status && err) *err = why;
    return status;
}

/* Makes the proof from p->sums, to which all ranks have contributed. Not collective. */
static int make_proof(const prover *p, dcp_proof **out, dcp_error *err) {
    size_t bytes = 1;
    for (size_t i = 0; i < p->n; i++) bytes += strlen(p->sorted[i]->tensor.path) + 1;
    dcp_proof *proof = *out = calloc(1, sizeof *proof);
    if (!proof) return core_fail_memory(err, sizeof *proof);
    proof->tensors = calloc(p->n + 1, sizeof *proof->tensors);
    proof->crcs = calloc(p->n + 1, sizeof *proof->crcs);
    char *path = proof->paths = malloc(bytes);
    if (!proof->tensors || !proof->crcs || !path)
        return core_fail_memory(err, p->n * sizeof *proof->tensors + bytes);
    uint64_t raw = ~0ULL;
    for (size_t i = 0; i < p->n; i++) {
        const state_tensor *t = p->sorted[i];
        proof->tensors[i] = t->tensor;
        proof->tensors[i].path = path;
        path = stpcpy(path, t->tensor.path) + 1;
        proof->crcs[i] = format_index_join_sums(p->sums + p->first[i], t->bytes);
        raw = format_index_state_id(raw, &t->tensor, proof->crcs[i]);
    }
    proof->n = p->n;
    proof->id = ~raw;
    return DCP_OK;
}

/* Collective. */
static int plan_proof(prover *p, int status, const dcp_state *state, dcp_error *err) {
    comm_vote v = {0};
    if (!status && !state) status = core_fail(err, DCP_ERR_ARG, "dcp_prove: a state is needed");
    if (!status) status = move_device_open(&p->device, state, err);
    if (!status) p->n = dcp_state_tensors(state);
    if (!status && !(p->sorted = core_state_sorted(state)))
        status = core_fail_memory(err, p->n * sizeof *p->sorted);
    if (!status)
        status = core_option_check_choice("replicas", (int)p->options->replicas, DCP_REPLICAS_TRUST,
                                          err);
    comm_vote_same(&v, "replicas", p->options->replicas);
    status = comm_vote_run(p->comm, &v, status, err);
    if (!status) status = plan_tensors(p->comm, p->sorted, p->n, err);
    return status ? status : plan_exchange(p->comm, DCP_OK, p->sorted, p->n, true, &p->boxes, err);
}

static void free_prover(prover *p) {
    device_staging_close(p->device.staging);
    save_replicas_free(p->replicas);
    move_pieces_free(p->pieces, p->n_pieces);
    plan_boxes_free(&p->boxes);
    free(p->rows);
    free(p->global);
    free(p->sums);
    free(p->first);
    free(p->sorted);
}

int dcp_prove(dcp_comm *comm, const dcp_state *state, const dcp_prove_options *options,
              dcp_proof **out, dcp_error *err) {
    dcp_prove_options own;
    if (!comm || !out)
        return core_fail(err, DCP_ERR_ARG, "dcp_prove: a communicator and an output are needed");
    prover p = {.comm = comm, .options = &own};
    dcp_proof *proof = NULL;
    int status = core_sized_copy_in(&own, sizeof own, options, "DCP_PROVE_OPTIONS_INIT", err);
    p.progress = (move_progress){.total = 1, /* never reached, because a proof reports only reads */
                                 .stop = {.should_stop = own.stop,
                                          .ctx = own.stop_ctx,
                                          .what = "the proof",
                                          .outcome = "nothing is proven"}};
    status = plan_proof(&p, status, state, err);
    if (!status) comm_stop_begin(&p.progress.stop, comm);
    if (!status) status = comm_agree(comm, sum_boxes(&p, err), err);
    if (!status) status = compare_replicas(&p, err);
    if (!status) status = comm_allreduce(comm, p.sums, p.blocks, DCP_REDUCE_XOR, err);
    if (!status) status = comm_agree(comm, make_proof(&p, &proof, err), err);
    free_prover(&p);
    if (status)
        dcp_proof_destroy(proof);
    else
        *out = proof;
    return status;
}

void dcp_proof_destroy(dcp_proof *proof) {
    if (!proof) return;
    free(proof->tensors);
    free(proof->crcs);
    free(proof->paths);
    free(proof);
}

uint64_t dcp_proof_id(const dcp_proof *proof) { return proof ? proof->id : 0; }

size_t dcp_proof_tensors(const dcp_proof *proof) { return proof ? proof->n : 0; }

const dcp_tensor *dcp_proof_tensor(const dcp_proof *proof, size_t i) {
    return i < dcp_proof_tensors(proof) ? &proof->tensors[i] : NULL;
}

uint64_t dcp_proof_crc(const dcp_proof *proof, size_t i) {
    return i < dcp_proof_tensors(proof) ? proof->crcs[i] : 0;
}
