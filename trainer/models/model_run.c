/* The memory of one micro-batch, its samples, and its stages in order. */
#include "models/model_run.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "models/layers.h"
#include "models/parts.h"
#include "models/speech.h"
#include "models/stages.h"
#include "programs/fail.h"

static void lay_out_stream(model_run *run, arena *a) {
    const model *m = run->m;
    for (size_t layer = 0; layer <= m->c.layers; layer++)
        run->stream[layer] = model_arena_floats(a, run->rows, model_width(m, layer));
    run->dstream = model_arena_floats(a, run->rows, m->c.hidden);
    run->dstream_rounded = model_arena_typed(
        a, m->type == KERNELS_BF16 && !m->c.sizes ? run->rows : 0, m->c.hidden, KERNELS_BF16);
    run->normed = model_arena_typed(a, run->rows, m->c.hidden, m->type);
    run->dnormed = model_arena_floats(a, run->rows, m->c.hidden);
}

static void lay_out_norms(model_run *run, arena *a) {
    const model *m = run->m;
    const size_t half = m->c.rope.theta > 0.0 ? m->c.head_dim / 2 : 0;
    model_norm_lay_out(&m->root.final, a, run->rows, &run->stats);
    run->unwanted =
        model_arena_floats(a, 1, m->c.hidden > m->c.head_dim ? m->c.hidden : m->c.head_dim);
    run->cosines = model_arena_floats(a, model_positions(run), half);
    run->sines = model_arena_floats(a, model_positions(run), half);
}

static void lay_out_samples(model_run *run, arena *a) {
    if (run->outer) return; /* the outer run has the samples */
    if (run->inner) {
        model_speech_lay_out(run, a);
        return;
    }
    const uint64_t values = model_sample_values(&run->shape);
    run->samples.ids =
        model_arena_allocate(a, run->batch * run->shape.tokens, sizeof *run->samples.ids);
    run->samples.values = model_arena_floats(a, run->batch, values);
    run->samples.places = model_arena_allocate(
        a, run->shape.packed ? run->batch * run->shape.tokens : 0, sizeof *run->samples.places);
    run->samples.targets = model_arena_allocate(a, run->counted, sizeof *run->samples.targets);
}

static void lay_out_keeps(model_run *run, arena *a) {
    const model *m = run->m;
    const arena first = *a;
    for (size_t layer = 0; layer < m->c.layers; layer++) {
        arena keep = m->checkpointing ? first : *a;
        m->body->keep(run, &keep, layer);
        model_arena_cover(a, &keep);
    }
}

static void lay_out_run(model_run *run, arena *a) {
    const model *m = run->m;
    const stage_kind *const kinds[] = {m->input, m->body, m->head};
    lay_out_samples(run, a);
    lay_out_stream(run, a);
    lay_out_norms(run, a);
    lay_out_keeps(run, a);
    model_cache_lay_out(run, a);
    if (m->input->keep) m->input->keep(run, a, 0);
    m->head->keep(run, a, 0);
    model_operand_lay_out(run, a);
    const arena before = *a;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        arena work = before;
        if (kinds[i]->work) kinds[i]->work(run, &work);
        model_arena_cover(a, &work);
    }
    /* The inner run must not share the work memory: it holds the outer run's logits while the inner
     * run's stages run. */
    if (run->inner) lay_out_run(run->inner, a);
}

static int check_batch_shape(const model *m, uint64_t batch, uint64_t sequence, dcp_error *err) {
    const uint64_t length = model_length(m, sequence);
    if (!batch || !length || batch > INT32_MAX / length)
        return core_fail(err, DCP_ERR_ARG,
                         "a micro-batch of %" PRIu64 " x %" PRIu64
                         " %s: a micro-batch must have from 1 to 2^31-1 in all; change "
                         "train_micro_batch_size_per_gpu or data.sequence_length",
                         batch, length, m->c.max_positions ? "tokens" : "rows");
    if (m->c.max_positions && sequence > m->c.max_positions)
        return core_fail(err, DCP_ERR_ARG,
                         "sequence length %" PRIu64 " is over the model's "
                         "max_position_embeddings %" PRIu64,
                         sequence, m->c.max_positions);
    return DCP_OK;
}

static int take_lists(model_run *run, dcp_error *err) {
    const size_t layers = run->m->c.layers;
    run->blocks = calloc(layers + 1, sizeof *run->blocks);
    run->stream = calloc(layers + 1, sizeof *run->stream);
    if (run->blocks && run->stream) return DCP_OK;
    return core_fail_memory(err, (layers + 1) * sizeof *run->blocks);
}

/* Computes the number of bytes that the run needs. */
static int measure_run(model_run *run, dcp_error *err) {
    int status = take_lists(run, err);
    if (!status && run->inner) status = take_lists(run->inner, err);
    if (status) return status;
    arena size = {0};
    lay_out_run(run, &size);
    if (size.overflow) return core_fail_memory(err, UINT64_MAX);
    run->bytes = size.used;
    return DCP_OK;
}

/* Sets the losses to 0. */
static int begin_losses(model_run *run, dcp_error *err) {
    run->host_losses = calloc(run->counted, sizeof *run->host_losses);
    if (!run->host_losses) return core_fail_memory(err, run->counted * sizeof(double));
    run->k->upload(run->k, run->losses, run->host_losses, run->counted * sizeof(double));
    return DCP_OK;
}

static int take_run_memory(model_run *run, dcp_error *err) {
    run->memory = run->k->alloc(run->k, run->bytes);
    if (!run->memory)
        return core_fail(err, DCP_ERR_NO_MEMORY,
                         "out of memory: %zu bytes of activations for a micro-batch of %zu x "
                         "%zu rows",
                         (size_t)run->bytes, run->batch, run->length);
    arena places = {.base = run->memory};
    lay_out_run(run, &places);
    int status = begin_losses(run, err);
    if (status || !run->inner) return status;
    status = begin_losses(run->inner, err);
    return status ? status : model_speech_allocate_lists(run, err);
}

/* Fills in the cosines and sines of the run's positions. */
static int fill_rope(model_run *run, dcp_error *err) {
    const size_t half = run->m->c.rope.theta > 0.0 ? run->m->c.head_dim / 2 : 0;
    const size_t n = model_positions(run) * half, bytes = n * sizeof(float);
    if (n == 0) return DCP_OK;
    float *table = malloc(2 * bytes + half * sizeof *table);
    if (!table) return core_fail_memory(err, 2 * bytes);
    float *frequencies = table + 2 * n;
    model_rope_frequencies(&run->m->c.rope, run->m->c.head_dim, frequencies);
    kernels_rope_table(table, table + n, model_positions(run), half, frequencies,
                       (float)run->m->c.rope.scale);
    run->k->upload(run->k, run->cosines, table, bytes);
    run->k->upload(run->k, run->sines, table + n, bytes);
    free(table);
    return DCP_OK;
}

/* Makes a run without its memory. room: the tokens for which the cache has room; 0: no cache. */
static int begin_run(const model *m, uint64_t batch, uint64_t sequence, uint64_t room,
                     model_run **out, dcp_error *err) {
    int status = check_batch_shape(m, batch, room ? room : sequence, err);
    if (status) return status;
    model_run *run = calloc(1, sizeof *run);
    if (!run) return core_fail_memory(err, sizeof *run);
    run->m = m;
    run->k = m->k;
    run->batch = batch;
    run->length = model_length(m, sequence);
    run->rows = batch * run->length;
    run->shape = model_sample(m, sequence);
    run->cache.capacity = room;
    if (room) run->shape.targets = 1;
    if (room) run->shape.packed = false; /* a cache holds a single text */
    run->counted = batch * run->shape.targets;
    status = m->inner ? model_speech_begin(run, err) : DCP_OK;
    if (!status) status = measure_run(run, err);
    if (status)
        model_run_destroy(run);
    else
        *out = run;
    return status;
}

int model_run_measure(const model *m, uint64_t batch, uint64_t sequence, uint64_t *bytes,
                      uint64_t *kept, dcp_error *err) {
    model_run *run;
    const int status = begin_run(m, batch, sequence, 0, &run, err);
    if (status) return status;
    *bytes = run->bytes;
    *kept = run->kept_bytes;
    if (run->inner) *kept += run->inner->kept_bytes;
    model_run_destroy(run);
    return DCP_OK;
}

static int create_run(const model *m, uint64_t batch, uint64_t sequence, uint64_t room,
                      model_run **out, dcp_error *err) {
    model_run *run;
    int status = begin_run(m, batch, sequence, room, &run, err);
    if (status) return status;
    status = take_run_memory(run, err);
    if (!status) status = fill_rope(run, err);
    if (!status && run->inner) status = fill_rope(run->inner, err);
    if (status)
        model_run_destroy(run);
    else
        *out = run;
    return status;
}

int model_run_create(const model *m, uint64_t batch, uint64_t sequence, model_run **out,
                     dcp_error *err) {
    return create_run(m, batch, sequence, 0, out, err);
}

int model_run_create_cached(const model *m, uint64_t piece, uint64_t room, model_run **out,
                            dcp_error *err) {
    if (m->c.input != INPUT_TOKENS || !m->c.causal || !kernels_on_host(m->k))
        return core_fail(err, DCP_ERR_ARG, "a cache requires a model of text, on the CPU");
    if (!piece || piece > room)
        return core_fail(err, DCP_ERR_ARG,
                         "pieces of %" PRIu64 " tokens in a cache for %" PRIu64
                         ": a piece must have at least one token and fit into the cache",
                         piece, room);
    const int status = create_run(m, 1, piece, room, out, err);
    if (status) return status;
    (*out)->cache.piece = piece;
    (*out)->length = 0; /* no piece yet */
    return DCP_OK;
}

void model_run_destroy(model_run *run) {
    if (!run) return;
    model_run_destroy(run->inner);
    run->k->free(run->k, run->memory);
    free(run->speech.host.text);
    free(run->host_losses);
    free(run->stream);
    free(run->blocks);
    free(run);
}

static int check_class(const model_run *run, const char *what, size_t at, int32_t class,
                       dcp_error *err) {
    const uint64_t classes = run->m->c.classes;
    if (class >= 0 && (uint64_t) class < classes) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG,
                     "%s %" PRId32 " at place %zu of the micro-batch is outside the model's %s "
                     "%" PRIu64,
                     what, class, at, run->shape.tokens ? "vocabulary of" : "classes, which number",
                     classes);
}

/* Checks the places of packed samples, because kernels use them to decide which keys to skip. */
static int check_places(const model_run *run, const int32_t *places, dcp_error *err) {
    const size_t n = run->shape.packed ? run->batch * run->shape.tokens : 0;
    for (size_t i = 0; i < n; i++) {
        const int32_t next = i % run->shape.tokens ? places[i - 1] + 1 : 0;
        if (places[i] == 0 || places[i] == next) continue;
        return core_fail(err, DCP_ERR_ARG,
                         "the token at place %zu of the micro-batch is number %" PRId32
                         " of its document, which is neither 0 nor %" PRId32,
                         i, places[i], next);
    }
    return DCP_OK;
}

static void upload_samples(model_run *run, const sample_batch *from) {
    const sample_batch *to = &run->samples;
    const size_t ids = run->batch * run->shape.tokens;
    const size_t values = run->batch * model_sample_values(&run->shape);
    kernels *k = run->k;
    if (ids) k->upload(k, to->ids, from->ids, ids * sizeof *to->ids);
    if (run->shape.packed) k->upload(k, to->places, from->places, ids * sizeof *to->places);
    if (values) k->upload(k, to->values, from->values, values * sizeof *to->values);
    k->upload(k, to->targets, from->targets, run->counted * sizeof *to->targets);
}

static int check_samples(const model_run *run, const sample_batch *batch, dcp_error *err) {
    int status = DCP_OK;
    for (size_t i = 0; i < run->batch * run->shape.tokens && !status; i++)
        status = check_class(run, "token", i, batch->ids[i], err);
    for (size_t i = 0; i < run->counted && !status; i++)
        if (batch->targets[i] != SAMPLE_IGNORE)
            status = check_class(run, "target", i, batch->targets[i], err);
    return status ? status : check_places(run, batch->places, err);
}

int model_run_set_batch(model_run *run, const sample_batch *batch, const float *scales,
                        dcp_error *err) {
    const int status =
        run->inner ? model_speech_set(run, batch, err) : check_samples(run, batch, err);
    if (status) return status;
    if (!run->inner) upload_samples(run, batch);
    run->scale = scales[0];
    if (run->inner) run->inner->scale = scales[1];
    return DCP_OK;
}

int model_run_set_piece(model_run *run, const int32_t *ids, uint64_t n, dcp_error *err) {
    const uint64_t past = run->cache.past + run->length;
    int32_t ignored = SAMPLE_IGNORE;
    if (!n || n > run->cache.piece || n > run->cache.capacity - past)
        return core_fail(
            err, DCP_ERR_ARG,
            "%" PRIu64 " tokens after %" PRIu64
            " in a cache for %zu: a piece must have from 1 to %zu tokens, and room in the cache",
            n, past, run->cache.capacity, run->cache.piece);
    run->cache.past = past;
    run->length = run->rows = run->shape.tokens = n;
    return model_run_set_batch(run, &(sample_batch){.ids = (int32_t *)ids, .targets = &ignored},
                               &(float){0.0f}, err);
}

void model_run_set_poll(model_run *run, void (*poll)(void *ctx), void *ctx) {
    run->poll = poll;
    run->poll_ctx = ctx;
    if (run->inner) model_run_set_poll(run->inner, poll, ctx);
}

static model_run *run_of(model_run *run, const stage_place *at) {
    return at->level == run->m ? run : run->inner;
}

void model_forward(model_run *run, size_t stage, const float *const *params) {
    assert(stage < model_stages(run->m));
    const stage_place at = model_stages_at(run->m, stage);
    at.kind->forward(run_of(run, &at), at.layer, params);
    if (at.is_block) run_of(run, &at)->kept = stage;
}

/* With checkpointing, computes again what the block stores for its backward pass, unless the memory
 * that the blocks share still contains it. */
static void keep_again(model_run *run, size_t stage, const float *const *params) {
    const stage_place at = model_stages_at(run->m, stage);
    model_run *own = run_of(run, &at);
    if (!run->m->checkpointing || !at.is_block || own->kept == stage) return;
    own->again = true;
    model_forward(run, stage, params);
    own->again = false;
}

void model_backward(model_run *run, size_t stage, const float *const *params, float *const *grads) {
    assert(stage < model_stages(run->m));
    const stage_place at = model_stages_at(run->m, stage);
    keep_again(run, stage, params);
    at.kind->backward(run_of(run, &at), at.layer, params, grads);
}

static double loss_of(const model_run *run) {
    double sum = 0.0;
    run->k->download(run->k, run->host_losses, run->losses, run->counted * sizeof(double));
    for (size_t i = 0; i < run->counted; i++) sum += run->host_losses[i];
    return sum * (double)run->scale;
}

void model_run_losses(const model_run *run, double *out) {
    out[0] = loss_of(run);
    if (run->inner) out[1] = loss_of(run->inner);
}

double model_run_loss(const model_run *run) {
    double losses[SAMPLE_MAX_LOSSES] = {0};
    model_run_losses(run, losses);
    return losses[0] + losses[1];
}

size_t model_likeliest(const float *logits, size_t classes) {
    size_t best = 0;
    for (size_t i = 0; i < classes; i++) {
        if (isnan(logits[i])) return classes;
        if (logits[i] > logits[best]) best = i;
    }
    return best;
}

const void *model_run_logits(const model_run *run, kernels_type *type) {
    *type = model_logits_type(run->m);
    return run->logits;
}

const float *model_run_code_logits(const model_run *run, size_t *frames) {
    assert(run->inner);
    *frames = run->speech.frames;
    return run->inner->logits;
}
