/* The stages backwards. run->dresidual carries the gradient of the residual stream from stage to
 * stage; what the forward did not keep is computed again. Gradients take the place of activations
 * that are no longer needed, so a stage runs backwards once for each forward. */
#include "models/decoder.h"

/* dweight[rows,cols] += dy[n,rows]^T x[n,cols] */
static void weight_gradient(model_run *run, float *dweight, const float *dy, const float *x,
                            size_t rows, size_t cols) {
    decoder_product(run, dweight, dy, x, rows, cols, run->tokens,
                    KERNELS_TRANSPOSE_A | KERNELS_ADD);
}

/* dx[n,cols] = (or +=) dy[n,rows] weight[rows,cols] */
static void input_gradient(model_run *run, float *dx, const float *dy, const float *weight,
                           size_t rows, size_t cols, unsigned add) {
    decoder_product(run, dx, dy, weight, run->tokens, cols, rows, add);
}

/* dx[n,hidden] = (or +=) the gradient of in, from run->dnormed and run->rstd */
static void norm_backward(model_run *run, float *dx, const float *in, const float *weight,
                          float *dweight, unsigned add) {
    run->k->rmsnorm_backward(run->k, dx, dweight, run->dnormed, in, weight, run->rstd, run->tokens,
                             run->m->c.hidden, add);
}

static void feed_forward_backward(model_run *run, block_run *b, const float *const *params,
                                  float *const *grads) {
    size_t hidden = run->m->c.hidden, inner = run->m->c.intermediate;
    decoder_activate(run, b);
    weight_gradient(run, grads[BLOCK_DOWN], run->dresidual, run->mlp, hidden, inner);
    input_gradient(run, run->mlp, run->dresidual, params[BLOCK_DOWN], hidden, inner, 0);
    run->k->swiglu_backward(run->k, b->gate, b->up, run->mlp, b->gate, b->up, run->tokens * inner);
    decoder_norm(run, run->normed, b->middle, params[BLOCK_POST_NORM]);
    weight_gradient(run, grads[BLOCK_GATE], b->gate, run->normed, inner, hidden);
    weight_gradient(run, grads[BLOCK_UP], b->up, run->normed, inner, hidden);
    input_gradient(run, run->dnormed, b->gate, params[BLOCK_GATE], inner, hidden, 0);
    input_gradient(run, run->dnormed, b->up, params[BLOCK_UP], inner, hidden, KERNELS_ADD);
    norm_backward(run, run->dresidual, b->middle, params[BLOCK_POST_NORM], grads[BLOCK_POST_NORM],
                  KERNELS_ADD);
}

/* d, the gradient of rotated (and normed) heads, becomes that of the projection `in`. */
static void rotate_backward(model_run *run, float *d, const float *in, const float *rstd,
                            const float *const *params, float *const *grads, size_t norm,
                            size_t heads) {
    kernels *k = run->k;
    const decoder_config *c = &run->m->c;
    k->rope(k, d, run->cosines, run->sines, run->batch, run->sequence, heads, c->head_dim, -1.0f);
    if (c->qk_norm)
        k->rmsnorm_backward(k, d, grads[norm], d, in, params[norm], rstd, run->tokens * heads,
                            c->head_dim, 0);
}

/* From run->dresidual to the gradients of the projections, in w->q, w->dkey and w->dvalue. */
static void attention_backward(model_run *run, block_run *b, const float *const *params,
                               float *const *grads) {
    const model *m = run->m;
    attention_work *w = &run->attention;
    kernels_attention shape = decoder_attention_shape(m, run->batch, run->sequence);
    weight_gradient(run, grads[BLOCK_O], run->dresidual, b->attended, m->c.hidden,
                    decoder_q_dim(m));
    input_gradient(run, w->dattended, run->dresidual, params[BLOCK_O], m->c.hidden,
                   decoder_q_dim(m), 0);
    decoder_rotate(run, b, params);
    run->k->attention_backward(run->k, &shape, w->q, w->dkey, w->dvalue, w->dattended, b->attended,
                               b->lse, w->q, w->key, b->value, w->scratch);
    rotate_backward(run, w->q, b->q, run->q_rstd, params, grads, BLOCK_Q_NORM, m->c.heads);
    rotate_backward(run, w->dkey, b->key, run->k_rstd, params, grads, BLOCK_K_NORM, m->c.kv_heads);
}

static void attend_backward(model_run *run, block_run *b, const float *const *params,
                            float *const *grads) {
    size_t hidden = run->m->c.hidden;
    const struct {
        size_t place, dim;
        const float *gradient;
    } projections[] = {
        {BLOCK_Q, decoder_q_dim(run->m), run->attention.q},
        {BLOCK_K, decoder_kv_dim(run->m), run->attention.dkey},
        {BLOCK_V, decoder_kv_dim(run->m), run->attention.dvalue},
    };
    attention_backward(run, b, params, grads);
    decoder_norm(run, run->normed, b->in, params[BLOCK_INPUT_NORM]);
    for (size_t i = 0; i < 3; i++) {
        size_t place = projections[i].place, dim = projections[i].dim;
        weight_gradient(run, grads[place], projections[i].gradient, run->normed, dim, hidden);
        input_gradient(run, run->dnormed, projections[i].gradient, params[place], dim, hidden,
                       i ? KERNELS_ADD : 0);
    }
    norm_backward(run, run->dresidual, b->in, params[BLOCK_INPUT_NORM], grads[BLOCK_INPUT_NORM],
                  KERNELS_ADD);
}

static void head_backward(model_run *run, const float *const *params, float *const *grads) {
    const decoder_config *c = &run->m->c;
    size_t place = decoder_head_place(run->m);
    run->k->cross_entropy_backward(run->k, run->logits, run->logits, run->logits_lse, run->targets,
                                   run->tokens, c->vocab, run->scale);
    decoder_norm(run, run->normed, run->last, params[ROOT_NORM]);
    weight_gradient(run, grads[place], run->logits, run->normed, c->vocab, c->hidden);
    input_gradient(run, run->dnormed, run->logits, params[place], c->vocab, c->hidden, 0);
    norm_backward(run, run->dresidual, run->last, params[ROOT_NORM], grads[ROOT_NORM], 0);
}

void model_backward(model_run *run, size_t stage, const float *const *params, float *const *grads) {
    if (stage == 0) {
        run->k->embedding_backward(run->k, grads[ROOT_EMBED], run->dresidual, run->ids, run->tokens,
                                   run->m->c.vocab, run->m->c.hidden);
    } else if (stage <= run->m->c.layers) {
        block_run *b = &run->blocks[stage - 1];
        feed_forward_backward(run, b, params, grads);
        attend_backward(run, b, params, grads);
    } else {
        head_backward(run, params, grads);
    }
}
