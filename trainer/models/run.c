/* The memory of one leaf: laid out twice by the same function, first to learn its size, then for
 * its addresses. Everything lies on 64-byte boundaries. */
#include <inttypes.h>
#include <stdlib.h>

#include "fail.h"
#include "models/decoder.h"

typedef struct arena {
    char *base; /* NULL while only the size is asked for */
    size_t used;
    int overflow;
} arena;

static size_t product(arena *a, size_t x, size_t y) {
    size_t out = 0;
    a->overflow |= __builtin_mul_overflow(x, y, &out);
    return out;
}

static void *take(arena *a, size_t rows, size_t bytes_a_row) {
    size_t bytes = product(a, rows, bytes_a_row), end = 0, at = a->used;
    a->overflow |= __builtin_add_overflow(at, bytes, &end);
    a->overflow |= end > SIZE_MAX - 64;
    a->used = a->overflow ? at : (end + 63) / 64 * 64;
    return a->base ? a->base + at : NULL;
}

static float *floats(arena *a, size_t rows, size_t cols) {
    return take(a, rows, product(a, cols, sizeof(float)));
}

static void lay_out_block(model_run *run, arena *a, block_run *b) {
    const model *m = run->m;
    size_t n = run->tokens, q = decoder_q_dim(m), kv = decoder_kv_dim(m);
    *b = (block_run){.in = floats(a, n, m->c.hidden),
                     .q = floats(a, n, q),
                     .key = floats(a, n, kv),
                     .value = floats(a, n, kv),
                     .attended = floats(a, n, q),
                     .lse = floats(a, n, m->c.heads),
                     .middle = floats(a, n, m->c.hidden),
                     .gate = floats(a, n, m->c.intermediate),
                     .up = floats(a, n, m->c.intermediate)};
}

static void lay_out_attention(model_run *run, arena *a) {
    const model *m = run->m;
    size_t n = run->tokens, q = decoder_q_dim(m), kv = decoder_kv_dim(m);
    kernels_attention shape = decoder_attention_shape(m, run->batch, run->sequence);
    run->attention = (attention_work){.q = floats(a, n, q),
                                      .key = floats(a, n, kv),
                                      .dkey = floats(a, n, kv),
                                      .dvalue = floats(a, n, kv),
                                      .dattended = floats(a, n, q),
                                      .scratch = floats(a, run->k->attention_scratch(&shape), 1)};
}

/* Attention, MLP and head never work at the same time: all begin at the same place. */
static void lay_out_work(model_run *run, arena *a) {
    arena attention = *a, mlp = *a, head = *a;
    lay_out_attention(run, &attention);
    run->mlp = floats(&mlp, run->tokens, run->m->c.intermediate);
    run->logits = floats(&head, run->tokens, run->m->c.vocab);
    const arena *parts[] = {&attention, &mlp, &head};
    for (size_t i = 0; i < 3; i++) {
        a->used = parts[i]->used > a->used ? parts[i]->used : a->used;
        a->overflow |= parts[i]->overflow;
    }
}

static void lay_out(model_run *run, arena *a) {
    const decoder_config *c = &run->m->c;
    size_t n = run->tokens;
    run->cosines = floats(a, run->sequence, c->head_dim / 2);
    run->sines = floats(a, run->sequence, c->head_dim / 2);
    for (size_t layer = 0; layer < c->layers; layer++) lay_out_block(run, a, &run->blocks[layer]);
    run->last = floats(a, n, c->hidden);
    run->dresidual = floats(a, n, c->hidden);
    run->normed = floats(a, n, c->hidden);
    run->dnormed = floats(a, n, c->hidden);
    run->rstd = floats(a, n, 1);
    run->q_rstd = floats(a, n, c->qk_norm ? c->heads : 0);
    run->k_rstd = floats(a, n, c->qk_norm ? c->kv_heads : 0);
    run->logits_lse = floats(a, n, 1);
    run->losses = take(a, n, sizeof(double));
    lay_out_work(run, a);
}

static int check_shape(const model *m, uint64_t batch, uint64_t sequence, dcp_error *err) {
    if (!batch || !sequence || batch > INT32_MAX / sequence)
        return trainer_fail(err, DCP_ERR_ARG,
                            "a micro-batch of %" PRIu64 " x %" PRIu64 " tokens: not in 1..2^31-1",
                            batch, sequence);
    if (sequence > m->c.max_positions)
        return trainer_fail(err, DCP_ERR_ARG,
                            "sequence length %" PRIu64 " is over the model's "
                            "max_position_embeddings %" PRIu64,
                            sequence, m->c.max_positions);
    return DCP_OK;
}

static int allocate(model_run *run, dcp_error *err) {
    run->blocks = calloc(run->m->c.layers, sizeof *run->blocks);
    if (!run->blocks) return trainer_fail_memory(err, run->m->c.layers * sizeof *run->blocks);
    arena size = {0};
    lay_out(run, &size);
    if (size.overflow) return trainer_fail_memory(err, UINT64_MAX);
    run->memory = run->k->alloc(run->k, size.used);
    if (!run->memory)
        return trainer_fail(err, DCP_ERR_NO_MEMORY,
                            "out of memory: %zu bytes of activations for a micro-batch of %zu x "
                            "%zu tokens",
                            size.used, run->batch, run->sequence);
    run->bytes = size.used;
    arena places = {.base = run->memory};
    lay_out(run, &places);
    return DCP_OK;
}

int model_run_create(const model *m, uint64_t batch, uint64_t sequence, model_run **out,
                     dcp_error *err) {
    int status = check_shape(m, batch, sequence, err);
    if (status) return status;
    model_run *run = calloc(1, sizeof *run);
    if (!run) return trainer_fail_memory(err, sizeof *run);
    run->m = m;
    run->k = m->k;
    run->batch = batch;
    run->sequence = sequence;
    run->tokens = batch * sequence;
    status = allocate(run, err);
    if (status) {
        model_run_destroy(run);
        return status;
    }
    kernels_rope_table(run->cosines, run->sines, sequence, m->c.head_dim, m->c.rope_theta);
    *out = run;
    return DCP_OK;
}

void model_run_destroy(model_run *run) {
    if (!run) return;
    run->k->free(run->k, run->memory);
    free(run->blocks);
    free(run);
}

uint64_t model_run_bytes(const model_run *run) { return run->bytes; }

static int check_token(const model_run *run, const char *what, size_t at, int32_t token,
                       dcp_error *err) {
    if (token >= 0 && (uint64_t)token < run->m->c.vocab) return DCP_OK;
    return trainer_fail(err, DCP_ERR_ARG,
                        "%s %" PRId32 " at place %zu of the micro-batch is outside the model's "
                        "vocabulary of %" PRIu64,
                        what, token, at, run->m->c.vocab);
}

int model_run_set_batch(model_run *run, const sample_batch *batch, float scale, dcp_error *err) {
    for (size_t i = 0; i < run->tokens; i++) {
        int status = check_token(run, "token", i, batch->ids[i], err);
        if (!status && batch->targets[i] != SAMPLE_IGNORE)
            status = check_token(run, "target", i, batch->targets[i], err);
        if (status) return status;
    }
    run->ids = batch->ids;
    run->targets = batch->targets;
    run->scale = scale;
    return DCP_OK;
}

void model_run_set_poll(model_run *run, void (*poll)(void *ctx), void *ctx) {
    run->poll = poll;
    run->poll_ctx = ctx;
}

double model_run_loss(const model_run *run) { return run->loss; }
const float *model_run_logits(const model_run *run) { return run->logits; }
