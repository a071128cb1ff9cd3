/* The hidden layer of a plain MLP: linear, then its activation. */
#include "models/layers.h"
#include "models/parts.h"

static linear part_of(const model *m, size_t layer) {
    return (linear){
        .weight = 0, .bias = 1, .in = model_width(m, layer), .out = model_width(m, layer + 1)};
}

static void dense_keep(model_run *run, arena *a, size_t layer) {
    run->blocks[layer].up = model_arena_floats(a, run->rows, model_width(run->m, layer + 1));
}

static operand input_of(model_run *run, const linear *l, size_t layer) {
    return model_operand_of(run, run->in, run->stream[layer], run->rows * l->in);
}

static void dense_forward(model_run *run, size_t layer, const float *const *params) {
    const linear l = part_of(run->m, layer);
    float *up = run->blocks[layer].up;
    model_linear_forward_activated(run, &l, up, run->stream[layer + 1], input_of(run, &l, layer),
                                   run->rows, params);
}

static void dense_backward(model_run *run, size_t layer, const float *const *params,
                           float *const *grads) {
    const linear l = part_of(run->m, layer);
    float *up = run->blocks[layer].up;
    run->k->activation_backward(run->k, NULL, up, run->dstream, up, run->rows * l.out,
                                run->m->c.activation, KERNELS_F32);
    model_linear_backward(run, &l, layer ? run->dstream : NULL,
                          model_operand_of(run, run->dout, up, run->rows * l.out),
                          input_of(run, &l, layer), run->rows, params, grads, 0);
}

const stage_kind stage_dense = {
    .keep = dense_keep, .forward = dense_forward, .backward = dense_backward};
