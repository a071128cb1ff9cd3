/* How a talker's samples enter the stream: text passes through a table and two linear layers with
 * an activation between them; codes and the speaker's vector are added to the result. The
 * predictor's input uses the tables of codes, too; the gradients that are computed here for these
 * tables are added to the predictor's. */
#include <stdbool.h>

#include "models/layers.h"
#include "models/parts.h"
#include "models/speech.h"

static size_t text_elements(const model_run *run) {
    return run->rows * run->m->c.speech->text_hidden;
}

static void speech_work(model_run *run, arena *a) {
    const size_t text = run->m->c.speech->text_hidden;
    speech_run *s = &run->speech;
    s->text = model_arena_floats(a, run->rows, text);
    s->risen = model_arena_floats(a, run->rows, text);
    s->mid = model_arena_floats(a, run->rows, text);
    s->of_frames = model_arena_floats(a, s->frames, run->m->c.hidden);
}

static operand text_operand(model_run *run, const float *x) {
    return model_operand_of(run, run->in, x, text_elements(run));
}

/* Computes the text's embedding up to the activation. */
static void embed_text(model_run *run, const float *const *params) {
    const speech_parts *p = &run->m->speech;
    speech_run *s = &run->speech;
    run->k->embedding_forward(run->k, s->text, params[p->text], s->lists.text, run->rows,
                              run->m->c.speech->text_hidden, model_table_flags(run->m));
    model_linear_forward_activated(run, &p->rise, s->risen, s->mid, text_operand(run, s->text),
                                   run->rows, params);
}

/* Adds the embeddings of all codes except the first; each code has a table of its own. */
static void add_codes(model_run *run, const float *const *params) {
    const model *m = run->m;
    const size_t hidden = m->c.hidden, frames = run->speech.frames;
    kernels *k = run->k;
    for (size_t code = 1; code < m->c.speech->groups; code++)
        k->embedding_forward(k, run->speech.of_frames, params[m->speech.tables[code - 1]],
                             model_speech_codes(run, code), frames, hidden,
                             model_table_flags(m) | (code > 1 ? KERNELS_ADD : 0));
    /* Each row has at most one frame. */
    k->embedding_backward(k, run->stream[0], run->speech.of_frames, run->speech.lists.at, frames,
                          run->rows, hidden);
}

static void speech_forward(model_run *run, size_t layer, const float *const *params) {
    (void)layer;
    const model *m = run->m;
    const size_t hidden = m->c.hidden;
    kernels *k = run->k;
    embed_text(run, params);
    model_linear_forward(run, &m->speech.fall, run->stream[0], text_operand(run, run->speech.mid),
                         run->rows, params, 0);
    k->copy_rows(k, run->stream[0] + SPEECH_SPEAKER * hidden, run->length * hidden,
                 run->samples.values, hidden, run->batch, hidden, KERNELS_ADD);
    k->embedding_forward(k, run->stream[0], params[m->root.embed], run->speech.lists.codec,
                         run->rows, hidden, KERNELS_ADD | model_table_flags(m));
    add_codes(run, params);
}

static void codes_backward(model_run *run, float *const *grads) {
    const model *m = run->m;
    const size_t hidden = m->c.hidden, frames = run->speech.frames;
    kernels *k = run->k;
    if (grads[m->root.embed])
        k->embedding_backward(k, grads[m->root.embed], run->dstream, run->speech.lists.codec,
                              run->rows, m->c.classes, hidden);
    k->embedding_forward(k, run->speech.of_frames, run->dstream, run->speech.lists.at, frames,
                         hidden, 0);
    for (size_t code = 1; code < m->c.speech->groups; code++) {
        float *dtable = grads[m->speech.tables[code - 1]];
        if (dtable)
            k->embedding_backward(k, dtable, run->speech.of_frames, model_speech_codes(run, code),
                                  frames, m->inner->c.classes, hidden);
    }
}

static bool has_gradient(const linear *l, float *const *grads) {
    return grads[l->weight] || grads[l->bias];
}

/* Computes the gradients of the parameters for text, which are frozen when a model is tuned on a
 * voice. */
static void text_backward(model_run *run, const float *const *params, float *const *grads) {
    const model *m = run->m;
    const speech_parts *p = &m->speech;
    speech_run *s = &run->speech;
    kernels *k = run->k;
    const size_t n = text_elements(run);
    const operand dstream = {.wide = run->dstream,
                             .narrow = m->type == KERNELS_BF16 ? run->dstream_rounded : NULL};
    const bool deeper = grads[p->text] || has_gradient(&p->rise, grads);
    if (!deeper && !has_gradient(&p->fall, grads)) return;
    embed_text(run, params);
    model_linear_backward(run, &p->fall, deeper ? s->mid : NULL, dstream, text_operand(run, s->mid),
                          run->rows, params, grads, 0);
    if (!deeper) return;
    k->activation_backward(k, NULL, s->mid, s->mid, s->risen, n, m->c.activation, KERNELS_F32);
    model_linear_backward(run, &p->rise, grads[p->text] ? s->risen : NULL,
                          model_operand_of(run, run->dout, s->mid, n), text_operand(run, s->text),
                          run->rows, params, grads, 0);
    if (grads[p->text])
        k->embedding_backward(k, grads[p->text], s->risen, s->lists.text, run->rows,
                              m->c.speech->texts, m->c.speech->text_hidden);
}

static void speech_backward(model_run *run, size_t layer, const float *const *params,
                            float *const *grads) {
    (void)layer;
    codes_backward(run, grads);
    text_backward(run, params, grads);
}

const stage_kind stage_speech = {
    .work = speech_work, .forward = speech_forward, .backward = speech_backward};

/* How samples enter the stream: tokens through an embedding, images as projected patches after a
 * class token, vectors unchanged. Learned positions are added. */

/* Adds the learned position of each token in its document. */
static void add_places(model_run *run, const float *const *params) {
    run->k->embedding_forward(run->k, run->stream[0], params[run->m->root.positions],
                              run->samples.places, run->rows, run->m->c.hidden,
                              KERNELS_ADD | model_table_flags(run->m));
}

/* Adds the learned positions. Without packing, these are the same [length,hidden] for every sample;
 * for a text that arrives in pieces, they continue after the positions of earlier pieces. */
static void add_positions(model_run *run, const float *const *params) {
    const size_t place = run->m->root.positions, sample = run->length * run->m->c.hidden;
    if (place == NO_PLACE) return;
    if (run->shape.packed) {
        add_places(run, params);
        return;
    }
    const float *positions = params[place] + run->cache.past * run->m->c.hidden;
    run->k->copy_rows(run->k, run->stream[0], sample,
                      model_operand_rounded(run, 0, positions, sample), 0, run->batch, sample,
                      KERNELS_ADD);
}

static void add_positions_backward(model_run *run, float *const *grads) {
    const size_t place = run->m->root.positions, sample = run->length * run->m->c.hidden;
    if (place == NO_PLACE || !grads[place]) return;
    if (run->shape.packed)
        run->k->embedding_backward(run->k, grads[place], run->dstream, run->samples.places,
                                   run->rows, run->m->c.max_positions, run->m->c.hidden);
    else
        run->k->sum_rows(run->k, grads[place], run->dstream, sample, run->batch, sample);
}

static void tokens_forward(model_run *run, size_t layer, const float *const *params) {
    (void)layer;
    run->k->embedding_forward(run->k, run->stream[0], params[run->m->root.embed], run->samples.ids,
                              run->rows, run->m->c.hidden, model_table_flags(run->m));
    add_positions(run, params);
}

static void tokens_backward(model_run *run, size_t layer, const float *const *params,
                            float *const *grads) {
    (void)layer, (void)params;
    add_positions_backward(run, grads);
    float *dtable = grads[run->m->root.embed];
    if (dtable)
        run->k->embedding_backward(run->k, dtable, run->dstream, run->samples.ids, run->rows,
                                   run->m->c.classes, run->m->c.hidden);
}

const stage_kind stage_tokens = {.forward = tokens_forward, .backward = tokens_backward};

static void image_work(model_run *run, arena *a) {
    const size_t rows = run->batch * model_patches(run->m);
    run->patches = model_arena_floats(a, rows, model_patch_dim(run->m));
    run->projected = model_arena_floats(a, rows, run->m->c.hidden);
}

static void cut_patches(model_run *run) {
    const model_config *c = &run->m->c;
    const kernels_patches shape = {.batch = run->batch,
                                   .channels = c->channels,
                                   .height = c->image[0],
                                   .width = c->image[1],
                                   .patch_height = c->patch[0],
                                   .patch_width = c->patch[1]};
    run->k->patches(run->k, run->patches, run->samples.values, &shape);
}

static operand patches_operand(model_run *run) {
    const size_t rows = run->batch * model_patches(run->m);
    return model_operand_of(run, run->in, run->patches, rows * model_patch_dim(run->m));
}

static void image_forward(model_run *run, size_t layer, const float *const *params) {
    (void)layer;
    kernels *k = run->k;
    const root_parts *root = &run->m->root;
    const size_t hidden = run->m->c.hidden, patches = model_patches(run->m);
    const size_t sample = run->length * hidden;
    float *stream = run->stream[0];
    cut_patches(run);
    model_linear_forward(run, &root->patches, run->projected, patches_operand(run),
                         run->batch * patches, params, 0);
    k->copy_rows(k, stream, sample,
                 model_operand_rounded(run, 0, params[root->class_token], hidden), 0, run->batch,
                 hidden, 0);
    k->copy_rows(k, stream + hidden, sample, run->projected, patches * hidden, run->batch,
                 patches * hidden, 0);
    add_positions(run, params);
}

static void image_backward(model_run *run, size_t layer, const float *const *params,
                           float *const *grads) {
    (void)layer;
    kernels *k = run->k;
    const root_parts *root = &run->m->root;
    const size_t hidden = run->m->c.hidden, patches = model_patches(run->m);
    const size_t sample = run->length * hidden;
    add_positions_backward(run, grads);
    if (grads[root->class_token])
        k->sum_rows(k, grads[root->class_token], run->dstream, sample, run->batch, hidden);
    k->copy_rows(k, run->projected, patches * hidden, run->dstream + hidden, sample, run->batch,
                 patches * hidden, 0);
    cut_patches(run);
    model_linear_backward(
        run, &root->patches, NULL,
        model_operand_of(run, run->dout, run->projected, run->batch * patches * hidden),
        patches_operand(run), run->batch * patches, params, grads, 0);
}

const stage_kind stage_image = {
    .work = image_work, .forward = image_forward, .backward = image_backward};

static void vector_forward(model_run *run, size_t layer, const float *const *params) {
    (void)layer, (void)params;
    run->k->copy(run->k, run->stream[0], run->samples.values, run->rows * model_width(run->m, 0));
}

static void vector_backward(model_run *run, size_t layer, const float *const *params,
                            float *const *grads) {
    (void)run, (void)layer, (void)params, (void)grads;
}

const stage_kind stage_vector = {.forward = vector_forward, .backward = vector_backward};

/* The hidden layer of a plain MLP: linear, then its activation. */

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

/* How the loss is computed: the output of the last block, normed if the family does that, passes
 * through a linear layer into cross-entropy. A classifier of images uses only the class token. */

static float *last(const model_run *run) { return run->stream[run->m->c.layers]; }

static void head_keep(model_run *run, arena *a, size_t layer) {
    (void)layer;
    const bool all = run->counted == run->rows;
    run->picked = model_arena_floats(a, all ? 0 : run->counted, run->m->c.hidden);
    run->lse = model_arena_floats(a, run->counted, 1);
    run->losses = model_arena_allocate(a, run->counted, sizeof(double));
}

static void head_work(model_run *run, arena *a) {
    run->logits = model_arena_typed(a, run->counted, run->m->c.classes, model_logits_type(run->m));
}

/* Returns the rows that the head reads: all rows, or the first row of each sample or, for a text
 * that arrives in pieces, the last row. */
static const float *pick(model_run *run) {
    const size_t hidden = run->m->c.hidden;
    if (run->counted == run->rows) return last(run);
    const float *from = last(run) + (run->cache.capacity ? run->length - 1 : 0) * hidden;
    run->k->copy_rows(run->k, run->picked, hidden, from, run->length * hidden, run->counted, hidden,
                      0);
    return run->picked;
}

/* The linear layer's input, computed from the picked rows. */
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

/* Copies the gradient of the picked rows to their places; the gradient of the other rows is 0. */
static void put_back(model_run *run) {
    const size_t hidden = run->m->c.hidden;
    run->k->zero(run->k, run->dstream, run->rows * hidden);
    run->k->copy_rows(run->k, run->dstream, run->length * hidden, run->dnormed, hidden,
                      run->counted, hidden, 0);
    if (run->m->type == KERNELS_BF16)
        run->k->narrow(run->k, run->dstream_rounded, run->dstream, run->rows * hidden);
}

/* Replaces logits by their gradient. */
static operand dlogits_of(model_run *run) {
    const kernels_type type = model_logits_type(run->m);
    run->k->cross_entropy_backward(run->k, run->logits, run->logits, type, run->lse,
                                   run->samples.targets, run->counted, run->m->c.classes,
                                   run->scale);
    return model_operand_typed(run, type, run->dout, run->logits, run->counted * run->m->c.classes);
}

/* A talker's predictor has already stored its gradient of the same rows in dstream, so the head's
 * gradient is added. */
static void head_backward(model_run *run, size_t layer, const float *const *params,
                          float *const *grads) {
    (void)layer;
    const root_parts *root = &run->m->root;
    const bool all = run->counted == run->rows, has_norm = root->final.dim > 0;
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
