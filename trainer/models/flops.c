/* The stages in the order in which a sample goes through them: a gradient goes back as far as
 * something is trained. */
#include "models/flops.h"

#include "models/parts.h"

typedef struct flops_walk {
    const unsigned char *trained; /* [parameters of the unit at hand]; NULL: all are */
    int reached;                  /* what has been passed depends on something trained */
    double rows;                  /* of the stream, that a sample has */
    double seen;                  /* those that a row sees where there is no window */
    double sum;
} flops_walk;

static int place_is_trained(const flops_walk *w, size_t place) {
    return place != NO_PLACE && (!w->trained || w->trained[place]);
}

/* A layer, beside those that read the same input. */
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

/* A row sees all of them, as is the custom, or its window. */
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
    if (m->c.input == INPUT_IMAGE) w->rows = 1; /* the class token alone is judged */
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

/* next: whether the blocks' parameters are trained; returns where those behind them begin. */
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

/* A talker's predictor, of whose rows each sees its frame alone. */
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
