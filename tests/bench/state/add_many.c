/* Declaring 100,000 boxes one at a time and at once: CPU seconds of each, the least of 15, and
 * their ratio. In the order of a model, shuffled, and as 100 boxes of each of 1,000 tensors.
 *
 *   add_many [BOXES] */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "dcp/state.h"

enum { REPEATS = 15, PARTS = 9 };

typedef struct work {
    size_t n;
    dcp_tensor *tensors;
    dcp_box *boxes;
    void **data;
    char (*paths)[80];
} work;

static const char *const parts[PARTS] = {
    "input_layernorm.weight",  "mlp.down_proj.weight",    "mlp.gate_proj.weight",
    "mlp.up_proj.weight",      "self_attn.k_proj.weight", "self_attn.o_proj.weight",
    "self_attn.q_proj.weight", "self_attn.v_proj.weight", "post_attention_layernorm.weight",
};

static void need(int is_true) {
    if (is_true) return;
    fprintf(stderr, "add_many: failed\n");
    exit(1);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void make_tensor(work *w, size_t i, size_t number, uint64_t part, uint64_t of) {
    static float element;
    snprintf(w->paths[i], sizeof *w->paths, "/optimizer/exp_avg/model.layers.%zu.%s",
             number / PARTS, parts[number % PARTS]);
    w->tensors[i] =
        (dcp_tensor){.path = w->paths[i], .dtype = DCP_F32, .ndim = 2, .shape = {of * 16, 1024}};
    w->boxes[i] = (dcp_box){.start = {part * 16}, .count = {16, 1024}};
    w->data[i] = &element;
}

static void make_boxes_of_few(work *w) {
    for (size_t i = 0; i < w->n; i++)
        make_tensor(w, i, i % (w->n / 100 + 1), i / (w->n / 100 + 1), 100);
}

static void make_model(work *w) {
    for (size_t i = 0; i < w->n; i++) make_tensor(w, i, i, 1, 4);
}

static void shuffle(work *w) {
    uint64_t random = 1;
    make_model(w);
    for (size_t i = w->n; i > 1; i--) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        const size_t k = (size_t)(random >> 33) % i;
        const dcp_tensor t = w->tensors[i - 1];
        w->tensors[i - 1] = w->tensors[k];
        w->tensors[k] = t;
    }
}

static void add_singly(const work *w, dcp_state *state) {
    for (size_t i = 0; i < w->n; i++)
        need(!dcp_state_add(state, &w->tensors[i], &w->boxes[i], w->data[i], NULL));
}

static void add_at_once(const work *w, dcp_state *state) {
    need(!dcp_state_add_many(state, w->n, w->tensors, w->boxes, w->data, NULL));
}

static void measure_one(const work *w, void (*add)(const work *w, dcp_state *state),
                        double *least) {
    dcp_state *state;
    need(!dcp_state_create(&state, NULL));
    const double from = now();
    add(w, state);
    const double took = now() - from;
    if (took < *least) *least = took;
    dcp_state_destroy(state);
}

static void measure(work *w, const char *name, void (*make)(work *w)) {
    double singly = 1e9, at_once = 1e9;
    make(w);
    for (int i = 0; i < REPEATS; i++) {
        measure_one(w, add_singly, &singly);
        measure_one(w, add_at_once, &at_once);
    }
    printf("%-24s %8zu boxes: singly %.4f s, at once %.4f s, ratio %.3f\n", name, w->n, singly,
           at_once, at_once / singly);
}

int main(int argc, char **argv) {
    work w = {.n = argc > 1 ? strtoul(argv[1], NULL, 10) : 100000};
    w.tensors = calloc(w.n, sizeof *w.tensors);
    w.boxes = calloc(w.n, sizeof *w.boxes);
    w.data = calloc(w.n, sizeof *w.data);
    w.paths = calloc(w.n, sizeof *w.paths);
    need(w.n && w.tensors && w.boxes && w.data && w.paths);
    measure(&w, "a model's order", make_model);
    measure(&w, "shuffled", shuffle);
    measure(&w, "100 boxes of a tensor", make_boxes_of_few);
    free(w.paths);
    free(w.data);
    free(w.boxes);
    free(w.tensors);
    return 0;
}
