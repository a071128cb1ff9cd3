/* A decoder's parameters: names, shapes and order, which FSDP and checkpoints rely on. */
#include <stdio.h>
#include <stdlib.h>

#include "fail.h"
#include "models/decoder.h"

static void set_param(model_param *p, const char *name, uint64_t rows, uint64_t cols) {
    snprintf(p->name, sizeof p->name, "%s", name);
    p->ndim = cols ? 2 : 1;
    p->shape[0] = rows;
    p->shape[1] = cols;
    p->init = cols ? MODEL_INIT_NORMAL : MODEL_INIT_ONES; /* vectors are norms' weights */
}

static void set_root(model *m) {
    set_param(&m->root[ROOT_EMBED], "model.embed_tokens.weight", m->c.vocab, m->c.hidden);
    set_param(&m->root[ROOT_NORM], "model.norm.weight", m->c.hidden, 0);
    set_param(&m->root[ROOT_HEAD], "lm_head.weight", m->c.vocab, m->c.hidden);
}

static void set_block(model *m, size_t layer) {
    const decoder_config *c = &m->c;
    const struct {
        const char *name;
        uint64_t rows, cols;
    } list[BLOCK_PARAMS] = {
        [BLOCK_INPUT_NORM] = {"input_layernorm", c->hidden, 0},
        [BLOCK_Q] = {"self_attn.q_proj", c->heads * c->head_dim, c->hidden},
        [BLOCK_K] = {"self_attn.k_proj", c->kv_heads * c->head_dim, c->hidden},
        [BLOCK_V] = {"self_attn.v_proj", c->kv_heads * c->head_dim, c->hidden},
        [BLOCK_O] = {"self_attn.o_proj", c->hidden, c->heads * c->head_dim},
        [BLOCK_POST_NORM] = {"post_attention_layernorm", c->hidden, 0},
        [BLOCK_GATE] = {"mlp.gate_proj", c->intermediate, c->hidden},
        [BLOCK_UP] = {"mlp.up_proj", c->intermediate, c->hidden},
        [BLOCK_DOWN] = {"mlp.down_proj", c->hidden, c->intermediate},
        [BLOCK_Q_NORM] = {"self_attn.q_norm", c->head_dim, 0},
        [BLOCK_K_NORM] = {"self_attn.k_norm", c->head_dim, 0},
    };
    for (size_t i = 0; i < m->block_params; i++) {
        char name[sizeof m->blocks->name];
        snprintf(name, sizeof name, "model.layers.%zu.%s.weight", layer, list[i].name);
        set_param(&m->blocks[layer * m->block_params + i], name, list[i].rows, list[i].cols);
    }
}

int model_create(const json_t *config, model **out, dcp_error *err) {
    decoder_config c;
    int status = decoder_config_read(config, &c, err);
    if (status) return status;
    model *m = calloc(1, sizeof *m);
    if (!m) return trainer_fail_memory(err, sizeof *m);
    m->c = c;
    m->root_params = c.tied ? ROOT_HEAD : ROOT_PARAMS;
    m->block_params = c.qk_norm ? BLOCK_PARAMS : BLOCK_Q_NORM;
    m->blocks = calloc(c.layers * m->block_params, sizeof *m->blocks);
    if (!m->blocks || kernels_open("cpu", &m->k) != KERNELS_OK) {
        model_destroy(m);
        return trainer_fail_memory(err, c.layers * BLOCK_PARAMS * sizeof *m->blocks);
    }
    set_root(m);
    for (size_t layer = 0; layer < c.layers; layer++) set_block(m, layer);
    *out = m;
    return DCP_OK;
}

void model_destroy(model *m) {
    if (!m) return;
    kernels_close(m->k);
    free(m->blocks);
    free(m);
}

size_t model_units(const model *m) { return m->c.layers + 1; }

size_t model_unit_params(const model *m, size_t unit) {
    return unit ? m->block_params : m->root_params;
}

const model_param *model_unit_param(const model *m, size_t unit, size_t i) {
    return unit ? &m->blocks[(unit - 1) * m->block_params + i] : &m->root[i];
}

size_t model_stages(const model *m) { return m->c.layers + 2; }

size_t model_stage_unit(const model *m, size_t stage) { return stage <= m->c.layers ? stage : 0; }

double model_init_std(const model *m) { return m->c.init_std; }
uint64_t model_max_sequence(const model *m) { return m->c.max_positions; }

static double unit_elems(const model *m, size_t unit) {
    double elems = 0.0;
    for (size_t i = 0; i < model_unit_params(m, unit); i++) {
        const model_param *p = model_unit_param(m, unit, i);
        elems += (double)p->shape[0] * (p->ndim == 2 ? (double)p->shape[1] : 1.0);
    }
    return elems;
}

sample_shape model_sample(const model *m, uint64_t sequence) {
    return (sample_shape){.tokens = sequence, .targets = sequence, .classes = m->c.vocab};
}

double model_flops_per_sample(const model *m, uint64_t sequence) {
    double params = unit_elems(m, 0) + (double)m->c.layers * unit_elems(m, 1);
    double attention = (double)m->c.layers * (double)decoder_q_dim(m) * (double)sequence;
    return (6.0 * params + 12.0 * attention) * (double)sequence;
}
