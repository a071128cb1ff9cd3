/* The state of dcp-bench, in any size: the tensors of a decoder, three times, fp32, cut on
 * dimension 0. All bytes have the same value. */
#ifndef TESTS_BENCH_STATE_H
#define TESTS_BENCH_STATE_H

#include <stdlib.h>
#include <string.h>

#include "dcp/dcp.h"
#include "support/check.h"

typedef struct bench_state {
    unsigned layers, hidden, vocab;
    dcp_state *state;
    unsigned char *memory;
    uint64_t bytes; /* on this rank */
} bench_state;

static const struct {
    const char *name;
    uint32_t ndim;
    uint64_t rows, columns; /* of the hidden size */
} bench_state_parts[] = {
    {"input_layernorm", 1, 1, 0},  {"post_attention_layernorm", 1, 1, 0},
    {"self_attn.q_proj", 2, 2, 1}, {"self_attn.k_proj", 2, 1, 1},
    {"self_attn.v_proj", 2, 1, 1}, {"self_attn.o_proj", 2, 1, 2},
    {"mlp.gate_proj", 2, 3, 1},    {"mlp.up_proj", 2, 3, 1},
    {"mlp.down_proj", 2, 1, 3},
};

/* Adds this rank's rows if `memory` is not NULL; counts their bytes in either case. */
static inline void bench_state_add(bench_state *b, int rank, int size, const char *path,
                                   uint32_t ndim, uint64_t rows, uint64_t columns) {
    const dcp_tensor t = {path, DCP_F32, ndim, {rows, columns}};
    const dcp_box box = dcp_box_chunk(&t, rank, size);
    if (b->memory) CHECK(dcp_state_add(b->state, &t, &box, b->memory + b->bytes, NULL) == DCP_OK);
    b->bytes += dcp_box_elems(&box, ndim) * 4;
}

static inline void bench_state_walk(bench_state *b, int rank, int size) {
    static const char *const sections[] = {"model", "optimizer/exp_avg", "optimizer/exp_avg_sq"};
    char path[128];
    b->bytes = 0;
    for (int s = 0; s < 3; s++) {
        snprintf(path, sizeof path, "/%s/model.embed_tokens.weight", sections[s]);
        bench_state_add(b, rank, size, path, 2, b->vocab, b->hidden);
        snprintf(path, sizeof path, "/%s/model.norm.weight", sections[s]);
        bench_state_add(b, rank, size, path, 1, b->hidden, 0);
        for (unsigned l = 0; l < b->layers; l++)
            for (size_t k = 0; k < sizeof bench_state_parts / sizeof *bench_state_parts; k++) {
                snprintf(path, sizeof path, "/%s/model.layers.%u.%s.weight", sections[s], l,
                         bench_state_parts[k].name);
                bench_state_add(b, rank, size, path, bench_state_parts[k].ndim,
                                bench_state_parts[k].rows * b->hidden,
                                bench_state_parts[k].columns * b->hidden);
            }
    }
}

/* The part of rank `rank` of `size`. */
static inline bench_state bench_state_make(unsigned layers, unsigned hidden, unsigned vocab,
                                           int rank, int size) {
    bench_state b = {.layers = layers, .hidden = hidden, .vocab = vocab};
    bench_state_walk(&b, rank, size);
    b.memory = malloc(b.bytes + 1);
    CHECK(b.memory && dcp_state_create(&b.state, NULL) == DCP_OK);
    bench_state_walk(&b, rank, size);
    return b;
}

static inline void bench_state_fill(bench_state *b, int byte) { memset(b->memory, byte, b->bytes); }

static inline int bench_state_is(const bench_state *b, int byte) {
    for (uint64_t i = 0; i < b->bytes; i++)
        if (b->memory[i] != byte) return 0;
    return 1;
}

static inline void bench_state_free(bench_state *b) {
    dcp_state_destroy(b->state);
    free(b->memory);
}

#endif
