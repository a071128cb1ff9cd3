/* The stages forwards. A block reads its residual stream from block_run.in and leaves the next in
 * the following block's. */
#include "models/decoder.h"

void decoder_product(model_run *run, float *c, const float *a, const float *b, size_t m, size_t n,
                     size_t depth, unsigned flags) {
    run->k->matmul(run->k, c, a, b, m, n, depth, flags);
    if (run->poll) run->poll(run->poll_ctx);
}

/* y[n,rows] = (or +=) x[n,cols] weight[rows,cols]^T */
static void project(model_run *run, float *y, const float *x, const float *weight, size_t rows,
                    size_t cols, unsigned add) {
    decoder_product(run, y, x, weight, run->tokens, rows, cols, KERNELS_TRANSPOSE_B | add);
}

void decoder_norm(model_run *run, float *out, const float *in, const float *weight) {
    run->k->rmsnorm_forward(run->k, out, run->rstd, in, weight, run->tokens, run->m->c.hidden,
                            (float)run->m->c.norm_eps);
}

static void rotate(model_run *run, float *out, const float *in, float *rstd, const float *weight,
                   size_t heads) {
    kernels *k = run->k;
    const decoder_config *c = &run->m->c;
    if (c->qk_norm)
        k->rmsnorm_forward(k, out, rstd, in, weight, run->tokens * heads, c->head_dim,
                           (float)c->norm_eps);
    else
        k->copy(k, out, in, run->tokens * heads * c->head_dim);
    k->rope(k, out, run->cosines, run->sines, run->batch, run->sequence, heads, c->head_dim, 1.0f);
}

void decoder_rotate(model_run *run, const block_run *b, const float *const *params) {
    const decoder_config *c = &run->m->c;
    const float *q_norm = c->qk_norm ? params[BLOCK_Q_NORM] : NULL;
    const float *k_norm = c->qk_norm ? params[BLOCK_K_NORM] : NULL;
    rotate(run, run->attention.q, b->q, run->q_rstd, q_norm, c->heads);
    rotate(run, run->attention.key, b->key, run->k_rstd, k_norm, c->kv_heads);
}

void decoder_activate(model_run *run, const block_run *b) {
    run->k->swiglu_forward(run->k, run->mlp, b->gate, b->up, run->tokens * run->m->c.intermediate);
}

static void attend(model_run *run, block_run *b, const float *const *params) {
    const model *m = run->m;
    size_t hidden = m->c.hidden, q = decoder_q_dim(m), kv = decoder_kv_dim(m);
    decoder_norm(run, run->normed, b->in, params[BLOCK_INPUT_NORM]);
    project(run, b->q, run->normed, params[BLOCK_Q], q, hidden, 0);
    project(run, b->key, run->normed, params[BLOCK_K], kv, hidden, 0);
    project(run, b->value, run->normed, params[BLOCK_V], kv, hidden, 0);
    decoder_rotate(run, b, params);
    kernels_attention shape = decoder_attention_shape(m, run->batch, run->sequence);
    run->k->attention_forward(run->k, &shape, b->attended, b->lse, run->attention.q,
                              run->attention.key, b->value, run->attention.scratch);
    run->k->copy(run->k, b->middle, b->in, run->tokens * hidden);
    project(run, b->middle, b->attended, params[BLOCK_O], hidden, q, KERNELS_ADD);
}

static void feed_forward(model_run *run, block_run *b, float *out, const float *const *params) {
    size_t hidden = run->m->c.hidden, inner = run->m->c.intermediate;
    decoder_norm(run, run->normed, b->middle, params[BLOCK_POST_NORM]);
    project(run, b->gate, run->normed, params[BLOCK_GATE], inner, hidden, 0);
    project(run, b->up, run->normed, params[BLOCK_UP], inner, hidden, 0);
    decoder_activate(run, b);
    run->k->copy(run->k, out, b->middle, run->tokens * hidden);
    project(run, out, run->mlp, params[BLOCK_DOWN], hidden, inner, KERNELS_ADD);
}

static void head(model_run *run, const float *const *params) {
    const decoder_config *c = &run->m->c;
    decoder_norm(run, run->normed, run->last, params[ROOT_NORM]);
    project(run, run->logits, run->normed, params[decoder_head_place(run->m)], c->vocab, c->hidden,
            0);
    run->k->cross_entropy_forward(run->k, run->losses, run->logits_lse, run->logits, run->targets,
                                  run->tokens, c->vocab);
    double sum = 0.0;
    for (size_t i = 0; i < run->tokens; i++) sum += run->losses[i];
    run->loss = sum * (double)run->scale;
}

void model_forward(model_run *run, size_t stage, const float *const *params) {
    size_t layers = run->m->c.layers;
    if (stage == 0) {
        run->k->embedding_forward(run->k, run->blocks[0].in, params[ROOT_EMBED], run->ids,
                                  run->tokens, run->m->c.hidden);
    } else if (stage <= layers) {
        block_run *b = &run->blocks[stage - 1];
        attend(run, b, params);
        feed_forward(run, b, stage < layers ? b[1].in : run->last, params);
    } else {
        head(run, params);
    }
}
