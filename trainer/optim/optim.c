/* Learning rates are functions of the step alone, so a resumed run needs no other state. */
#include "optim/optim.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "fsdp/shard_layout.h"
#include "programs/fail.h"

/* Returns how much of the decay has passed, 0 to 1. The decay starts after step `from`. */
static double passed(const config *c, double from, uint64_t step) {
    const double to = (double)c->max_steps, at = (double)step;
    if (at <= from) return 0;
    return at >= to ? 1 : (at - from) / (to - from);
}

double optim_schedule_lr(const config *c, uint64_t step) {
    const double pi = 3.141592653589793, warmup = (double)c->warmup_steps;
    if (step < c->warmup_steps)
        return c->lr * (c->warmup_is_log ? log((double)step) / log(warmup) : (double)step / warmup);
    double left = 1; /* 1: the full lr, 0: lr * min_lr_ratio */
    if (c->schedule == SCHEDULE_LINEAR) left = 1 - passed(c, warmup, step);
    if (c->schedule == SCHEDULE_COSINE) left = 0.5 * (1 + cos(pi * passed(c, warmup, step)));
    if (c->schedule == SCHEDULE_WSD) {
        const double stable = (double)c->max_steps * (1 - c->decay_ratio);
        left = 1 - passed(c, fmax(stable, warmup), step);
    }
    return c->lr * (c->min_lr_ratio + (1 - c->min_lr_ratio) * left);
}

/* The table of optimizers, and the update of shards. Elements are updated independently, so the
 * bits do not depend on how parameters are cut into shards. */

enum { PIECE_ELEMS = 1 << 20 };

static double number_of(const json_t *params, const char *key) {
    return json_number_value(json_object_get(params, key));
}

static int read_adamw(const json_t *params, kernels_update *out, dcp_error *err) {
    const json_t *betas = json_object_get(params, "betas");
    (void)err;
    out->beta1 = json_number_value(json_array_get(betas, 0));
    out->beta2 = json_number_value(json_array_get(betas, 1));
    out->eps = number_of(params, "eps");
    return DCP_OK;
}

static int read_sgd(const json_t *params, kernels_update *out, dcp_error *err) {
    out->momentum = number_of(params, "momentum");
    out->dampening = number_of(params, "dampening");
    out->nesterov = json_is_true(json_object_get(params, "nesterov"));
    if (!out->nesterov || (out->momentum > 0 && out->dampening == 0)) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG,
                     "optimizer.params.nesterov: needs a momentum above 0 and a dampening of 0");
}

static const optim_type types[] = {
    {.name = "AdamW",
     .rule = KERNELS_ADAMW,
     .n_slots = 2,
     .slots = {{"exp_avg", DCP_F32}, {"exp_avg_sq", DCP_F32}},
     .read = read_adamw},
    {.name = "SGD",
     .rule = KERNELS_SGD,
     .n_slots = 1,
     .slots = {{"momentum_buffer", DCP_F32}},
     .read = read_sgd},
};

const optim_type *optim_type_find(const char *name) {
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0) return &types[i];
    return NULL;
}

uint64_t optim_element_bytes(const optim_type *type) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < type->n_slots; i++) bytes += dcp_dtype_bytes(type->slots[i].dtype);
    return bytes;
}

/* Adjacent elements in this rank's storage: its part of one parameter, or its parts of several
 * adjacent parameters that are updated alike. */
typedef struct optim_run {
    uint64_t param_at, grad_at, elems;
    bool decays;
    size_t param; /* the index of the first parameter in the layout */
} optim_run;

struct optim {
    kernels *k;
    const optim_type *type;
    kernels_update options;
    optim_run *runs; /* one for each trained parameter of which this rank holds a part */
    size_t n;
};

static void add_param(optim *o, const fsdp_layout *layout, size_t i, bool decays) {
    const fsdp_param *param = &layout->params[i];
    if (param->elems == 0 || param->info.frozen) return;
    assert(o->n < layout->n_params);
    o->runs[o->n++] = (optim_run){param->param_at, param->grad_at, param->elems, decays, i};
}

static int list_runs(optim *o, const fsdp_layout *layout, const json_t *no_decay, dcp_error *err) {
    o->runs = calloc(layout->n_params, sizeof *o->runs);
    if (!o->runs) return core_fail_memory(err, layout->n_params * sizeof *o->runs);
    for (size_t i = 0; i < layout->n_params; i++)
        add_param(o, layout, i, !fsdp_globs_match(no_decay, layout->params[i].info.name));
    return DCP_OK;
}

int optim_create(const config *c, const fsdp_layout *layout, kernels *k, optim **out,
                 dcp_error *err) {
    const json_t *no_decay = json_object_get(c->optimizer_params, "no_decay");
    int status = fsdp_globs_check(layout, "optimizer.params.no_decay", no_decay, err);
    if (status != DCP_OK) return status;
    optim *o = calloc(1, sizeof *o);
    if (!o) return core_fail_memory(err, sizeof *o);
    *o = (optim){.k = k, .type = optim_type_find(c->optimizer)};
    o->options = (kernels_update){.rule = o->type->rule,
                                  .weight_decay = number_of(c->optimizer_params, "weight_decay")};
    status = o->type->read(c->optimizer_params, &o->options, err);
    if (status == DCP_OK) status = list_runs(o, layout, no_decay, err);
    if (status == DCP_OK)
        *out = o;
    else
        optim_destroy(o);
    return status;
}

void optim_destroy(optim *o) {
    if (!o) return;
    free(o->runs);
    free(o);
}

static void update_run(const optim *o, const optim_memory *m, const optim_run *run,
                       const kernels_update *options) {
    const uint64_t most = m->release ? PIECE_ELEMS : run->elems;
    for (uint64_t first = 0; first < run->elems; first += most) {
        const uint64_t left = run->elems - first, n = left < most ? left : most;
        const uint64_t at = run->grad_at + first;
        float *params = m->params + run->param_at + first;
        void *slots[KERNELS_MAX_SLOTS] = {NULL};
        uint64_t sizes[KERNELS_MAX_SLOTS];
        for (size_t i = 0; i < o->type->n_slots; i++) {
            sizes[i] = dcp_dtype_bytes(o->type->slots[i].dtype);
            slots[i] = (char *)m->slots[i] + at * sizes[i];
        }
        o->k->update(o->k, options, params, slots, m->grads + at, n);
        if (!m->release) continue;
        m->release(m->ctx, params, n * sizeof *params);
        for (size_t i = 0; i < o->type->n_slots; i++) m->release(m->ctx, slots[i], n * sizes[i]);
    }
}

static bool continues_run(const optim_run *r, const optim_run *next, const int64_t *since) {
    return r->decays == next->decays && since[r->param] == since[next->param] &&
           r->param_at + r->elems == next->param_at && r->grad_at + r->elems == next->grad_at;
}

/* Returns run *next, joined with the following runs that continue it. Advances *next past them. */
static optim_run join_runs(const optim *o, const int64_t *since, size_t *next) {
    optim_run run = o->runs[(*next)++];
    for (; *next < o->n && continues_run(&run, &o->runs[*next], since); ++*next)
        run.elems += o->runs[*next].elems;
    return run;
}

void optim_step(const optim *o, const optim_memory *m, uint64_t step, double lr,
                double grad_scale) {
    kernels_update options = o->options;
    options.lr = lr;
    options.grad_scale = grad_scale;
    for (size_t next = 0; next < o->n;) {
        const optim_run run = join_runs(o, m->since, &next);
        options.step = step - (uint64_t)m->since[run.param];
        options.weight_decay = run.decays ? o->options.weight_decay : 0;
        update_run(o, m, &run, &options);
    }
}
