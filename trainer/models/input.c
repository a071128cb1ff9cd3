/* How samples enter the stream: tokens through an embedding, images as projected patches behind a
 * class token, vectors as they are. Positions that are learned are added. */
#include "models/layers.h"
#include "models/parts.h"

/* Each token gets its own position, of its document. */
static void add_places(model_run *run, const float *const *params) {
    run->k->embedding_forward(run->k, run->stream[0], params[run->m->root.positions],
                              run->samples.places, run->rows, run->m->c.hidden,
                              KERNELS_ADD | model_table_flags(run->m));
}

/* Every sample gets the same positions, [length,hidden], behind those of a text's earlier pieces,
 * unless samples are packed. */
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
