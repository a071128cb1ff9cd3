/* A sample of t ids of text and T frames is t + T + 7 rows:
 *
 *     row     0-2     3        4            5          6        7    8...t+4   t+5  t+6    t+7+j
 *     text    header  pad      pad          pad        pad      bos  the text  eos  pad    pad
 *     codec           nothink  think_bos    think_eos  speaker  pad  pad       pad  bos    frame j
 *
 * and pads of text alone behind them, which under a causal mask nothing before them sees. A row is
 * the sum of both channels; of a frame, of all its codes. The row before a frame predicts its first
 * code, and the last one the end; the predictor gets what leaves the talker there, and then the
 * frame's codes, to predict each from those before it. */
#include "models/speech.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

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
                         " codes: from 1 to 2^31-1 in all are possible; change "
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
    run->speech.lists = lists_at(run, model_arena_take(a, list_entries(run), sizeof(int32_t)));
    run->samples.values = model_arena_floats(a, run->batch, run->m->c.hidden);
    run->samples.targets = model_arena_take(a, run->counted, sizeof *run->samples.targets);
    run->inner->samples.targets = run->speech.lists.targets;
}

int model_speech_take_lists(model_run *run, dcp_error *err) {
    const size_t bytes = list_entries(run) * sizeof(int32_t);
    int32_t *memory = malloc(bytes);
    if (!memory) return core_fail_memory(err, bytes);
    run->speech.host = lists_at(run, memory);
    return DCP_OK;
}

/* One sample: its ids and targets, and how much of these there is. */
typedef struct speech_sample {
    const int32_t *text, *codes; /* [t], [T, groups] */
    const int32_t *targets;      /* [tokens], then [frames, groups - 1] */
    uint64_t number, t, T;
} speech_sample;

/* Ids before the first that is none, of n with `width` each. */
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
            return core_fail(err, DCP_ERR_ARG,
                             "%s %" PRId32 " at place %" PRIu64 " of sample %" PRIu64
                             " of the micro-batch is outside the model's, which lie below %" PRIu64,
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
        return core_fail(err, DCP_ERR_ARG,
                         "sample %" PRIu64 " of the micro-batch has %" PRIu64
                         " ids of text and %" PRIu64 " frames, which with %d more are not %d to "
                         "%" PRIu64 " positions",
                         s->number, s->t, s->T, AROUND, AROUND + SAMPLE_SPEECH_LEAST_TEXT + 1,
                         shape->tokens);
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

/* The text channel, [rows of a sample]. */
static void put_text(const model_run *run, const speech_sample *s, int32_t *text) {
    const speech_config *c = run->m->c.speech;
    for (size_t i = 0; i < run->length; i++) text[i] = (int32_t)c->text_pad;
    memcpy(text, s->text, HEADER * sizeof *text);
    text[AROUND] = (int32_t)c->text_begin;
    memcpy(text + AROUND + 1, s->text + HEADER, (s->t - HEADER) * sizeof *text);
    text[s->t + AROUND - 2] = (int32_t)c->text_end;
}

/* The other one, without codes but the first of a frame. */
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

/* Frames beyond a sample's own are none. */
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
    for (size_t i = 0; i < (2 + groups) * frames; i++) l->at[i] = NONE; /* before and codes, too */
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
