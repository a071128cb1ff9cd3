/* A sample of t ids of text and T frames is t + T + 7 rows:
 *
 *     row     0-2     3        4            5          6        7    8...t+4   t+5  t+6    t+7+j
 *     text    header  pad      pad          pad        pad      bos  the text  eos  pad    pad
 *     codec           nothink  think_bos    think_eos  speaker  pad  pad       pad  bos    frame j
 *
 * followed by rows with only a pad of the text channel, which no earlier row sees under a causal
 * mask. A row is the sum of the embeddings of both channels; a frame contributes the embeddings of
 * all its codes. The row before a frame predicts the frame's first code, and the last frame's row
 * predicts the end. For each frame, the predictor receives the talker's output of the row before
 * it, and then the frame's codes, and predicts each code from the codes before it. */
#include "models/speech.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "models/layers.h"
#include "programs/fail.h"

enum { HEADER = SAMPLE_SPEECH_HEADER, AROUND = SAMPLE_SPEECH_AROUND, NONE = -1 };

static size_t groups_in(const model_run *run) { return run->m->c.speech->groups; }

int model_speech_begin(model_run *run, dcp_error *err) {
    const model *inner = run->m->inner;
    const uint64_t frames = run->m->frames, groups = groups_in(run);
    const uint64_t most = (INT32_MAX - SPEECH_FRAMES_STEP * groups) / groups / run->batch;
    if (!frames || frames > most)
        return core_fail(err, DCP_ERR_ARG,
                         "a micro-batch of %zu x %" PRIu64 " frames of %" PRIu64
                         " codes: a micro-batch must have from 1 to 2^31-1 codes in all; change "
                         "train_micro_batch_size_per_gpu or data.frames",
                         run->batch, frames, groups);
    run->counted = run->rows;
    run->speech.frames =
        (run->batch * frames + SPEECH_FRAMES_STEP - 1) / SPEECH_FRAMES_STEP * SPEECH_FRAMES_STEP;
    model_run *own = run->inner = calloc(1, sizeof *own);
    if (!own) return core_fail_memory(err, sizeof *own);
    own->m = inner;
    own->k = run->k;
    own->outer = run;
    own->batch = run->speech.frames;
    own->length = groups;
    own->rows = own->batch * own->length;
    own->counted = own->batch * (groups - 1);
    return DCP_OK;
}

static size_t list_entries(const model_run *run) {
    return 2 * run->rows + (1 + 2 * groups_in(run)) * run->speech.frames;
}

static speech_lists lists_at(const model_run *run, int32_t *memory) {
    const size_t rows = run->rows, frames = run->speech.frames;
    speech_lists l = {.text = memory};
    if (!memory) return l;
    l.codec = l.text + rows;
    l.at = l.codec + rows;
    l.before = l.at + frames;
    l.codes = l.before + frames;
    l.targets = l.codes + groups_in(run) * frames;
    return l;
}

void model_speech_lay_out(model_run *run, arena *a) {
    run->speech.lists = lists_at(run, model_arena_allocate(a, list_entries(run), sizeof(int32_t)));
    run->samples.values = model_arena_floats(a, run->batch, run->m->c.hidden);
    run->samples.targets = model_arena_allocate(a, run->counted, sizeof *run->samples.targets);
    run->inner->samples.targets = run->speech.lists.targets;
}

int model_speech_allocate_lists(model_run *run, dcp_error *err) {
    const size_t bytes = list_entries(run) * sizeof(int32_t);
    int32_t *memory = malloc(bytes);
    if (!memory) return core_fail_memory(err, bytes);
    run->speech.host = lists_at(run, memory);
    return DCP_OK;
}

/* One sample: its ids and targets, its number in the batch, and how many ids of text (t) and frames
 * (T) it has. */
typedef struct speech_sample {
    const int32_t *text, *codes; /* [t], [T, groups] */
    const int32_t *targets;      /* [tokens], then [frames, groups - 1] */
    uint64_t number, t, T;
} speech_sample;

/* Counts the entries before the first NONE, among n entries of `width` ids each. */
static uint64_t count_given(const int32_t *ids, uint64_t n, uint64_t width) {
    uint64_t given = 0;
    while (given < n && ids[given * width] != NONE) given++;
    return given;
}

static speech_sample sample_of(const model_run *run, const sample_batch *batch, uint64_t i) {
    const sample_shape *shape = &run->shape;
    const sample_batch at = model_sample_batch_at(batch, shape, i);
    const int32_t *codes = at.ids + shape->tokens;
    return (speech_sample){.text = at.ids,
                           .codes = codes,
                           .targets = at.targets,
                           .number = i,
                           .t = count_given(at.ids, shape->tokens, 1),
                           .T = count_given(codes, shape->frames, shape->groups)};
}

static int check_below(const int32_t *ids, uint64_t n, uint64_t below, const char *what,
                       uint64_t sample, dcp_error *err) {
    for (uint64_t i = 0; i < n; i++)
        if (ids[i] < 0 || (uint64_t)ids[i] >= below)
            return core_fail(
                err, DCP_ERR_ARG,
                "%s %" PRId32 " at place %" PRIu64 " of sample %" PRIu64
                " of the micro-batch is outside the model's range: it must be below %" PRIu64,
                what, ids[i], i, sample, below);
    return DCP_OK;
}

static int check_targets(const int32_t *targets, uint64_t n, uint64_t below, uint64_t sample,
                         dcp_error *err) {
    int status = DCP_OK;
    for (uint64_t i = 0; i < n && !status; i++)
        if (targets[i] != SAMPLE_IGNORE)
            status = check_below(targets + i, 1, below, "target", sample, err);
    return status;
}

static int check_sample(const model_run *run, const speech_sample *s, dcp_error *err) {
    const sample_shape *shape = &run->shape;
    const uint64_t others = shape->frames * (shape->groups - 1);
    if (s->t < SAMPLE_SPEECH_LEAST_TEXT || s->T < 1 || s->t + s->T + AROUND > shape->tokens)
        return core_fail(
            err, DCP_ERR_ARG,
            "sample %" PRIu64 " of the micro-batch has %" PRIu64 " ids of text and %" PRIu64
            " frames; with %d more positions, a sample must have %d to %" PRIu64,
            s->number, s->t, s->T, AROUND, AROUND + SAMPLE_SPEECH_LEAST_TEXT + 1, shape->tokens);
    int status = check_below(s->text, s->t, shape->texts, "text id", s->number, err);
    for (uint64_t j = 0; j < s->T && !status; j++) {
        const int32_t *frame = s->codes + j * shape->groups;
        status = check_below(frame, 1, shape->classes, "code", s->number, err);
        if (!status)
            status =
                check_below(frame + 1, shape->groups - 1, shape->codes, "code", s->number, err);
    }
    if (!status) status = check_targets(s->targets, shape->tokens, shape->classes, s->number, err);
    return status ? status
                  : check_targets(s->targets + shape->tokens, others, shape->codes, s->number, err);
}

/* Fills in the text channel, [rows of a sample]. */
static void put_text(const model_run *run, const speech_sample *s, int32_t *text) {
    const speech_config *c = run->m->c.speech;
    for (size_t i = 0; i < run->length; i++) text[i] = (int32_t)c->text_pad;
    memcpy(text, s->text, HEADER * sizeof *text);
    text[AROUND] = (int32_t)c->text_begin;
    memcpy(text + AROUND + 1, s->text + HEADER, (s->t - HEADER) * sizeof *text);
    text[s->t + AROUND - 2] = (int32_t)c->text_end;
}

/* Fills in the codec channel, with only the first code of each frame. */
static void put_codec(const model_run *run, const speech_sample *s, int32_t *codec) {
    const speech_config *c = run->m->c.speech;
    const size_t first = s->t + AROUND;
    for (size_t i = 0; i < run->length; i++) codec[i] = NONE;
    codec[HEADER] = (int32_t)c->no_think;
    codec[HEADER + 1] = (int32_t)c->think_begin;
    codec[HEADER + 2] = (int32_t)c->think_end;
    for (size_t i = SPEECH_SPEAKER + 1; i + 1 < first; i++) codec[i] = (int32_t)c->pad;
    codec[first - 1] = (int32_t)c->begin;
    for (uint64_t j = 0; j < s->T; j++) codec[first + j] = s->codes[j * c->groups];
}

/* Fills in the sample's frames; the rest of its room for frames remains unused. */
static void put_frames(const model_run *run, const speech_sample *s, const speech_lists *l) {
    const size_t groups = groups_in(run), all = run->speech.frames;
    const size_t first = s->number * run->length + s->t + AROUND;
    const int32_t *targets = s->targets + run->shape.tokens;
    for (uint64_t j = 0; j < s->T; j++) {
        const size_t frame = s->number * run->shape.frames + j;
        l->at[frame] = (int32_t)(first + j);
        l->before[frame] = (int32_t)(first + j) - 1;
        for (size_t i = 0; i < groups; i++) l->codes[i * all + frame] = s->codes[j * groups + i];
        for (size_t i = 0; i + 1 < groups; i++)
            l->targets[i * all + frame] = targets[j * (groups - 1) + i];
    }
}

static void put_sample(const model_run *run, const speech_sample *s) {
    const speech_lists *l = &run->speech.host;
    put_text(run, s, l->text + s->number * run->length);
    put_codec(run, s, l->codec + s->number * run->length);
    put_frames(run, s, l);
}

static void upload(model_run *run, const sample_batch *batch) {
    kernels *k = run->k;
    const size_t tokens = run->shape.tokens, targets = run->shape.targets;
    k->upload(k, run->speech.lists.text, run->speech.host.text,
              list_entries(run) * sizeof(int32_t));
    k->upload(k, run->samples.values, batch->values, run->batch * run->m->c.hidden * sizeof(float));
    for (size_t i = 0; i < run->batch; i++)
        k->upload(k, run->samples.targets + i * tokens, batch->targets + i * targets,
                  tokens * sizeof *batch->targets);
}

int model_speech_set(model_run *run, const sample_batch *batch, dcp_error *err) {
    const size_t frames = run->speech.frames, groups = groups_in(run);
    const speech_lists *l = &run->speech.host;
    for (size_t i = 0; i < (2 + groups) * frames; i++) l->at[i] = NONE; /* also `before`, `codes` */
    for (size_t i = 0; i < (groups - 1) * frames; i++) l->targets[i] = SAMPLE_IGNORE;
    for (size_t i = 0; i < run->batch; i++) {
        const speech_sample s = sample_of(run, batch, i);
        const int status = check_sample(run, &s, err);
        if (status) return status;
        put_sample(run, &s);
    }
    upload(run, batch);
    return DCP_OK;
}

/* How frames enter a talker's predictor, and how it predicts their codes. A frame's first row is
 * the talker's normed output of the row before the frame; the others are the embeddings of all its
 * codes except the last. Row i + 1 predicts code i + 1 through a head of its own. The lists of
 * frames are contiguous for each code, so an embedding fills a column, which has one row of each
 * frame; columns are copied to and from the frames' rows. */

static size_t rows_of_frame(const model_run *run) { return run->length; }
static const model *talker_of(const model_run *run) { return run->outer->m; }
static bool is_projected(const model_run *run) { return talker_of(run)->speech.projection.out > 0; }

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

/* Copies row i of each frame from, or to, the column. */
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

/* Fills in the first row of each frame. The row is fp32 even if the model computes in bf16, because
 * it is not an operand of a product yet. */
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

/* The table of a code; the first code uses the talker's table. */
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

/* Sets the gradient of the talker's stream to the gradient of the rows before frames, to which the
 * talker's own backward pass then adds. */
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
    run->losses = model_arena_allocate(a, run->counted, sizeof(double));
}

static void codes_work(model_run *run, arena *a) {
    run->logits = model_arena_floats(a, run->counted, run->m->c.classes);
}

/* Copies all rows of each frame except the first, so that the rows of a head are contiguous. */
static void pick_rows(model_run *run) {
    const size_t hidden = run->m->c.hidden, each = run->batch * hidden;
    for (size_t head = 0; head + 1 < rows_of_frame(run); head++)
        run->k->copy_rows(run->k, run->frames.picked + head * each, hidden,
                          run->stream[run->m->c.layers] + (head + 1) * hidden,
                          rows_of_frame(run) * hidden, run->batch, hidden, 0);
}

/* Copies the gradient of the picked rows to their places; the gradient of each frame's first row is
 * 0. */
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

/* The normed rows of a head. */
static operand normed_of(model_run *run, size_t head) {
    const size_t each = run->batch * run->m->c.hidden;
    if (run->m->type == KERNELS_BF16)
        return (operand){.narrow = (const uint16_t *)run->normed + head * each};
    return (operand){.wide = (const float *)run->normed + head * each};
}

/* The logits of a head, which are fp32. */
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
