/* What the type that a model computes in does to parameters and to operands of matrix products. */
#include "models/operand.h"

static int is_bf16(const model_run *run) { return run->m->type == KERNELS_BF16; }

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
    size_t kept; /* bytes, by the kernels */
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
    if (model_inner_type(run->m) == KERNELS_BF16) /* its inside is bf16 as it is */
        mlp.in = mlp.dout = 0;
    *s = (operand_sizes){.in = larger(larger(s->in, mlp.in), hidden),
                         .dout = larger(larger(s->dout, mlp.dout), hidden),
                         .weight = mlp.weight,
                         .kept = mlp.kept};
}

/* Its gradient needs no room where logits are bf16. */
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

void model_operand_lay_out(model_run *run, arena *a) {
    const model *m = run->m;
    const size_t positions = m->root.positions == NO_PLACE ? 0 : run->length * m->c.hidden;
    size_t vector = positions;
    operand_sizes s = {0};
    if (is_bf16(run)) {
        cover(&s, run, &m->root.patches,
              run->batch * (m->c.input == INPUT_IMAGE ? model_patches(m) : 0));
        cover_head(&s, run);
        if (m->c.sizes)
            cover_dense(&s, run);
        else
            cover_block(&s, run);
        vector = larger(vector, larger(m->c.hidden, larger(m->c.intermediate, m->c.classes)));
        vector = larger(vector, model_q_dim(m) + 2 * model_kv_dim(m));
        for (size_t layer = 0; layer <= m->c.layers; layer++)
            vector = larger(vector, model_width(m, layer));
    } else {
        vector = 0;
    }
    run->kept_bytes = s.kept;
    run->in = model_arena_typed(a, s.in, 1, KERNELS_BF16);
    run->dout = model_arena_typed(a, s.dout, 1, KERNELS_BF16);
    run->weight = model_arena_typed(a, larger(s.weight, vector), 1, KERNELS_BF16);
    for (size_t slot = 0; slot < 2; slot++) run->rounded[slot] = model_arena_floats(a, vector, 1);
}
