/* Transfers in flight can proceed after each matrix product. A norm with a bias is a LayerNorm, and
 * a norm without a bias is an RMSNorm. */
#include "models/layers.h"

#include <stdbool.h>

static bool is_bf16(const model_run *run) { return run->m->type == KERNELS_BF16; }

operand model_operand_of(model_run *run, uint16_t *to, const float *x, size_t n) {
    if (!is_bf16(run)) return (operand){.wide = x};
    run->k->narrow(run->k, to, x, n);
    return (operand){.wide = x, .narrow = to};
}

operand model_operand_typed(model_run *run, kernels_type type, uint16_t *to, const void *x,
                            size_t n) {
    return type == KERNELS_BF16 ? (operand){.narrow = x} : model_operand_of(run, to, x, n);
}

operand model_operand_weight(model_run *run, const linear *l, const float *const *params) {
    return model_operand_of(run, run->weight, params[l->weight], l->in * l->out);
}

const float *model_operand_rounded(model_run *run, size_t slot, const float *param, size_t n) {
    if (!is_bf16(run)) return param;
    run->k->narrow(run->k, run->weight, param, n);
    run->k->widen(run->k, run->rounded[slot], run->weight, n);
    return run->rounded[slot];
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

typedef struct operand_sizes {
    size_t in, dout, weight;
    size_t kept; /* the bytes that the kernels keep in addition */
} operand_sizes;

static void cover(operand_sizes *s, const model_run *run, const linear *l, size_t rows) {
    const kernels *k = run->k;
    if (k->matmul_bf16_keeps && l->in && l->out)
        s->kept = larger(s->kept, k->matmul_bf16_keeps(k, rows, l->out, l->in));
    s->in = larger(s->in, rows * l->in);
    s->dout = larger(s->dout, rows * l->out);
    s->weight = larger(s->weight, l->in * l->out);
}

static void cover_block(operand_sizes *s, const model_run *run) {
    const block_parts *p = &run->m->block;
    const linear *const outer[] = {&p->q, &p->k, &p->v, &p->qkv, &p->o};
    const linear *const inner[] = {&p->gate, &p->up, &p->down};
    const size_t hidden = run->rows * run->m->c.hidden;
    for (size_t i = 0; i < sizeof outer / sizeof *outer; i++) cover(s, run, outer[i], run->rows);
    operand_sizes mlp = *s;
    for (size_t i = 0; i < sizeof inner / sizeof *inner; i++) cover(&mlp, run, inner[i], run->rows);
    if (model_inner_type(run->m) == KERNELS_BF16) /* the MLP's arrays are already bf16 */
        mlp.in = mlp.dout = 0;
    *s = (operand_sizes){.in = larger(larger(s->in, mlp.in), hidden),
                         .dout = larger(larger(s->dout, mlp.dout), hidden),
                         .weight = mlp.weight,
                         .kept = mlp.kept};
}

/* The head's gradient needs no room if logits are bf16. */
static void cover_head(operand_sizes *s, const model_run *run) {
    const size_t dout = s->dout;
    cover(s, run, &run->m->root.head, run->counted);
    if (model_logits_type(run->m) == KERNELS_BF16) s->dout = dout;
}

static void cover_dense(operand_sizes *s, const model_run *run) {
    for (size_t layer = 0; layer < run->m->c.layers; layer++)
        cover(s, run,
              &(linear){.in = model_width(run->m, layer), .out = model_width(run->m, layer + 1)},
              run->rows);
}

/* The additional layers of a talker, or of its predictor. */
static void cover_speech(operand_sizes *s, const model_run *run) {
    const model *talker = run->outer ? run->outer->m : run->m;
    const speech_parts *p = &talker->speech;
    if (run->inner) {
        cover(s, run, &p->rise, run->rows);
        cover(s, run, &p->fall, run->rows);
    } else if (run->outer) {
        cover(s, run, &p->projection, run->rows);
        for (size_t head = 0; head + 1 < talker->c.speech->groups; head++)
            cover(s, run, &p->heads[head], run->batch);
    }
}

/* The longest parameter that is rounded without being multiplied by a matrix: a bias, or a norm's
 * weight. */
static size_t longest_vector(const model_run *run) {
    const model *m = run->m;
    const size_t positions = m->root.positions == NO_PLACE ? 0 : run->length * m->c.hidden;
    size_t vector = larger(m->c.hidden, larger(m->c.intermediate, m->c.classes));
    vector = larger(larger(vector, positions), model_q_dim(m) + 2 * model_kv_dim(m));
    if (run->inner) vector = larger(vector, m->c.speech->text_hidden);
    for (size_t layer = 0; layer <= m->c.layers; layer++)
        vector = larger(vector, model_width(m, layer));
    return vector;
}

void model_operand_lay_out(model_run *run, arena *a) {
    const model *m = run->m;
    const size_t vector = is_bf16(run) ? longest_vector(run) : 0;
    operand_sizes s = {0};
    if (is_bf16(run)) {
        cover(&s, run, &m->root.patches,
              run->batch * (m->c.input == INPUT_IMAGE ? model_patches(m) : 0));
        cover_head(&s, run);
        if (m->c.sizes)
            cover_dense(&s, run);
        else
            cover_block(&s, run);
        cover_speech(&s, run);
    }
    run->kept_bytes = s.kept;
    run->in = model_arena_typed(a, s.in, 1, KERNELS_BF16);
    run->dout = model_arena_typed(a, s.dout, 1, KERNELS_BF16);
    run->weight = model_arena_typed(a, larger(s.weight, vector), 1, KERNELS_BF16);
    for (size_t slot = 0; slot < 2; slot++) run->rounded[slot] = model_arena_floats(a, vector, 1);
}

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

/* Runs the layer. with: the operations that follow it. */
static void forward_with(model_run *run, const linear *l, float *y, operand x, size_t rows,
                         const float *const *params, kernels_linear with) {
    /* The bias comes first, because in bf16 it is rounded in the memory that the weight will
     * use. */
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

void model_norm_lay_out(const norm *n, arena *a, size_t rows, norm_stats *out) {
    const bool used = n->dim > 0;
    out->mean = model_arena_floats(a, used && n->bias != NO_PLACE ? rows : 0, 1);
    out->rstd = model_arena_floats(a, used ? rows : 0, 1);
}

void model_norm_forward(model_run *run, const norm *n, void *out, const float *in, size_t rows,
                        const float *const *params, const norm_stats *stats) {
    kernels *k = run->k;
    const float *weight = model_operand_rounded(run, 0, params[n->weight], n->dim);
    if (n->bias == NO_PLACE)
        k->rmsnorm_forward(k, out, run->m->type, stats->rstd, in, weight, rows, n->dim, n->eps);
    else
        k->layernorm_forward(k, out, run->m->type, stats->mean, stats->rstd, in, weight,
                             model_operand_rounded(run, 1, params[n->bias], n->dim), rows, n->dim,
                             n->eps);
}

void model_norm_backward(model_run *run, const norm *n, float *dx, const float *dout,
                         const float *in, size_t rows, const float *const *params,
                         float *const *grads, const norm_stats *stats, unsigned add) {
    kernels *k = run->k;
    const float *weight = model_operand_rounded(run, 0, params[n->weight], n->dim);
    float *dweight = grads[n->weight] ? grads[n->weight] : run->unwanted;
    const bool goes_on = dx == run->dstream && run->m->type == KERNELS_BF16;
    uint16_t *rounded = goes_on ? run->dstream_rounded : NULL;
    if (n->bias == NO_PLACE)
        k->rmsnorm_backward(k, dx, rounded, dweight, dout, in, weight, stats->rstd, rows, n->dim,
                            add);
    else
        k->layernorm_backward(k, dx, rounded, dweight,
                              grads[n->bias] ? grads[n->bias] : run->unwanted, dout, in, weight,
                              stats->mean, stats->rstd, rows, n->dim, add);
}
