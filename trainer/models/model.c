/* A model that computes: its stages, and which of them use a parameter. */
#include "models/model.h"

#include "models/parts.h"
#include "programs/fail.h"

static void choose_stages(model *m) {
    static const stage_kind *const inputs[] = {[INPUT_TOKENS] = &stage_tokens,
                                               [INPUT_IMAGE] = &stage_image,
                                               [INPUT_VECTOR] = &stage_vector};
    m->input = inputs[m->c.input];
    m->body = m->c.sizes ? &stage_dense : &stage_transformer;
}

int model_create(const json_t *config, model **out, dcp_error *err) {
    model *m;
    int status = model_describe(config, &m, err);
    if (status) return status;
    choose_stages(m);
    if (kernels_open("cpu", &m->own) != KERNELS_OK) {
        model_forget(m);
        return core_fail_memory(err, sizeof *m);
    }
    m->k = m->own;
    *out = m;
    return DCP_OK;
}

void model_destroy(model *m) {
    if (!m) return;
    kernels_close(m->own);
    model_forget(m);
}

void model_set_kernels(model *m, kernels *k) { m->k = k; }
void model_set_checkpointing(model *m, int on) { m->checkpointing = on; }
void model_set_packed(model *m, int on) { m->packed = on && m->c.input == INPUT_TOKENS; }
void model_set_type(model *m, kernels_type type) { m->type = type; }
kernels_type model_type(const model *m) { return m->type; }

size_t model_stages(const model *m) { return m->c.layers + 2; }

size_t model_stage_unit(const model *m, size_t stage) { return stage <= m->c.layers ? stage : 0; }

static int is_input(const root_parts *r, size_t i) {
    return i == r->embed || i == r->positions || i == r->class_token || i == r->patches.weight ||
           i == r->patches.bias;
}

static int is_output(const root_parts *r, size_t i) {
    return i == r->final.weight || i == r->final.bias || i == r->head.weight || i == r->head.bias;
}

int model_stage_uses(const model *m, size_t stage, size_t i) {
    if (stage == 0) return is_input(&m->root, i);
    return stage <= m->c.layers || is_output(&m->root, i);
}

uint64_t model_max_sequence(const model *m) { return m->c.max_positions; }

sample_shape model_sample(const model *m, uint64_t sequence) {
    const model_config *c = &m->c;
    switch (c->input) {
    case INPUT_IMAGE:
        return (sample_shape){.ndim = 3,
                              .dims = {c->channels, c->image[0], c->image[1]},
                              .targets = 1,
                              .classes = c->classes};
    case INPUT_VECTOR:
        return (sample_shape){
            .ndim = 1, .dims = {c->sizes[0]}, .targets = 1, .classes = c->classes};
    default:
        return (sample_shape){
            .tokens = sequence, .targets = sequence, .classes = c->classes, .packed = m->packed};
    }
}
