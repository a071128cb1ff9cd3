/* The transformer block, norms first: x + attention(norm(x)), then x + mlp(norm(x)). It reads its
 * input from one stream and writes its output to the next block's stream. In the backward pass,
 * run->dstream holds the gradient of the stream. Activations that the forward pass did not store
 * are computed again. Gradients replace activations that are no longer needed, so each forward pass
 * of a block allows only one backward pass. */
#include <stdbool.h>

#include "models/layers.h"
#include "models/parts.h"

static kernels_attention attention_shape(const model_run *run, size_t layer) {
    const model_config *c = &run->m->c;
    return (kernels_attention){.batch = run->batch,
                               .sequence = run->length,
                               .heads = c->heads,
                               .kv_heads = c->kv_heads,
                               .head_dim = c->head_dim,
                               .causal = c->causal,
                               .type = model_heads_type(run->m),
                               .operands = run->m->type,
                               .window = model_window(run->m, layer),
                               .past = run->cache.past,
                               .places = model_places(run)};
}

static bool is_fused(const model_run *run) { return run->m->block.qkv.out > 0; }
static bool is_gated(const model_run *run) { return run->m->block.gate.out > 0; }

static void block_keep(model_run *run, arena *a, size_t layer) {
    const model *m = run->m;
    const size_t n = run->rows, q = model_q_dim(m), kv = model_kv_dim(m);
    const size_t inner = m->c.intermediate;
    const kernels_type heads = model_heads_type(m), type = model_inner_type(m);
    run->blocks[layer] =
        (block_run){.q = model_arena_typed(a, n, q, heads),
                    .key = model_arena_typed(a, n, kv, heads),
                    .value = model_arena_typed(a, n, kv, heads),
                    .attended = model_arena_typed(a, n, q, heads),
                    .lse = model_arena_floats(a, n, m->c.heads),
                    .middle = model_arena_floats(a, n, m->c.hidden),
                    .gate = model_arena_typed(a, is_gated(run) ? n : 0, inner, type),
                    .up = model_arena_typed(a, n, inner, type)};
}

/* Lays out the memory in which a block works. Attention and MLP never work at the same time, so
 * both use the same memory. */
static void block_work(model_run *run, arena *a) {
    const model *m = run->m;
    const size_t n = run->rows, q = model_q_dim(m), kv = model_kv_dim(m);
    kernels_attention shape = attention_shape(run, 0);
    const kernels_type type = model_heads_type(m);
    arena attention = *a, mlp = *a;
    shape.window = 0; /* a layer without a window needs the most memory */
    shape.past = model_positions(run) - run->length;
    run->attention = (attention_work){
        .fused = model_arena_floats(&attention, is_fused(run) ? n : 0, q + 2 * kv),
        .q = model_arena_typed(&attention, n, q, type),
        .key = model_arena_typed(&attention, n, kv, type),
        .dkey = model_arena_floats(&attention, n, kv),
        .dvalue = model_arena_typed(&attention, n, kv, type),
        .dattended = model_arena_typed(&attention, n, q, type),
        .scratch = model_arena_floats(&attention, run->k->attention_scratch(&shape), 1)};
    run->mlp = model_arena_typed(&mlp, n, m->c.intermediate, model_inner_type(m));
    run->attention.dq =
        type == KERNELS_F32 ? run->attention.q : model_arena_floats(&attention, n, q);
    model_arena_cover(a, &attention);
    model_arena_cover(a, &mlp);
}

/* out[rows,dim] = columns [at, at + dim) of fused. */
static void take_columns(model_run *run, float *out, size_t at, size_t dim) {
    run->k->copy_rows(run->k, out, dim, run->attention.fused + at, run->m->block.qkv.out, run->rows,
                      dim, 0);
}

static void put_columns(model_run *run, const float *in, size_t at, size_t dim) {
    run->k->copy_rows(run->k, run->attention.fused + at, run->m->block.qkv.out, in, dim, run->rows,
                      dim, 0);
}

static operand normed_operand(model_run *run) {
    return model_operand_typed(run, run->m->type, run->in, run->normed,
                               run->rows * run->m->c.hidden);
}

/* An array between the MLP's products. If products are in bf16 but the array is fp32, it is rounded
 * into `to`. */
static operand inner_operand(model_run *run, uint16_t *to, const void *x) {
    return model_operand_typed(run, model_inner_type(run->m), to, x,
                               run->rows * run->m->c.intermediate);
}

static unsigned inner_flags(const model_run *run) {
    return model_operand_flags(model_inner_type(run->m));
}

/* Like inner_operand, for an array of heads, which has `dim` columns. */
static operand heads_operand(model_run *run, uint16_t *to, const void *x, size_t dim) {
    return model_operand_typed(run, model_heads_type(run->m), to, x, run->rows * dim);
}

static unsigned heads_flags(const model_run *run) {
    return model_operand_flags(model_heads_type(run->m));
}

/* Computes queries, keys and values from run->normed. */
static void project(model_run *run, block_run *b, const float *const *params) {
    const block_parts *p = &run->m->block;
    const size_t q = model_q_dim(run->m), kv = model_kv_dim(run->m);
    const operand in = normed_operand(run);
    if (!is_fused(run)) {
        model_linear_forward(run, &p->q, b->q, in, run->rows, params, heads_flags(run));
        model_linear_forward(run, &p->k, b->key, in, run->rows, params, heads_flags(run));
        model_linear_forward(run, &p->v, b->value, in, run->rows, params, heads_flags(run));
        return;
    }
    model_linear_forward(run, &p->qkv, run->attention.fused, in, run->rows, params, 0);
    take_columns(run, b->q, 0, q);
    take_columns(run, b->key, q, kv);
    take_columns(run, b->value, q + kv, kv);
}

/* Computes run->dnormed from the gradients in run->attention. */
static void project_backward(model_run *run, const float *const *params, float *const *grads) {
    const block_parts *p = &run->m->block;
    const attention_work *w = &run->attention;
    const size_t n = run->rows, q = model_q_dim(run->m), kv = model_kv_dim(run->m);
    const operand in = normed_operand(run);
    if (!is_fused(run)) {
        model_linear_backward(run, &p->q, run->dnormed, heads_operand(run, run->dout, w->q, q), in,
                              n, params, grads, 0);
        model_linear_backward(run, &p->k, run->dnormed, heads_operand(run, run->dout, w->key, kv),
                              in, n, params, grads, KERNELS_ADD);
        model_linear_backward(run, &p->v, run->dnormed,
                              heads_operand(run, run->dout, w->dvalue, kv), in, n, params, grads,
                              KERNELS_ADD);
        return;
    }
    put_columns(run, w->q, 0, q);
    put_columns(run, w->key, q, kv);
    put_columns(run, w->dvalue, q + kv, kv);
    model_linear_backward(run, &p->qkv, run->dnormed,
                          model_operand_of(run, run->dout, w->fused, n * (q + 2 * kv)), in, n,
                          params, grads, 0);
}

static operand attended_operand(model_run *run, const block_run *b) {
    return heads_operand(run, run->in, b->attended, model_q_dim(run->m));
}

/* The gradient of what a layer added to the stream. */
static operand dstream_operand(const model_run *run) {
    return (operand){.wide = run->dstream,
                     .narrow = run->m->type == KERNELS_BF16 ? run->dstream_rounded : NULL};
}

/* Describes how heads are prepared for attention: normed and rotated if the family does that. */
static kernels_heads heads_of(model_run *run, const norm *n, size_t heads,
                              const float *const *params) {
    const model_config *c = &run->m->c;
    const bool turn = c->rope.theta > 0.0;
    const size_t angles = run->cache.past * (c->head_dim / 2);
    return (kernels_heads){
        .batch = run->batch,
        .sequence = run->length,
        .heads = heads,
        .dim = c->head_dim,
        .type = model_heads_type(run->m),
        .weight = n->dim ? model_operand_rounded(run, 0, params[n->weight], n->dim) : NULL,
        .eps = n->eps,
        .cosines = turn ? run->cosines + angles : NULL,
        .sines = turn ? run->sines + angles : NULL,
        .places = model_places(run)};
}

static void rotate(model_run *run, const norm *n, void *out, const void *in, size_t heads,
                   const float *const *params) {
    const kernels_heads h = heads_of(run, n, heads, params);
    run->k->heads_forward(run->k, &h, out, in);
}

/* Computes `to`, the gradient of the projection `in`, from `d`, the gradient of its normed and
 * rotated heads. */
static void rotate_backward(model_run *run, const norm *n, void *to, const float *d, const void *in,
                            size_t heads, const float *const *params, float *const *grads) {
    const kernels_heads h = heads_of(run, n, heads, params);
    float *wanted = n->dim ? grads[n->weight] : NULL;
    if (to == d && !h.weight && !h.cosines) return;
    run->k->heads_backward(run->k, &h, to, wanted ? wanted : run->unwanted, d, in);
}

static void rotate_both(model_run *run, const block_run *b, const float *const *params) {
    const block_parts *p = &run->m->block;
    const model_config *c = &run->m->c;
    rotate(run, &p->q_norm, run->attention.q, b->q, c->heads, params);
    rotate(run, &p->k_norm, run->attention.key, b->key, c->kv_heads, params);
}

static void attend(model_run *run, size_t layer, const float *const *params) {
    const block_parts *p = &run->m->block;
    const kernels_attention shape = attention_shape(run, layer);
    const float *in = run->stream[layer];
    block_run *b = &run->blocks[layer];
    kernels *k = run->k;
    const kv_rows seen = model_cache_rows(run, layer);
    model_norm_forward(run, &p->attention_norm, run->normed, in, run->rows, params, &run->stats);
    project(run, b, params);
    rotate_both(run, b, params);
    k->attention_forward(k, &shape, b->attended, b->lse, run->attention.q, seen.key, seen.value,
                         run->attention.scratch);
    model_linear_forward_onto(run, &p->o, b->middle, in, attended_operand(run, b), run->rows,
                              params);
}

static void attend_backward(model_run *run, size_t layer, const float *const *params,
                            float *const *grads) {
    const block_parts *p = &run->m->block;
    const model_config *c = &run->m->c;
    const kernels_attention shape = attention_shape(run, layer);
    const float *in = run->stream[layer];
    block_run *b = &run->blocks[layer];
    attention_work *w = &run->attention;
    model_linear_backward(run, &p->o, w->dattended, dstream_operand(run), attended_operand(run, b),
                          run->rows, params, grads, heads_flags(run));
    rotate_both(run, b, params);
    run->k->attention_backward(run->k, &shape, w->dq, w->dkey, w->dvalue, w->dattended, b->attended,
                               b->lse, w->q, w->key, b->value, w->scratch);
    rotate_backward(run, &p->q_norm, w->q, w->dq, b->q, c->heads, params, grads);
    rotate_backward(run, &p->k_norm, w->key, w->dkey, b->key, c->kv_heads, params, grads);
    model_norm_forward(run, &p->attention_norm, run->normed, in, run->rows, params, &run->stats);
    project_backward(run, params, grads);
    model_norm_backward(run, &p->attention_norm, run->dstream, run->dnormed, in, run->rows, params,
                        grads, &run->stats, KERNELS_ADD);
}

/* run->mlp = f(gate) * up, or f(up) */
static void activate(model_run *run, const block_run *b) {
    const model_config *c = &run->m->c;
    const size_t n = run->rows * c->intermediate;
    const kernels_type type = model_inner_type(run->m);
    kernels *k = run->k;
    if (is_gated(run))
        k->gated_forward(k, run->mlp, b->gate, b->up, n, c->activation, type);
    else
        k->activation_forward(k, run->mlp, b->up, n, c->activation, type);
}

/* Computes what the MLP stores for the backward pass, and run->mlp, with a single call if possible.
 * A repeated forward pass does not need run->mlp, but uses the same call, so its bits are the
 * same. */
static void rise(model_run *run, block_run *b, const float *const *params) {
    const block_parts *p = &run->m->block;
    const operand in = normed_operand(run);
    if (!is_gated(run) && model_inner_type(run->m) == KERNELS_F32) {
        model_linear_forward_activated(run, &p->up, b->up, run->mlp, in, run->rows, params);
        return;
    }
    if (is_gated(run))
        model_linear_forward(run, &p->gate, b->gate, in, run->rows, params, inner_flags(run));
    model_linear_forward(run, &p->up, b->up, in, run->rows, params, inner_flags(run));
    if (!run->again) activate(run, b);
}

static void feed_forward(model_run *run, block_run *b, float *out, const float *const *params) {
    const block_parts *p = &run->m->block;
    const size_t n = run->rows;
    model_norm_forward(run, &p->mlp_norm, run->normed, b->middle, n, params, &run->stats);
    rise(run, b, params);
    if (run->again) return;
    model_linear_forward_onto(run, &p->down, out, b->middle, inner_operand(run, run->in, run->mlp),
                              n, params);
}

static void feed_forward_backward(model_run *run, block_run *b, const float *const *params,
                                  float *const *grads) {
    const block_parts *p = &run->m->block;
    const model_config *c = &run->m->c;
    const size_t n = run->rows, inner = n * c->intermediate;
    const kernels_type type = model_inner_type(run->m);
    kernels *k = run->k;
    model_linear_backward_input(run, &p->down, run->mlp, dstream_operand(run), n, params,
                                inner_flags(run));
    if (is_gated(run))
        k->gated_backward(k, run->mlp, b->gate, b->up, run->mlp, b->gate, b->up, inner,
                          c->activation, type);
    else
        k->activation_backward(k, run->mlp, b->up, run->mlp, b->up, inner, c->activation, type);
    model_linear_backward_params(run, &p->down, dstream_operand(run),
                                 inner_operand(run, run->in, run->mlp), n, grads);
    model_norm_forward(run, &p->mlp_norm, run->normed, b->middle, n, params, &run->stats);
    const operand in = normed_operand(run);
    if (is_gated(run))
        model_linear_backward(run, &p->gate, run->dnormed, inner_operand(run, run->dout, b->gate),
                              in, n, params, grads, 0);
    model_linear_backward(run, &p->up, run->dnormed, inner_operand(run, run->dout, b->up), in, n,
                          params, grads, is_gated(run) ? KERNELS_ADD : 0);
    model_norm_backward(run, &p->mlp_norm, run->dstream, run->dnormed, b->middle, n, params, grads,
                        &run->stats, KERNELS_ADD);
}

static void block_forward(model_run *run, size_t layer, const float *const *params) {
    attend(run, layer, params);
    feed_forward(run, &run->blocks[layer], run->stream[layer + 1], params);
}

static void block_backward(model_run *run, size_t layer, const float *const *params,
                           float *const *grads) {
    feed_forward_backward(run, &run->blocks[layer], params, grads);
    attend_backward(run, layer, params, grads);
}

const stage_kind stage_transformer = {
    .keep = block_keep, .work = block_work, .forward = block_forward, .backward = block_backward};
