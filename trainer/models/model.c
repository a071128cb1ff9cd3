/* A model that computes: its stages, and which of them use a parameter. */
#include "models/model.h"

#include <stdbool.h>

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
        model_free_described(m);
        return core_fail_memory(err, sizeof *m);
    }
    model_set_kernels(m, m->own);
    *out = m;
    return DCP_OK;
}

void model_destroy(model *m) {
    if (!m) return;
    kernels_close(m->own);
    model_free_described(m);
}

void model_set_kernels(model *m, kernels *k) {
    m->k = k;
    if (m->inner) m->inner->k = k;
}

void model_set_checkpointing(model *m, bool on) {
    m->checkpointing = on;
    if (m->inner) m->inner->checkpointing = on;
}

void model_set_type(model *m, kernels_type type) {
    m->type = type;
    if (m->inner) m->inner->type = type;
}

void model_set_packed(model *m, bool on) { m->packed = on && m->c.input == INPUT_TOKENS; }
void model_set_frames(model *m, uint64_t frames) { m->frames = m->inner ? frames : 0; }
kernels_type model_type(const model *m) { return m->type; }

static bool is_of_linear(const linear *l, size_t i) {
    return l->out && (i == l->weight || i == l->bias);
}

static bool is_of_norm(const norm *n, size_t i) {
    return n->dim && (i == n->weight || i == n->bias);
}

/* Returns true if i is the table of one of the codes [0, n) of a frame. */
static bool is_of_codes(const model *m, size_t n, size_t i) {
    bool found = n > 0 && i == m->root.embed;
    for (size_t code = 1; code < n; code++) found |= i == m->speech.tables[code - 1];
    return found;
}

static bool input_uses(const model *m, size_t i) {
    const root_parts *r = &m->root;
    const speech_parts *s = &m->speech;
    if (m->inner && (i == s->text || is_of_linear(&s->rise, i) || is_of_linear(&s->fall, i) ||
                     is_of_codes(m, m->c.speech->groups, i)))
        return true;
    return i == r->embed || i == r->positions || i == r->class_token ||
           is_of_linear(&r->patches, i);
}

static bool heads_use(const model *m, size_t i) {
    bool found = is_of_norm(&m->inner->root.final, i);
    for (size_t head = 0; head + 1 < m->c.speech->groups; head++)
        found |= is_of_linear(&m->speech.heads[head], i);
    return found;
}

/* The predictor reads the talker's normed output, and all of a frame's codes except the last. */
static bool frames_use(const model *m, size_t i) {
    return is_of_norm(&m->root.final, i) || is_of_linear(&m->speech.projection, i) ||
           is_of_codes(m, m->c.speech->groups - 1, i);
}

bool model_stage_uses(const model *m, size_t stage, size_t i) {
    const stage_place at = model_stages_at(m, stage);
    if (at.is_block) return true;
    if (at.kind == m->input) return input_uses(m, i);
    if (at.level == m) return is_of_norm(&m->root.final, i) || is_of_linear(&m->root.head, i);
    return at.kind == m->inner->input ? frames_use(m, i) : heads_use(m, i);
}

bool model_speaks(const model *m) { return m->inner != NULL; }

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

/* Counts operations stage by stage, in the order in which a sample passes through them. The
 * gradient of a part's input is computed only if something before it is trained. */

typedef struct flops_walk {
    const unsigned char *trained; /* [parameters of the current unit]; NULL: all are trained */
    bool reached;                 /* the input of the next part depends on something trained */
    double rows;                  /* per sample, in the stream */
    double seen;                  /* the number of rows that a row sees without a window */
    double sum;
} flops_walk;

static bool place_is_trained(const flops_walk *w, size_t place) {
    return place != NO_PLACE && (!w->trained || w->trained[place]);
}

/* Counts one layer. Does not update `reached`, because the next layer may have the same input;
 * pass_linear updates `reached`. */
static void count_linear(flops_walk *w, const linear *l) {
    const double product = 2.0 * w->rows * (double)l->in * (double)l->out;
    if (l->out) w->sum += product * (1 + place_is_trained(w, l->weight) + w->reached);
}

static void pass_place(flops_walk *w, size_t place) { w->reached |= place_is_trained(w, place); }

static void pass_linear(flops_walk *w, const linear *l) {
    if (!l->out) return;
    pass_place(w, l->weight);
    pass_place(w, l->bias);
}

static void pass_norm(flops_walk *w, const norm *n) {
    if (!n->dim) return;
    pass_place(w, n->weight);
    pass_place(w, n->bias);
}

/* Counts attention as if each row saw all rows, or all of its window, as is customary. */
static void count_attention(flops_walk *w, const model *m, size_t layer) {
    const double window = (double)model_window(m, layer);
    const double seen = window > 0.0 && window < w->seen ? window : w->seen;
    w->sum += 4.0 * w->rows * seen * (double)model_q_dim(m) * (1 + 2 * w->reached);
}

static void count_transformer(flops_walk *w, const model *m, size_t layer) {
    const block_parts *b = &m->block;
    const linear *const projections[] = {&b->q, &b->k, &b->v, &b->qkv};
    pass_norm(w, &b->attention_norm);
    for (int i = 0; i < 4; i++) count_linear(w, projections[i]);
    for (int i = 0; i < 4; i++) pass_linear(w, projections[i]);
    pass_norm(w, &b->q_norm);
    pass_norm(w, &b->k_norm);
    count_attention(w, m, layer);
    count_linear(w, &b->o);
    pass_linear(w, &b->o);
    pass_norm(w, &b->mlp_norm);
    count_linear(w, &b->gate);
    count_linear(w, &b->up);
    pass_linear(w, &b->gate);
    pass_linear(w, &b->up);
    count_linear(w, &b->down);
    pass_linear(w, &b->down);
}

/* A hidden layer of an MLP, whose unit is a weight and a bias. */
static void count_dense(flops_walk *w, const model *m, size_t layer) {
    const linear l = {
        .weight = 0, .bias = 1, .in = model_width(m, layer), .out = model_width(m, layer + 1)};
    count_linear(w, &l);
    pass_linear(w, &l);
}

static void count_input(flops_walk *w, const model *m) {
    const root_parts *r = &m->root;
    if (m->c.input == INPUT_IMAGE) {
        w->rows = (double)model_patches(m);
        count_linear(w, &r->patches);
        pass_linear(w, &r->patches);
        pass_place(w, r->class_token);
    }
    pass_place(w, r->embed);
    pass_place(w, r->positions);
}

static void count_head(flops_walk *w, const model *m) {
    if (m->c.input == INPUT_IMAGE) w->rows = 1; /* only the class token is classified */
    pass_norm(w, &m->root.final);
    count_linear(w, &m->root.head);
}

static void count_text(flops_walk *w, const speech_parts *p) {
    pass_place(w, p->text);
    count_linear(w, &p->rise);
    pass_linear(w, &p->rise);
    count_linear(w, &p->fall);
    pass_linear(w, &p->fall);
}

static void pass_codes(flops_walk *w, const model *m, size_t n) {
    pass_place(w, m->root.embed);
    for (size_t code = 1; code < n; code++) pass_place(w, m->speech.tables[code - 1]);
}

/* Counts the blocks of a model or of its predictor. next: for each parameter of these and later
 * blocks, whether it is trained. Returns the position in `next` after these blocks. */
static const unsigned char *count_level(flops_walk *w, const model *m, const unsigned char *next) {
    const unsigned char *root = w->trained;
    for (size_t layer = 0; layer < m->c.layers; layer++) {
        w->trained = next;
        if (m->c.sizes)
            count_dense(w, m, layer);
        else
            count_transformer(w, m, layer);
        if (next) next += m->units[layer + 1].n;
    }
    w->trained = root;
    return next;
}

/* A talker's predictor, in which each row sees only its frame. */
static void count_predictor(flops_walk *w, const model *m, const unsigned char *next) {
    const size_t groups = m->c.speech->groups;
    w->seen = (double)groups;
    w->rows = (double)m->frames * w->seen;
    pass_codes(w, m, groups - 1);
    count_linear(w, &m->speech.projection);
    pass_linear(w, &m->speech.projection);
    count_level(w, m->inner, next);
    w->rows = (double)m->frames;
    pass_norm(w, &m->inner->root.final);
    for (size_t head = 0; head + 1 < groups; head++) count_linear(w, &m->speech.heads[head]);
}

double model_flops_per_sample(const model *m, uint64_t sequence, const unsigned char *trained) {
    const unsigned char *next = trained ? trained + m->units[0].n : NULL;
    flops_walk w = {.trained = trained};
    w.rows = w.seen = (double)model_length(m, sequence);
    if (m->inner) count_text(&w, &m->speech);
    if (m->inner) pass_codes(&w, m, m->c.speech->groups);
    count_input(&w, m);
    w.rows = (double)model_length(m, sequence);
    next = count_level(&w, m, next);
    count_head(&w, m);
    if (m->inner) count_predictor(&w, m, next);
    return w.sum;
}
