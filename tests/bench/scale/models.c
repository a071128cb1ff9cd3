#include "models.h"

#include <string.h>

#include "world.h"

static const model models[] = {
    {"8b", 4096, 14336, 1024, 128256, 32},
    {"70b", 8192, 28672, 1024, 128256, 80},
    {"405b", 16384, 53248, 1024, 128256, 126},
    {"small", 64, 256, 32, 1000, 400}, /* 10,806 tensors, 0.30 GB */
    {"tiny", 512, 2048, 128, 4096, 2},
};

const model *model_find(const char *name) {
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        if (strcmp(models[i].name, name) == 0) return &models[i];
    return NULL;
}

typedef struct shape {
    const char *name;
    uint64_t rows, cols; /* cols 0: a vector */
} shape;

/* The shapes of a layer's tensors, then those of the tensors outside the layers. */
static void list_shapes(const model *m, shape *out) {
    const shape shapes[] = {
        {"input_layernorm", m->hidden, 0},
        {"post_attention_layernorm", m->hidden, 0},
        {"self_attn.q_proj", m->hidden, m->hidden},
        {"self_attn.k_proj", m->kv, m->hidden},
        {"self_attn.v_proj", m->kv, m->hidden},
        {"self_attn.o_proj", m->hidden, m->hidden},
        {"mlp.gate_proj", m->wide, m->hidden},
        {"mlp.up_proj", m->wide, m->hidden},
        {"mlp.down_proj", m->hidden, m->wide},
        {"embed_tokens", m->vocab, m->hidden},
        {"norm", m->hidden, 0},
        {"lm_head", m->vocab, m->hidden},
    };
    memcpy(out, shapes, sizeof shapes);
}

typedef void (*visit_fn)(void *ctx, const dcp_tensor *t);

static void visit(const char *section, int layer, const shape *s, visit_fn fn, void *ctx) {
    char path[128], in_layer[32] = "";
    if (layer >= 0) snprintf(in_layer, sizeof in_layer, "layers.%d.", layer);
    snprintf(path, sizeof path, "/%s/model.%s%s.weight", section, in_layer, s->name);
    const dcp_tensor t = {path, DCP_F32, s->cols ? 2 : 1, {s->rows, s->cols}};
    fn(ctx, &t);
}

static void visit_all(const model *m, visit_fn fn, void *ctx) {
    static const char *const sections[] = {"model", "optimizer/exp_avg", "optimizer/exp_avg_sq"};
    shape shapes[MODEL_IN_LAYER + MODEL_BESIDE];
    list_shapes(m, shapes);
    /* a small model's head is its embedding */
    const int beside = strcmp(m->name, "small") ? MODEL_BESIDE : MODEL_BESIDE - 1;
    for (int s = 0; s < 3; s++) {
        for (int layer = 0; layer < m->layers; layer++)
            for (int k = 0; k < MODEL_IN_LAYER; k++) visit(sections[s], layer, &shapes[k], fn, ctx);
        for (int k = 0; k < beside; k++)
            visit(sections[s], -1, &shapes[MODEL_IN_LAYER + k], fn, ctx);
    }
}

typedef struct adding {
    dcp_state *state;
    int shard, shards;
    void *(*memory)(uint64_t bytes);
} adding;

static uint64_t bytes_in(const dcp_tensor *t, const dcp_box *box) {
    return dcp_box_elems(box, t->ndim) * dcp_dtype_bytes(t->dtype);
}

static void add_tensor(void *ctx, const dcp_tensor *t) {
    const adding *a = ctx;
    const dcp_box box = dcp_box_chunk(t, a->shard, a->shards);
    const uint64_t bytes = bytes_in(t, &box);
    dcp_error err;
    if (dcp_state_add(a->state, t, &box, bytes ? a->memory(bytes) : NULL, &err)) {
        fprintf(stderr, "%s\n", err.message);
        exit(3);
    }
}

dcp_state *model_state(const model *m, int shard, int shards, void *(*memory)(uint64_t bytes)) {
    adding a = {.shard = shard, .shards = shards, .memory = memory};
    NEED(dcp_state_create(&a.state, NULL) == DCP_OK);
    visit_all(m, add_tensor, &a);
    return a.state;
}

static void add_size(void *ctx, const dcp_tensor *t) {
    const dcp_box all = dcp_box_whole(t);
    *(uint64_t *)ctx += bytes_in(t, &all);
}

uint64_t model_bytes(const model *m) {
    uint64_t bytes = 0;
    visit_all(m, add_size, &bytes);
    return bytes;
}
