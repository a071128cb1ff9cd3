/* How frames enter a talker's predictor, and what it says of their codes. A frame's rows are what
 * left the talker before it, normed, and the embeddings of its codes but the last; row i + 1 goes
 * through a head of its own to code i + 1. Lists of frames are one after the other in memory, so
 * that a code's are one array: rows of a frame are copied to and from them. */
#include "models/layers.h"
#include "models/speech.h"

static size_t rows_of_frame(const model_run *run) { return run->length; }
static const model *talker_of(const model_run *run) { return run->outer->m; }
static int is_projected(const model_run *run) { return talker_of(run)->speech.projection.out > 0; }

static void frames_keep(model_run *run, arena *a, size_t layer) {
    (void)layer;
    const size_t hidden = talker_of(run)->c.hidden;
    run->frames.before = model_arena_floats(a, run->batch, hidden);
    model_norm_lay_out(&talker_of(run)->root.final, a, run->batch, &run->frames.before_stats);
    run->frames.inputs = model_arena_floats(a, is_projected(run) ? run->rows : 0, hidden);
    if (!is_projected(run)) run->frames.inputs = run->stream[0];
}

static void frames_work(model_run *run, arena *a) {
    const size_t hidden = talker_of(run)->c.hidden;
    run->frames.column = model_arena_floats(a, run->batch, hidden);
    run->frames.dinputs = model_arena_floats(a, is_projected(run) ? run->rows : 0, hidden);
    if (!is_projected(run)) run->frames.dinputs = run->dstream;
}

/* Row i of each frame, from or to the column. */
static void put_column(model_run *run, size_t i) {
    const size_t hidden = talker_of(run)->c.hidden;
    run->k->copy_rows(run->k, run->frames.inputs + i * hidden, rows_of_frame(run) * hidden,
                      run->frames.column, hidden, run->batch, hidden, 0);
}

static void take_column(model_run *run, size_t i) {
    const size_t hidden = talker_of(run)->c.hidden;
    run->k->copy_rows(run->k, run->frames.column, hidden, run->frames.dinputs + i * hidden,
                      rows_of_frame(run) * hidden, run->batch, hidden, 0);
}

/* In fp32, whatever the model computes in: it is no operand of a product yet. */
static void put_before(model_run *run, const float *const *params) {
    model_run *outer = run->outer;
    const norm *n = &outer->m->root.final;
    kernels *k = run->k;
    k->embedding_forward(k, run->frames.before, outer->stream[outer->m->c.layers],
                         outer->speech.lists.before, run->batch, n->dim, 0);
    k->rmsnorm_forward(
        k, run->frames.column, KERNELS_F32, run->frames.before_stats.rstd, run->frames.before,
        model_operand_rounded(outer, 0, params[n->weight], n->dim), run->batch, n->dim, n->eps);
    put_column(run, 0);
}

/* The table of a code; the first one's is the talker's. */
static size_t table_of(const model_run *run, size_t code) {
    const model *m = talker_of(run);
    return code ? m->speech.tables[code - 1] : m->root.embed;
}

static operand inputs_operand(model_run *run) {
    return model_operand_of(run, run->in, run->frames.inputs, run->rows * talker_of(run)->c.hidden);
}

static void frames_forward(model_run *run, size_t layer, const float *const *params) {
    (void)layer;
    put_before(run, params);
    for (size_t code = 0; code + 1 < rows_of_frame(run); code++) {
        run->k->embedding_forward(run->k, run->frames.column, params[table_of(run, code)],
                                  model_speech_codes(run->outer, code), run->batch,
                                  talker_of(run)->c.hidden, model_table_flags(run->m));
        put_column(run, code + 1);
    }
    if (is_projected(run))
        model_linear_forward(run, &talker_of(run)->speech.projection, run->stream[0],
                             inputs_operand(run), run->rows, params, 0);
}

/* The talker's gradient begins with that of the rows before frames. */
static void before_backward(model_run *run, const float *const *params, float *const *grads) {
    model_run *outer = run->outer;
    const norm *n = &outer->m->root.final;
    float *column = run->frames.column;
    kernels *k = run->k;
    take_column(run, 0);
    model_norm_backward(outer, n, column, column, run->frames.before, run->batch, params, grads,
                        &run->frames.before_stats, 0);
    k->zero(k, outer->dstream, outer->rows * n->dim);
    k->embedding_backward(k, outer->dstream, column, outer->speech.lists.before, run->batch,
                          outer->rows, n->dim);
}

static void frames_backward(model_run *run, size_t layer, const float *const *params,
                            float *const *grads) {
    (void)layer;
    const model *m = talker_of(run);
    if (is_projected(run)) {
        const operand dy = {.wide = run->dstream,
                            .narrow = m->type == KERNELS_BF16 ? run->dstream_rounded : NULL};
        model_linear_backward(run, &m->speech.projection, run->frames.dinputs, dy,
                              inputs_operand(run), run->rows, params, grads, 0);
    }
    before_backward(run, params, grads);
    for (size_t code = 0; code + 1 < rows_of_frame(run); code++) {
        float *dtable = grads[table_of(run, code)];
        if (!dtable) continue;
        take_column(run, code + 1);
        run->k->embedding_backward(run->k, dtable, run->frames.column,
                                   model_speech_codes(run->outer, code), run->batch,
                                   code ? run->m->c.classes : m->c.classes, m->c.hidden);
    }
}

const stage_kind stage_frames = {.keep = frames_keep,
                                 .work = frames_work,
                                 .forward = frames_forward,
                                 .backward = frames_backward};

static void codes_keep(model_run *run, arena *a, size_t layer) {
    (void)layer;
    run->frames.picked = model_arena_floats(a, run->counted, run->m->c.hidden);
    run->lse = model_arena_floats(a, run->counted, 1);
    run->losses = model_arena_take(a, run->counted, sizeof(double));
}

static void codes_work(model_run *run, arena *a) {
    run->logits = model_arena_floats(a, run->counted, run->m->c.classes);
}

/* Rows 1 ... of each frame, those of a head one after the other. */
static void pick_rows(model_run *run) {
    const size_t hidden = run->m->c.hidden, each = run->batch * hidden;
    for (size_t head = 0; head + 1 < rows_of_frame(run); head++)
        run->k->copy_rows(run->k, run->frames.picked + head * each, hidden,
                          run->stream[run->m->c.layers] + (head + 1) * hidden,
                          rows_of_frame(run) * hidden, run->batch, hidden, 0);
}

/* Their gradient goes back to where they stand; the first row of a frame has none. */
static void put_back(model_run *run) {
    const size_t hidden = run->m->c.hidden, each = run->batch * hidden;
    run->k->zero(run->k, run->dstream, run->rows * hidden);
    for (size_t head = 0; head + 1 < rows_of_frame(run); head++)
        run->k->copy_rows(run->k, run->dstream + (head + 1) * hidden, rows_of_frame(run) * hidden,
                          run->dnormed + head * each, hidden, run->batch, hidden, 0);
    if (run->m->type == KERNELS_BF16)
        run->k->narrow(run->k, run->dstream_rounded, run->dstream, run->rows * hidden);
}

static void norm_picked(model_run *run, const float *const *params) {
    model_norm_forward(run, &run->m->root.final, run->normed, run->frames.picked, run->counted,
                       params, &run->stats);
}

/* A head's rows of what was normed. */
static operand normed_of(model_run *run, size_t head) {
    const size_t each = run->batch * run->m->c.hidden;
    if (run->m->type == KERNELS_BF16)
        return (operand){.narrow = (const uint16_t *)run->normed + head * each};
    return (operand){.wide = (const float *)run->normed + head * each};
}

/* Of a head's, which are fp32. */
static float *logits_of(model_run *run, size_t head) {
    return (float *)run->logits + head * run->batch * run->m->c.classes;
}

static void codes_forward(model_run *run, size_t layer, const float *const *params) {
    (void)layer;
    pick_rows(run);
    norm_picked(run, params);
    for (size_t head = 0; head + 1 < rows_of_frame(run); head++)
        model_linear_forward(run, &talker_of(run)->speech.heads[head], logits_of(run, head),
                             normed_of(run, head), run->batch, params, 0);
    run->k->cross_entropy_forward(run->k, run->losses, run->lse, run->logits, KERNELS_F32,
                                  run->samples.targets, run->counted, run->m->c.classes);
}

static void codes_backward(model_run *run, size_t layer, const float *const *params,
                           float *const *grads) {
    (void)layer;
    const size_t each = run->batch * run->m->c.hidden, n = run->batch * run->m->c.classes;
    norm_picked(run, params);
    run->k->cross_entropy_backward(run->k, run->logits, run->logits, KERNELS_F32, run->lse,
                                   run->samples.targets, run->counted, run->m->c.classes,
                                   run->scale);
    for (size_t head = 0; head + 1 < rows_of_frame(run); head++)
        model_linear_backward(run, &talker_of(run)->speech.heads[head], run->dnormed + head * each,
                              model_operand_of(run, run->dout, logits_of(run, head), n),
                              normed_of(run, head), run->batch, params, grads, 0);
    model_norm_backward(run, &run->m->root.final, run->dnormed, run->dnormed, run->frames.picked,
                        run->counted, params, grads, &run->stats, 0);
    put_back(run);
}

const stage_kind stage_codes = {
    .keep = codes_keep, .work = codes_work, .forward = codes_forward, .backward = codes_backward};
