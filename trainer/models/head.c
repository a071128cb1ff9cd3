/* How the loss comes about: what leaves the last block, normed where the family does that, through
 * a linear layer into cross-entropy. A classifier of images looks at the class token alone. */
#include "models/layers.h"
#include "models/parts.h"

static float *last(const model_run *run) { return run->stream[run->m->c.layers]; }

static void head_keep(model_run *run, arena *a, size_t layer) {
    (void)layer;
    const int all = run->counted == run->rows;
    run->picked = model_arena_floats(a, all ? 0 : run->counted, run->m->c.hidden);
    run->lse = model_arena_floats(a, run->counted, 1);
    run->losses = model_arena_take(a, run->counted, sizeof(double));
}

static void head_work(model_run *run, arena *a) {
    run->logits = model_arena_typed(a, run->counted, run->m->c.classes, model_logits_type(run->m));
}

/* The rows that count: each sample's first, of a text that comes in pieces the last, or all. */
static const float *pick(model_run *run) {
    const size_t hidden = run->m->c.hidden;
    if (run->counted == run->rows) return last(run);
    const float *from = last(run) + (run->cache.room ? run->length - 1 : 0) * hidden;
    run->k->copy_rows(run->k, run->picked, hidden, from, run->length * hidden, run->counted, hidden,
                      0);
    return run->picked;
}

/* What the linear layer reads, from what was picked. */
static operand normed_of(model_run *run, const float *rows, const float *const *params) {
    const size_t n = run->counted * run->m->root.head.in;
    if (!run->m->root.final.dim) return model_operand_of(run, run->in, rows, n);
    model_norm_forward(run, &run->m->root.final, run->normed, rows, run->counted, params,
                       &run->stats);
    return model_operand_typed(run, run->m->type, run->in, run->normed, n);
}

static void head_forward(model_run *run, size_t layer, const float *const *params) {
    (void)layer;
    const operand in = normed_of(run, pick(run), params);
    const kernels_type type = model_logits_type(run->m);
    model_linear_forward(run, &run->m->root.head, run->logits, in, run->counted, params,
                         model_operand_flags(type));
    run->k->cross_entropy_forward(run->k, run->losses, run->lse, run->logits, type,
                                  run->samples.targets, run->counted, run->m->c.classes);
}

/* The gradient of the picked rows goes back to where they stand; the others have none. */
static void put_back(model_run *run) {
    const size_t hidden = run->m->c.hidden;
    run->k->zero(run->k, run->dstream, run->rows * hidden);
    run->k->copy_rows(run->k, run->dstream, run->length * hidden, run->dnormed, hidden,
                      run->counted, hidden, 0);
    if (run->m->type == KERNELS_BF16)
        run->k->narrow(run->k, run->dstream_rounded, run->dstream, run->rows * hidden);
}

/* Logits become their gradient. */
static operand dlogits_of(model_run *run) {
    const kernels_type type = model_logits_type(run->m);
    run->k->cross_entropy_backward(run->k, run->logits, run->logits, type, run->lse,
                                   run->samples.targets, run->counted, run->m->c.classes,
                                   run->scale);
    return model_operand_typed(run, type, run->dout, run->logits, run->counted * run->m->c.classes);
}

/* The predictor has left its gradient of the same rows. */
static void head_backward(model_run *run, size_t layer, const float *const *params,
                          float *const *grads) {
    (void)layer;
    const root_parts *root = &run->m->root;
    const int all = run->counted == run->rows, has_norm = root->final.dim > 0;
    const float *rows = all ? last(run) : run->picked;
    float *drows = all ? run->dstream : run->dnormed;
    const operand in = normed_of(run, rows, params);
    model_linear_backward(run, &root->head, has_norm ? run->dnormed : drows, dlogits_of(run), in,
                          run->counted, params, grads, 0);
    if (has_norm)
        model_norm_backward(run, &root->final, drows, run->dnormed, rows, run->counted, params,
                            grads, &run->stats, run->inner ? KERNELS_ADD : 0);
    if (!all) put_back(run);
}

const stage_kind stage_head = {
    .keep = head_keep, .work = head_work, .forward = head_forward, .backward = head_backward};
