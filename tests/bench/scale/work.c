#include "work.h"

#include "world.h"

static const struct shape {
    const char *name;
    uint64_t rows, cols; /* in units; cols 0: a vector */
} shapes[] = {
    {"input_layernorm", 1, 0},
    {"post_attention_layernorm", 1, 0},
    {"self_attn.q_proj", 2, 1},
    {"self_attn.k_proj", 1, 1},
    {"self_attn.v_proj", 1, 1},
    {"self_attn.o_proj", 1, 2},
    {"mlp.gate_proj", 3, 1},
    {"mlp.up_proj", 3, 1},
    {"mlp.down_proj", 1, 3},
    {"embed_tokens", 8, 1},
    {"norm", 1, 0},
};
enum { IN_LAYER = 9, SHAPES = 11 };

static const char *const sections[] = {"model", "optimizer/exp_avg", "optimizer/exp_avg_sq"};

static void add(work *w, const char *section, int layer, const struct shape *s, uint64_t rows) {
    static char memory[1]; /* never read */
    char *path = w->paths[w->n++], in_layer[32] = "";
    if (layer >= 0) snprintf(in_layer, sizeof in_layer, "layers.%d.", layer);
    snprintf(path, sizeof w->paths[0], "/%s/model.%s%s.weight", section, in_layer, s->name);
    dcp_tensor t = {path, DCP_F32, s->cols ? 2 : 1, {s->rows * rows, s->cols * 64}};
    NEED(dcp_state_add(w->state, &t, NULL, memory, NULL) == DCP_OK);
}

void work_make(work *w, int layers, int ranks) {
    size_t n = 3 * ((size_t)layers * IN_LAYER + SHAPES - IN_LAYER);
    *w = (work){.paths = calloc(n, sizeof *w->paths)};
    NEED(w->paths && dcp_state_create(&w->state, NULL) == DCP_OK);
    for (int s = 0; s < 3; s++) {
        for (int layer = 0; layer < layers; layer++)
            for (int k = 0; k < IN_LAYER; k++)
                add(w, sections[s], layer, &shapes[k], (uint64_t)ranks);
        for (int k = IN_LAYER; k < SHAPES; k++)
            add(w, sections[s], -1, &shapes[k], (uint64_t)ranks);
    }
}

void work_free(work *w) {
    dcp_state_destroy(w->state);
    free(w->paths);
}

void work_hold_one(state_tensor *t, int rank, int ranks) {
    t->boxes[0].box = dcp_box_chunk(&t->tensor, rank, ranks);
    t->n_boxes = dcp_box_elems(&t->boxes[0].box, t->tensor.ndim) > 0;
}

void work_hold(work *w, int rank, int ranks) {
    for (size_t i = 0; i < w->n; i++) work_hold_one(w->state->tensors[i], rank, ranks);
}

void work_hold_nothing(work *w) {
    for (size_t i = 0; i < w->n; i++) w->state->tensors[i]->n_boxes = 0;
}
