/* A linear layer. Its matrix products are where transfers get to proceed. */
#include "models/linear.h"

static void poll_transfers(const model_run *run) {
    if (run->poll) run->poll(run->poll_ctx);
}

static void run_product(model_run *run, void *c, operand a, operand b, size_t m, size_t n,
                        size_t depth, unsigned flags) {
    kernels *k = run->k;
    if (a.narrow)
        k->matmul_bf16(k, c, a.narrow, b.narrow, m, n, depth, flags);
    else
        k->matmul(k, c, a.wide, b.wide, m, n, depth, flags);
    poll_transfers(run);
}

static unsigned order_of(const linear *l) { return l->in_first ? 0 : KERNELS_TRANSPOSE_B; }

/* The layer, with what `with` says of what follows it. */
static void forward_with(model_run *run, const linear *l, float *y, operand x, size_t rows,
                         const float *const *params, kernels_linear with) {
    /* The bias first: in bf16 it is rounded where the weight will be. */
    if (l->bias != NO_PLACE) with.bias = model_operand_rounded(run, 0, params[l->bias], l->out);
    const operand weight = model_operand_weight(run, l, params);
    with.rows = rows;
    with.in = l->in;
    with.out = l->out;
    with.operands = run->m->type;
    with.x = x.narrow ? (const void *)x.narrow : x.wide;
    with.weight = x.narrow ? (const void *)weight.narrow : weight.wide;
    with.flags = order_of(l);
    run->k->linear(run->k, y, &with);
    poll_transfers(run);
}

void model_linear_forward(model_run *run, const linear *l, void *y, operand x, size_t rows,
                          const float *const *params, unsigned flags) {
    if (flags & KERNELS_NARROW)
        run_product(run, y, x, model_operand_weight(run, l, params), rows, l->out, l->in,
                    order_of(l) | flags);
    else
        forward_with(run, l, y, x, rows, params, (kernels_linear){0});
}

void model_linear_forward_onto(model_run *run, const linear *l, float *y, const float *add,
                               operand x, size_t rows, const float *const *params) {
    forward_with(run, l, y, x, rows, params, (kernels_linear){.add = add});
}

void model_linear_forward_activated(model_run *run, const linear *l, float *y, float *activated,
                                    operand x, size_t rows, const float *const *params) {
    forward_with(run, l, y, x, rows, params,
                 (kernels_linear){.activated = activated, .f = run->m->c.activation});
}

void model_linear_backward_params(model_run *run, const linear *l, operand dy, operand x,
                                  size_t rows, float *const *grads) {
    float *dweight = grads[l->weight];
    if (dweight && l->in_first)
        run_product(run, dweight, x, dy, l->in, l->out, rows, KERNELS_TRANSPOSE_A | KERNELS_ADD);
    else if (dweight)
        run_product(run, dweight, dy, x, l->out, l->in, rows, KERNELS_TRANSPOSE_A | KERNELS_ADD);
    if (l->bias != NO_PLACE && grads[l->bias])
        run->k->sum_rows(run->k, grads[l->bias], dy.wide, l->out, rows, l->out);
}

void model_linear_backward_input(model_run *run, const linear *l, void *dx, operand dy, size_t rows,
                                 const float *const *params, unsigned flags) {
    run_product(run, dx, dy, model_operand_weight(run, l, params), rows, l->in, l->out,
                (l->in_first ? KERNELS_TRANSPOSE_B : 0) | flags);
}

void model_linear_backward(model_run *run, const linear *l, void *dx, operand dy, operand x,
                           size_t rows, const float *const *params, float *const *grads,
                           unsigned flags) {
    model_linear_backward_params(run, l, dy, x, rows, grads);
    if (dx) model_linear_backward_input(run, l, dx, dy, rows, params, flags);
}
