/* How a talker's samples enter the stream: the text through a table and two linear layers with an
 * activation between, onto which codes and the speaker's vector are added. Gradients of the tables
 * of codes are added up with those that the predictor's input leaves. */
#include "models/layers.h"
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

/* Up to the activation. */
static void embed_text(model_run *run, const float *const *params) {
    const speech_parts *p = &run->m->speech;
    speech_run *s = &run->speech;
    run->k->embedding_forward(run->k, s->text, params[p->text], s->lists.text, run->rows,
                              run->m->c.speech->text_hidden, model_table_flags(run->m));
    model_linear_forward_activated(run, &p->rise, s->risen, s->mid, text_operand(run, s->text),
                                   run->rows, params);
}

/* Codes but the first, each from a table of its own. */
static void add_codes(model_run *run, const float *const *params) {
    const model *m = run->m;
    const size_t hidden = m->c.hidden, frames = run->speech.frames;
    kernels *k = run->k;
    for (size_t code = 1; code < m->c.speech->groups; code++)
        k->embedding_forward(k, run->speech.of_frames, params[m->speech.tables[code - 1]],
                             model_speech_codes(run, code), frames, hidden,
                             model_table_flags(m) | (code > 1 ? KERNELS_ADD : 0));
    /* Each row has one frame at most. */
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

static int has_gradient(const linear *l, float *const *grads) {
    return grads[l->weight] || grads[l->bias];
}

/* What leaves the talker's text; a model that is tuned on a voice has it frozen. */
static void text_backward(model_run *run, const float *const *params, float *const *grads) {
    const model *m = run->m;
    const speech_parts *p = &m->speech;
    speech_run *s = &run->speech;
    kernels *k = run->k;
    const size_t n = text_elements(run);
    const operand dstream = {.wide = run->dstream,
                             .narrow = m->type == KERNELS_BF16 ? run->dstream_rounded : NULL};
    const int deeper = grads[p->text] || has_gradient(&p->rise, grads);
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
