/* All boxes lie in one piece of memory, each at the start of a page, as an allocator of large
 * tensors would place them. */
#include "bench/workload.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE 4096
#define PER_LAYER 9
#define OUTSIDE_LAYERS 2
#define MATRIX 2

typedef struct shape {
    const char *name;
    uint32_t ndim;
    uint64_t rows, cols; /* in units of the hidden size */
} shape;

static const shape layer_shapes[PER_LAYER] = {
    {"input_layernorm", 1, 1, 0},       {"post_attention_layernorm", 1, 1, 0},
    {"self_attn.q_proj", MATRIX, 2, 1}, {"self_attn.k_proj", MATRIX, 1, 1},
    {"self_attn.v_proj", MATRIX, 1, 1}, {"self_attn.o_proj", MATRIX, 1, 2},
    {"mlp.gate_proj", MATRIX, 3, 1},    {"mlp.up_proj", MATRIX, 3, 1},
    {"mlp.down_proj", MATRIX, 1, 3},
};

static const char *const sections[] = {"model", "optimizer/exp_avg", "optimizer/exp_avg_sq"};
#define SECTIONS (sizeof sections / sizeof *sections)

static void describe_outer(bench_tensor *t, const char *section, int is_norm, uint64_t hidden,
                           uint64_t vocab) {
    snprintf(t->path, sizeof t->path, "/%s/model.%s.weight", section,
             is_norm ? "norm" : "embed_tokens");
    t->tensor = (dcp_tensor){t->path, DCP_F32, is_norm ? 1 : MATRIX, {is_norm ? hidden : vocab}};
    if (!is_norm) t->tensor.shape[1] = hidden;
}

static void describe_in_layer(bench_tensor *t, const char *section, uint64_t layer, const shape *s,
                              uint64_t hidden) {
    snprintf(t->path, sizeof t->path, "/%s/model.layers.%" PRIu64 ".%s.weight", section, layer,
             s->name);
    t->tensor = (dcp_tensor){t->path, DCP_F32, s->ndim, {s->rows * hidden, s->cols * hidden}};
}

static void describe_tensors(bench_workload *work, uint64_t layers, uint64_t hidden,
                             uint64_t vocab) {
    bench_tensor *t = work->tensors;
    for (size_t s = 0; s < SECTIONS; s++) {
        describe_outer(t++, sections[s], 0, hidden, vocab);
        describe_outer(t++, sections[s], 1, hidden, vocab);
        for (uint64_t layer = 0; layer < layers; layer++)
            for (size_t k = 0; k < PER_LAYER; k++)
                describe_in_layer(t++, sections[s], layer, &layer_shapes[k], hidden);
    }
}

static uint64_t box_bytes(const bench_tensor *t) {
    return dcp_box_elems(&t->box, t->tensor.ndim) * sizeof *t->data;
}

static uint64_t in_pages(uint64_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

static int place_tensors(bench_workload *work, int rank, int ranks, dcp_error *err) {
    for (size_t i = 0; i < work->n; i++) {
        bench_tensor *t = &work->tensors[i];
        t->box = dcp_box_chunk(&t->tensor, rank, ranks);
        work->bytes += dcp_tensor_bytes(&t->tensor);
        work->arena_bytes += in_pages(box_bytes(t));
    }
    if (work->arena_bytes == 0) return DCP_OK;
    void *arena =
        mmap(NULL, work->arena_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (arena == MAP_FAILED) {
        snprintf(err->message, sizeof err->message, "out of memory: %" PRIu64 " bytes",
                 work->arena_bytes);
        return err->status = DCP_ERR_NO_MEMORY;
    }
    char *at = work->arena = arena;
    for (size_t i = 0; i < work->n; i++) {
        bench_tensor *t = &work->tensors[i];
        if (box_bytes(t) > 0) t->data = (uint32_t *)(void *)at;
        at += in_pages(box_bytes(t));
    }
    return DCP_OK;
}

int bench_workload_create(bench_workload *work, uint64_t layers, uint64_t hidden, uint64_t vocab,
                          int rank, int ranks, dcp_error *err) {
    *work = (bench_workload){.n = SECTIONS * (OUTSIDE_LAYERS + PER_LAYER * layers)};
    *err = (dcp_error){.status = DCP_ERR_NO_MEMORY, .rank = -1, .message = "out of memory"};
    work->tensors = calloc(work->n, sizeof *work->tensors);
    if (!work->tensors) return DCP_ERR_NO_MEMORY;
    describe_tensors(work, layers, hidden, vocab);
    int status = place_tensors(work, rank, ranks, err);
    if (status == DCP_OK) status = dcp_state_create(&work->state, err);
    for (size_t i = 0; i < work->n && status == DCP_OK; i++) {
        bench_tensor *t = &work->tensors[i];
        status = dcp_state_add(work->state, &t->tensor, &t->box, t->data, err);
    }
    if (status == DCP_OK) bench_workload_clear(work);
    return status;
}

void bench_workload_destroy(bench_workload *work) {
    dcp_state_destroy(work->state);
    if (work->arena) munmap(work->arena, work->arena_bytes);
    free(work->tensors);
}

/* The value of element `i` of tensor number `t`: 32 bits that are never compared as a number. */
static uint32_t pattern(size_t t, uint64_t i) {
    return (uint32_t)i * 2654435761u ^ (uint32_t)t * 0x9e3779b9u;
}

/* The tensor's element that the box begins with. */
static uint64_t first_elem(const bench_tensor *t) {
    return t->box.start[0] * (t->tensor.ndim == MATRIX ? t->tensor.shape[1] : 1);
}

void bench_workload_fill(bench_workload *work) {
    for (size_t k = 0; k < work->n; k++) {
        const bench_tensor *t = &work->tensors[k];
        uint64_t n = dcp_box_elems(&t->box, t->tensor.ndim), first = first_elem(t);
        for (uint64_t i = 0; i < n; i++) t->data[i] = pattern(k, first + i);
    }
}

void bench_workload_clear(bench_workload *work) {
    if (work->arena) memset(work->arena, 0xa5, work->arena_bytes);
}

const char *bench_workload_check(const bench_workload *work) {
    for (size_t k = 0; k < work->n; k++) {
        const bench_tensor *t = &work->tensors[k];
        uint64_t n = dcp_box_elems(&t->box, t->tensor.ndim), first = first_elem(t);
        uint32_t wrong = 0;
        for (uint64_t i = 0; i < n; i++) wrong |= t->data[i] ^ pattern(k, first + i);
        if (wrong) return t->path;
    }
    return NULL;
}
