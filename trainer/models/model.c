/* A model that computes: its stages, and which of them use a parameter. */
#include "models/model.h"

#include "models/parts.h"
#include "models/stages.h"
#include "programs/fail.h"

static void choose_stages(model *m) {
    static const stage_kind *const inputs[] = {[INPUT_TOKENS] = &stage_tokens,
                                               [INPUT_IMAGE] = &stage_image,
                                               [INPUT_VECTOR] = &stage_vector,
                                               [INPUT_SPEECH] = &stage_speech};
    m->input = inputs[m->c.input];
    m->body = m->c.sizes ? &stage_dense : &stage_transformer;
    m->head = &stage_head;
    if (!m->inner) return;
    m->inner->input = &stage_frames;
    m->inner->body = &stage_transformer;
    m->inner->head = &stage_codes;
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
    model_set_kernels(m, m->own);
    *out = m;
    return DCP_OK;
}

void model_destroy(model *m) {
    if (!m) return;
    kernels_close(m->own);
    model_forget(m);
}

void model_set_kernels(model *m, kernels *k) {
    m->k = k;
    if (m->inner) m->inner->k = k;
}

void model_set_checkpointing(model *m, int on) {
    m->checkpointing = on;
    if (m->inner) m->inner->checkpointing = on;
}

void model_set_type(model *m, kernels_type type) {
    m->type = type;
    if (m->inner) m->inner->type = type;
}

void model_set_packed(model *m, int on) { m->packed = on && m->c.input == INPUT_TOKENS; }
void model_set_frames(model *m, uint64_t frames) { m->frames = m->inner ? frames : 0; }
kernels_type model_type(const model *m) { return m->type; }

static int is_of_linear(const linear *l, size_t i) {
    return l->out && (i == l->weight || i == l->bias);
}

static int is_of_norm(const norm *n, size_t i) {
    return n->dim && (i == n->weight || i == n->bias);
}

/* Tables of codes [0, n) of a frame. */
static int is_of_codes(const model *m, size_t n, size_t i) {
    int found = n > 0 && i == m->root.embed;
    for (size_t code = 1; code < n; code++) found |= i == m->speech.tables[code - 1];
    return found;
}

static int input_uses(const model *m, size_t i) {
    const root_parts *r = &m->root;
    const speech_parts *s = &m->speech;
    if (m->inner && (i == s->text || is_of_linear(&s->rise, i) || is_of_linear(&s->fall, i) ||
                     is_of_codes(m, m->c.speech->groups, i)))
        return 1;
    return i == r->embed || i == r->positions || i == r->class_token ||
           is_of_linear(&r->patches, i);
}

static int heads_use(const model *m, size_t i) {
    int found = is_of_norm(&m->inner->root.final, i);
    for (size_t head = 0; head + 1 < m->c.speech->groups; head++)
        found |= is_of_linear(&m->speech.heads[head], i);
    return found;
}

/* The predictor sees the talker's output normed, and a frame's codes but the last. */
static int frames_use(const model *m, size_t i) {
    return is_of_norm(&m->root.final, i) || is_of_linear(&m->speech.projection, i) ||
           is_of_codes(m, m->c.speech->groups - 1, i);
}

int model_stage_uses(const model *m, size_t stage, size_t i) {
    const stage_place at = model_stages_at(m, stage);
    if (at.is_block) return 1;
    if (at.kind == m->input) return input_uses(m, i);
    if (at.level == m) return is_of_norm(&m->root.final, i) || is_of_linear(&m->root.head, i);
    return at.kind == m->inner->input ? frames_use(m, i) : heads_use(m, i);
}

int model_speaks(const model *m) { return m->inner != NULL; }

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
    case INPUT_SPEECH:
        return (sample_shape){.tokens = sequence,
                              .ndim = 1,
                              .dims = {c->hidden},
                              .targets = sequence + m->frames * (c->speech->groups - 1),
                              .classes = c->classes,
                              .frames = m->frames,
                              .groups = c->speech->groups,
                              .texts = c->speech->texts,
                              .codes = c->speech->predictor.classes,
                              .end = c->speech->end};
    default:
        return (sample_shape){
            .tokens = sequence, .targets = sequence, .classes = c->classes, .packed = m->packed};
    }
}
