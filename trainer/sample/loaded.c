/* Parameters are compared with the checkpoint's tensors before memory is taken for them, so that a
 * wrong configuration cannot ask for more than the files hold. */
#include "sample/loaded.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/arena.h"
#include "models/weights_check.h"
#include "programs/fail.h"
#include "programs/json_read.h"

static int read_meta(sample_loaded *s, dcp_error *err) {
    const char *path = dcp_checkpoint_path(s->ckpt), *text = dcp_checkpoint_json(s->ckpt);
    const int status = core_json_parse_object(text, strlen(text), &s->meta, err);
    if (status == DCP_ERR_NO_MEMORY) return status;
    if (json_is_object(json_object_get(s->meta, "model"))) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG,
                     "%s: holds no model's configuration; --sample takes checkpoints of dcp-train "
                     "and dcp-import",
                     path);
}

/* A model of images, vectors or speech continues no text. */
static int check_takes_text(const sample_loaded *s, const char *path, const char *type,
                            dcp_error *err) {
    if (model_speaks(s->m))
        return core_fail(err, DCP_ERR_ARG,
                         "%s: a model of model_type %s says a text and continues none; dcp-export "
                         "it with --voice, and have it say the text with the package qwen-tts",
                         path, type);
    if (model_max_sequence(s->m)) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG,
                     "%s: a model of model_type %s takes no text; --sample is for language models",
                     path, type);
}

static int make_model(sample_loaded *s, dcp_error *err) {
    const char *path = dcp_checkpoint_path(s->ckpt);
    const json_t *config = json_object_get(s->meta, "model");
    dcp_error why;
    int status = model_create(config, &s->m, &why);
    if (status) return core_fail(err, status, "%s: %s", path, why.message);
    const char *type = json_string_value(json_object_get(config, "model_type"));
    status = check_takes_text(s, path, type, err);
    if (status) return status;
    if (json_is_true(json_object_get(s->meta, "bf16"))) model_set_type(s->m, KERNELS_BF16);
    model_set_checkpointing(s->m, 1); /* nothing goes backwards: one block's memory will do */
    return DCP_OK;
}

static size_t count_params(const model *m) {
    size_t n = 0;
    for (size_t unit = 0; unit < model_units(m); unit++) n += model_unit_params(m, unit);
    return n;
}

static void collect_params(const model *m, const model_param **list) {
    for (size_t unit = 0, n = 0; unit < model_units(m); unit++)
        for (size_t i = 0; i < model_unit_params(m, unit); i++)
            list[n++] = model_unit_param(m, unit, i);
}

/* The first of the differences. */
typedef struct difference {
    int there;
    char text[400];
} difference;

static void tell_first(void *ctx, weights_difference found) {
    difference *d = ctx;
    char shape[160] = "";
    if (d->there++) return;
    if (found.param)
        model_weights_shape_text(found.param->ndim, found.param->shape, shape, sizeof shape);
    if (!found.param)
        snprintf(d->text, sizeof d->text, "%s is none of its model's", found.tensor->path);
    else
        snprintf(d->text, sizeof d->text, "%s %s is %s", found.param->name, shape,
                 found.tensor ? "there in another shape" : "missing");
}

static int compare(sample_loaded *s, const found_tensors *found, const model_param *const *params,
                   dcp_error *err) {
    difference d = {0};
    const int status =
        model_weights_compare(params, count_params(s->m), found, tell_first, &d, err);
    if (status || !d.there) return status;
    return core_fail(err, DCP_ERR_MISMATCH,
                     "%s: its tensors are not those of the model that it names: %s; save it anew, "
                     "or import it anew",
                     found->where, d.text);
}

/* Places in `memory`, once that is there. */
static void lay_out(sample_loaded *s, const model_param *const *params, arena *a) {
    for (size_t i = 0; i < count_params(s->m); i++)
        s->params[i] = model_arena_floats(a, 1, model_param_elems(params[i]));
}

static int take_memory(sample_loaded *s, const model_param *const *params, dcp_error *err) {
    arena size = {0};
    lay_out(s, params, &size);
    if (!size.overflow) s->memory = aligned_alloc(64, size.used);
    if (!s->memory) return core_fail_memory(err, size.used);
    arena places = {.base = s->memory};
    lay_out(s, params, &places);
    for (size_t unit = 1; unit < model_units(s->m); unit++)
        s->first[unit] = s->first[unit - 1] + model_unit_params(s->m, unit - 1);
    return DCP_OK;
}

/* Widened where they are stored in fewer bytes. */
static int load_params(sample_loaded *s, const found_tensors *found,
                       const model_param *const *params, dcp_error *err) {
    const dcp_load_options options = {.size = sizeof options, .cast = 1};
    dcp_state *state;
    int status = dcp_state_create(&state, err);
    if (status) return status;
    for (size_t i = 0; i < count_params(s->m) && !status; i++) {
        dcp_tensor tensor = *model_weights_find_param(found, params[i]);
        tensor.dtype = DCP_F32;
        status = dcp_state_add(state, &tensor, NULL, s->params[i], err);
    }
    if (!status) status = dcp_load_with(s->ckpt, state, &options, NULL, err);
    dcp_state_destroy(state);
    return status;
}

static int load_found(sample_loaded *s, const found_tensors *found, const model_param **params,
                      dcp_error *err) {
    collect_params(s->m, params);
    int status = compare(s, found, params, err);
    if (!status) status = take_memory(s, params, err);
    return status ? status : load_params(s, found, params, err);
}

static int load_model(sample_loaded *s, dcp_error *err) {
    const size_t tensors = dcp_checkpoint_tensors(s->ckpt), n = count_params(s->m);
    const dcp_tensor **list = calloc(tensors + 1, sizeof *list);
    const model_param **params = calloc(n + 1, sizeof *params);
    s->params = calloc(n + 1, sizeof *s->params);
    s->first = calloc(model_units(s->m), sizeof *s->first);
    int status = DCP_OK;
    if (!list || !params || !s->params || !s->first)
        status = core_fail_memory(err, (tensors + 2 * n) * sizeof *list);
    for (size_t i = 0; i < tensors && !status; i++) list[i] = dcp_checkpoint_tensor(s->ckpt, i);
    const found_tensors found = {
        .where = dcp_checkpoint_path(s->ckpt), .prefix = "/model/", .list = list, .n = tensors};
    if (!status) status = load_found(s, &found, params, err);
    free(params);
    free(list);
    return status;
}

int sample_loaded_open(const char *path, sample_loaded *out, dcp_error *err) {
    sample_loaded s = {0};
    int status = dcp_comm_self(&s.comm, err);
    if (!status) status = dcp_checkpoint_open(s.comm, path, &s.ckpt, err);
    if (!status) status = read_meta(&s, err);
    if (!status) status = make_model(&s, err);
    if (!status) status = load_model(&s, err);
    if (status)
        sample_loaded_close(&s);
    else
        *out = s;
    return status;
}

void sample_loaded_close(sample_loaded *s) {
    model_destroy(s->m);
    free(s->memory);
    free(s->first);
    free(s->params);
    json_decref(s->meta);
    if (s->ckpt) dcp_checkpoint_close(s->ckpt);
    if (s->comm) dcp_comm_destroy(s->comm);
}

const float *const *sample_loaded_params(const sample_loaded *s, size_t stage) {
    return (const float *const *)s->params + s->first[model_stage_unit(s->m, stage)];
}
