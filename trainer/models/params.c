/* A model's parameters: names, shapes, initial values and order, on which FSDP and checkpoints
 * rely. Each part is added to a unit by name, and records where its parameters are in that unit. */
#include "models/params.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/parts.h"
#include "models/stages.h"
#include "programs/fail.h"

enum { ROOT = 0 };

/* Adds parts to one unit. */
typedef struct unit_builder {
    model *m;          /* the model of the parts */
    model_unit *units; /* the units to which they are added */
    size_t unit;
    bool in_first;   /* linear weights are [in,out] */
    char prefix[64]; /* of names */
    bool failed;     /* out of memory, or a name too long */
} unit_builder;

static size_t add_parameter(unit_builder *b, const char *name, const char *suffix, uint32_t ndim,
                            const uint64_t *shape, model_init init, double std) {
    model_unit *unit = &b->units[b->unit];
    model_param *grown = realloc(unit->params, (unit->n + 1) * sizeof *grown);
    if (!grown) {
        b->failed = true;
        return NO_PLACE;
    }
    unit->params = grown;
    model_param *p = &unit->params[unit->n];
    *p = (model_param){.ndim = ndim, .init = init, .std = std};
    const int length = snprintf(p->name, sizeof p->name, "%s%s%s", b->prefix, name, suffix);
    if (length < 0 || (size_t)length >= sizeof p->name) b->failed = true;
    const char *base = b->m->c.names->base;
    if (strncmp(p->name, base, strlen(base)) == 0) p->base = strlen(base);
    memcpy(p->shape, shape, ndim * sizeof *shape);
    return unit->n++;
}

static size_t add_vector(unit_builder *b, const char *name, const char *suffix, size_t dim,
                         model_init init) {
    return add_parameter(b, name, suffix, 1, &(uint64_t){dim}, init, 0.0);
}

/* Adds a linear layer. Returns a layer whose `out` is 0 if the family has no such part. */
static linear add_linear(unit_builder *b, const char *name, size_t in, size_t out, bool bias,
                         double std) {
    linear l = {.weight = NO_PLACE, .bias = NO_PLACE};
    if (!name) return l;
    l.in = in;
    l.out = out;
    l.in_first = b->in_first;
    const uint64_t shape[2] = {l.in_first ? in : out, l.in_first ? out : in};
    l.weight = add_parameter(b, name, ".weight", 2, shape, MODEL_INIT_NORMAL, std);
    if (bias) l.bias = add_vector(b, name, ".bias", out, MODEL_INIT_ZEROS);
    return l;
}

/* Adds a norm. Returns a norm whose `dim` is 0 if the family has no such part. */
static norm add_norm(unit_builder *b, const char *name, size_t dim) {
    norm n = {.weight = NO_PLACE, .bias = NO_PLACE};
    if (!name) return n;
    n.dim = dim;
    n.eps = (float)b->m->c.norm_eps;
    n.weight = add_vector(b, name, ".weight", dim, MODEL_INIT_ONES);
    if (b->m->c.layer_norm) n.bias = add_vector(b, name, ".bias", dim, MODEL_INIT_ZEROS);
    return n;
}

/* For layers whose output is added to the residual stream, GPT-2 divides the standard deviation by
 * the square root of the number of such additions. */
static double residual_std(const model_config *c) {
    return c->in_first ? c->init_std / sqrt(2.0 * (double)c->layers) : c->init_std;
}

static block_parts add_block(unit_builder *b) {
    const model *m = b->m;
    const model_config *c = &m->c;
    const family_names *names = c->names;
    const size_t q = model_q_dim(m), kv = model_kv_dim(m);
    const double std = c->init_std, residual = residual_std(c);
    block_parts p;
    p.attention_norm = add_norm(b, names->attention_norm, c->hidden);
    p.q = add_linear(b, names->q, c->hidden, q, c->qkv_bias, std);
    p.k = add_linear(b, names->k, c->hidden, kv, c->qkv_bias, std);
    p.v = add_linear(b, names->v, c->hidden, kv, c->qkv_bias, std);
    p.qkv = add_linear(b, names->qkv, c->hidden, q + 2 * kv, c->qkv_bias, std);
    p.o = add_linear(b, names->o, q, c->hidden, c->o_bias, residual);
    p.q_norm = add_norm(b, names->q_norm, c->head_dim);
    p.k_norm = add_norm(b, names->k_norm, c->head_dim);
    p.mlp_norm = add_norm(b, names->mlp_norm, c->hidden);
    p.gate = add_linear(b, names->gate, c->hidden, c->intermediate, c->mlp_bias, std);
    p.up = add_linear(b, names->up, c->hidden, c->intermediate, c->mlp_bias, std);
    p.down = add_linear(b, names->down, c->intermediate, c->hidden, c->mlp_bias, residual);
    return p;
}

/* The standard deviation of the initial weights of a layer that an activation follows (He et al.
 * 2015). */
static double dense_std(size_t in) { return sqrt(2.0 / (double)in); }

static void add_dense(unit_builder *b, size_t layer) {
    const model *m = b->m;
    add_linear(b, "", model_width(m, layer), model_width(m, layer + 1), true,
               dense_std(model_width(m, layer)));
}

/* Adds the learned embeddings of a family. Embeddings for images have a leading dimension of 1, for
 * the batch. */
static void add_embeddings(unit_builder *b, root_parts *root) {
    const model_config *c = &b->m->c;
    const family_names *names = c->names;
    const bool image = c->input == INPUT_IMAGE;
    const uint64_t vocab[2] = {c->classes, c->hidden};
    const uint64_t length = image ? model_length(b->m, 0) : c->max_positions;
    const uint64_t class_token[3] = {1, 1, c->hidden}, positions[3] = {1, length, c->hidden};
    root->embed = root->positions = root->class_token = NO_PLACE;
    if (names->embed)
        root->embed =
            add_parameter(b, names->embed, ".weight", 2, vocab, MODEL_INIT_NORMAL, c->init_std);
    if (root->embed != NO_PLACE) {
        b->m->units[ROOT].params[root->embed].tied = c->tied;
        b->m->units[ROOT].params[root->embed].table = !c->tied;
    }
    if (names->class_token)
        root->class_token = add_parameter(b, names->class_token, "", 3, class_token,
                                          MODEL_INIT_NORMAL, c->init_std);
    if (names->positions)
        root->positions =
            add_parameter(b, names->positions, "", image ? 3 : 2, image ? positions : positions + 1,
                          MODEL_INIT_NORMAL, c->init_std);
}

/* Adds the projection of patches. Its weight is stored as a convolution's weight; the matrix
 * product uses it as [hidden, channels * patch]. */
static linear add_patches(unit_builder *b) {
    const model_config *c = &b->m->c;
    const uint64_t shape[4] = {c->hidden, c->channels, c->patch[0], c->patch[1]};
    linear l = {.weight = NO_PLACE, .bias = NO_PLACE};
    if (!c->names->patches) return l;
    l.in = model_patch_dim(b->m);
    l.out = c->hidden;
    l.weight =
        add_parameter(b, c->names->patches, ".weight", 4, shape, MODEL_INIT_NORMAL, c->init_std);
    l.bias = add_vector(b, c->names->patches, ".bias", c->hidden, MODEL_INIT_ZEROS);
    return l;
}

/* Adds the head, which is always stored [out,in]; an MLP's head is its last layer. */
static linear add_head(unit_builder *b, const root_parts *root) {
    const model_config *c = &b->m->c;
    const size_t in = model_width(b->m, c->layers);
    if (c->tied)
        return (linear){.weight = root->embed, .bias = NO_PLACE, .in = in, .out = c->classes};
    char name[64];
    if (c->sizes)
        snprintf(name, sizeof name, "%s%zu", c->names->head, (size_t)c->layers);
    else
        snprintf(name, sizeof name, "%s", c->names->head);
    return add_linear(b, name, in, c->classes, c->head_bias,
                      c->sizes ? dense_std(in) : c->init_std);
}

/* Most files of weights belong to a base model, which has no classifier, so the classifier may be
 * missing. */
static void mark_classifier(model *m) {
    const linear *head = &m->root.head;
    if (m->c.input != INPUT_IMAGE || head->weight == NO_PLACE || head->bias == NO_PLACE) return;
    m->units[ROOT].params[head->weight].fresh = true;
    m->units[ROOT].params[head->bias].fresh = true;
}

static size_t add_table(unit_builder *b, const char *name, size_t rows, size_t dim) {
    const uint64_t shape[2] = {rows, dim};
    const size_t at =
        add_parameter(b, name, ".weight", 2, shape, MODEL_INIT_NORMAL, b->m->c.init_std);
    if (at != NO_PLACE) b->m->units[ROOT].params[at].table = true;
    return at;
}

/* Adds an embedding and a head of the predictor for each code except the first. */
static void add_codes(unit_builder *b, const model *inner, speech_parts *speech) {
    const size_t classes = inner->c.classes;
    for (size_t i = 0; i + 1 < b->m->c.speech->groups; i++) {
        char name[96];
        snprintf(name, sizeof name, "talker.code_predictor.model.codec_embedding.%zu", i);
        speech->tables[i] = add_table(b, name, classes, b->m->c.hidden);
        snprintf(name, sizeof name, "talker.code_predictor.lm_head.%zu", i);
        speech->heads[i] = add_linear(b, name, inner->c.hidden, classes, false, inner->c.init_std);
    }
}

/* Adds the parameters of a talker's root that a decoder's root does not have. */
static void add_speech(unit_builder *b) {
    model *m = b->m, *inner = m->inner;
    const speech_config *s = m->c.speech;
    const size_t text = s->text_hidden, hidden = m->c.hidden;
    const double std = m->c.init_std;
    const char *projection =
        inner->c.hidden == hidden ? NULL : "talker.code_predictor.small_to_mtp_projection";
    speech_parts *speech = &m->speech;
    speech->text = add_table(b, "talker.model.text_embedding", s->texts, text);
    speech->rise = add_linear(b, "talker.text_projection.linear_fc1", text, text, true, std);
    speech->fall = add_linear(b, "talker.text_projection.linear_fc2", text, hidden, true, std);
    speech->projection = add_linear(b, projection, hidden, inner->c.hidden, true, std);
    add_codes(b, inner, speech);
    unit_builder within = {.m = inner, .units = b->units, .unit = b->unit};
    inner->root = (root_parts){.embed = NO_PLACE, .positions = NO_PLACE, .class_token = NO_PLACE};
    inner->root.patches = inner->root.head = (linear){.weight = NO_PLACE, .bias = NO_PLACE};
    inner->root.final = add_norm(&within, inner->c.names->final_norm, inner->c.hidden);
    b->failed |= within.failed;
}

/* Adds the parameters of all blocks. units: the units of the blocks, starting with the first
 * block's unit. */
static bool add_blocks(model *m, model_unit *units) {
    unit_builder b = {.m = m, .units = units, .in_first = m->c.in_first};
    for (size_t layer = 0; layer < m->c.layers; layer++) {
        b.unit = layer;
        snprintf(b.prefix, sizeof b.prefix, "%s%zu%s", m->c.names->block, layer, m->c.names->after);
        if (m->c.sizes)
            add_dense(&b, layer);
        else
            m->block = add_block(&b);
    }
    return b.failed;
}

static int add_parts(model *m) {
    unit_builder b = {.m = m, .units = m->units, .unit = ROOT};
    add_embeddings(&b, &m->root);
    m->root.patches = add_patches(&b);
    m->root.final = add_norm(&b, m->c.names->final_norm, m->c.hidden);
    m->root.head = add_head(&b, &m->root);
    mark_classifier(m);
    if (m->inner) add_speech(&b);
    bool failed = add_blocks(m, m->units + 1);
    if (m->inner) failed |= add_blocks(m->inner, m->inner->units + 1);
    return b.failed || failed;
}

/* Makes the inner model, if there is one. The units of its blocks follow the units of this model's
 * blocks. */
static int add_inner(model *m) {
    const speech_config *s = m->c.speech;
    m->units = calloc(model_units(m), sizeof *m->units);
    if (!s || !m->units) return !m->units;
    m->inner = calloc(1, sizeof *m->inner);
    m->speech.tables = calloc(s->groups - 1, sizeof *m->speech.tables);
    m->speech.heads = calloc(s->groups - 1, sizeof *m->speech.heads);
    if (!m->inner || !m->speech.tables || !m->speech.heads) return 1;
    m->inner->c = s->predictor;
    m->inner->units = m->units + m->c.layers;
    return 0;
}

int model_describe(const json_t *config, model **out, dcp_error *err) {
    model *m = calloc(1, sizeof *m);
    if (!m) return core_fail_memory(err, sizeof *m);
    int status = model_config_read(config, &m->c, err);
    if (status) {
        free(m);
        return status;
    }
    if (add_inner(m) || add_parts(m)) {
        status = core_fail_memory(err, model_units(m) * sizeof *m->units);
        model_free_described(m);
        return status;
    }
    *out = m;
    return DCP_OK;
}

void model_free_described(model *m) {
    if (!m) return;
    for (size_t unit = 0; m->units && unit < model_units(m); unit++) free(m->units[unit].params);
    free(m->units);
    free(m->inner);
    free(m->speech.tables);
    free(m->speech.heads);
    model_config_free(&m->c);
    free(m);
}

size_t model_units(const model *m) {
    return 1 + m->c.layers + (m->c.speech ? m->c.speech->predictor.layers : 0);
}

size_t model_stages(const model *m) { return model_stages_count(m); }

size_t model_stage_unit(const model *m, size_t stage) { return model_stages_at(m, stage).unit; }

size_t model_unit_params(const model *m, size_t unit) { return m->units[unit].n; }

const model_param *model_unit_param(const model *m, size_t unit, size_t i) {
    return &m->units[unit].params[i];
}

/* Names are looked up in sorted lists, because files and configurations can contain very many
 * names. */

void model_weights_shape_text(uint32_t ndim, const uint64_t *shape, char *out, size_t size) {
    size_t at = (size_t)snprintf(out, size, "[");
    for (uint32_t d = 0; d < ndim && at < size; d++)
        at += (size_t)snprintf(out + at, size - at, d ? ",%" PRIu64 : "%" PRIu64, shape[d]);
    if (at < size) snprintf(out + at, size - at, "]");
}

static int order_by_path(const void *key, const void *element) {
    return strcmp(key, (*(const dcp_tensor *const *)element)->path);
}

const dcp_tensor *model_weights_find(const found_tensors *found, const char *name) {
    char path[DCP_MAX_PATH];
    snprintf(path, sizeof path, "%s%s", found->prefix, name);
    const dcp_tensor *const *at =
        found->n ? bsearch(path, found->list, found->n, sizeof *found->list, order_by_path) : NULL;
    return at ? *at : NULL;
}

const dcp_tensor *model_weights_find_param(const found_tensors *found, const model_param *param) {
    const dcp_tensor *tensor = model_weights_find(found, param->name);
    return tensor || !param->base ? tensor : model_weights_find(found, param->name + param->base);
}

static bool shapes_agree(const model_param *param, const dcp_tensor *tensor) {
    return param->ndim == tensor->ndim &&
           memcmp(param->shape, tensor->shape, param->ndim * sizeof *param->shape) == 0;
}

/* The names that tensors of the model can have, ascending. */
typedef struct name_list {
    const char **list;
    size_t n;
    bool tied;
    bool speaks; /* a talker's files may also have a speaker encoder */
} name_list;

static int order_by_name(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int list_names(const model_param *const *params, size_t n, name_list *names,
                      dcp_error *err) {
    *names = (name_list){.list = calloc(2 * n + 1, sizeof *names->list)};
    if (!names->list) return core_fail_memory(err, (2 * n + 1) * sizeof *names->list);
    for (size_t i = 0; i < n; i++) {
        names->list[names->n++] = params[i]->name;
        if (params[i]->base) names->list[names->n++] = params[i]->name + params[i]->base;
        names->tied |= params[i]->tied;
        names->speaks |= strncmp(params[i]->name, "talker.", 7) == 0;
    }
    qsort(names->list, names->n, sizeof *names->list, order_by_name);
    return DCP_OK;
}

/* Returns true if a dot followed by `name` ends in `end`, which begins with a dot. */
static bool ends_in(const char *name, const char *end) {
    const size_t n = strlen(name), m = strlen(end);
    return (n >= m && strcmp(name + n - m, end) == 0) || strcmp(name, end + 1) == 0;
}

static bool may_be_surplus(const name_list *names, const char *name) {
    static const char *const ends[] = {".inv_freq",          ".attn.bias",
                                       ".attn.masked_bias",  ".pooler.dense.weight",
                                       ".pooler.dense.bias", ".embeddings.mask_token"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_in(name, ends[i])) return true;
    if (names->speaks && strncmp(name, "speaker_encoder.", 16) == 0) return true;
    return names->tied && strcmp(name, WEIGHTS_COPY) == 0;
}

static void compare_surplus(const name_list *names, const found_tensors *found,
                            weights_difference_fn report, void *ctx) {
    const size_t prefix = strlen(found->prefix);
    for (size_t i = 0; i < found->n; i++) {
        if (strncmp(found->list[i]->path, found->prefix, prefix) != 0) continue;
        const char *name = found->list[i]->path + prefix;
        if (!bsearch(&name, names->list, names->n, sizeof *names->list, order_by_name) &&
            !may_be_surplus(names, name))
            report(ctx, (weights_difference){.tensor = found->list[i]});
    }
}

int model_weights_compare(const model_param *const *params, size_t n, const found_tensors *found,
                          weights_difference_fn report, void *ctx, dcp_error *err) {
    name_list names;
    const int status = list_names(params, n, &names, err);
    if (status != DCP_OK) return status;
    for (size_t i = 0; i < n; i++) {
        const dcp_tensor *tensor = model_weights_find_param(found, params[i]);
        if (!tensor && params[i]->fresh && found->weights_only) continue;
        if (!tensor || !shapes_agree(params[i], tensor))
            report(ctx, (weights_difference){params[i], tensor});
    }
    compare_surplus(&names, found, report, ctx);
    free(names.list);
    return DCP_OK;
}
