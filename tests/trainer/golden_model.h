/* A golden family's model with more positions than it was made with, and its weights, in the memory
 * of what it computes with. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "dcp/safetensors.h"
#include "models/model_run.h"

enum { GOLDEN_PARAMS = 96 };

typedef struct golden_model {
    json_t *config;
    kernels *k;
    model *m;
    size_t classes, params, unit_first[8], elems[GOLDEN_PARAMS];
    const char *names[GOLDEN_PARAMS];
    float *param[GOLDEN_PARAMS];
} golden_model;

/* Where a tensor has fewer elements than the parameter, these are taken again. */
static inline void golden_load_param(golden_model *g, dcp_st_reader *weights,
                                     const model_param *p) {
    const dcp_tensor *t = dcp_st_find(weights, p->name);
    const size_t n = g->params++, bytes = model_param_elems(p) * sizeof(float);
    const size_t there = dcp_tensor_bytes(t);
    float *data = malloc(bytes);
    assert_int_equal(dcp_st_read(weights, p->name, 0, there < bytes ? there : bytes, data, NULL),
                     DCP_OK);
    for (size_t e = there / sizeof *data; e < bytes / sizeof *data; e++)
        data[e] = data[e * 31 % (there / sizeof *data)];
    g->names[n] = p->name;
    g->elems[n] = bytes / sizeof *data;
    g->param[n] = g->k->alloc(g->k, bytes);
    assert_non_null(g->param[n]);
    g->k->upload(g->k, g->param[n], data, bytes);
    free(data);
}

/* factor: of rotary positions that are scaled; 0: as it was made. */
static inline void golden_model_open(golden_model *g, const char *family, const char *backend,
                                     kernels_type type, size_t positions, double factor) {
    char path[4096];
    dcp_st_reader *weights;
    memset(g, 0, sizeof *g);
    snprintf(path, sizeof path, TEST_DATA "/golden/%s/config.json", family);
    g->config = json_load_file(path, 0, NULL);
    snprintf(path, sizeof path, TEST_DATA "/golden/%s/model.safetensors", family);
    assert_int_equal(dcp_st_open(path, &weights, NULL), DCP_OK);
    json_object_set_new(g->config,
                        json_object_get(g->config, "n_positions") ? "n_positions"
                                                                  : "max_position_embeddings",
                        json_integer((json_int_t)positions));
    if (factor > 0.0)
        json_object_set_new(json_object_get(g->config, "rope_parameters"), "factor",
                            json_real(factor));
    assert_int_equal(model_create(g->config, &g->m, NULL), DCP_OK);
    assert_int_equal(kernels_open(backend, &g->k), KERNELS_OK);
    model_set_kernels(g->m, g->k);
    model_set_type(g->m, type);
    for (size_t unit = 0; unit < model_units(g->m); unit++) {
        g->unit_first[unit] = g->params;
        for (size_t i = 0; i < model_unit_params(g->m, unit); i++)
            golden_load_param(g, weights, model_unit_param(g->m, unit, i));
    }
    dcp_st_close(weights);
    g->classes = model_sample(g->m, positions).classes;
}

static inline void golden_model_close(golden_model *g) {
    for (size_t i = 0; i < g->params; i++) g->k->free(g->k, g->param[i]);
    model_destroy(g->m);
    kernels_close(g->k);
    json_decref(g->config);
}

static inline void golden_model_forward(const golden_model *g, model_run *run) {
    for (size_t stage = 0; stage < model_stages(g->m); stage++)
        model_forward(run, stage,
                      (const float *const *)g->param +
                          g->unit_first[model_stage_unit(g->m, stage)]);
}

/* Two tests of each family, into tests[2 * n]; they get its name. */
static inline void golden_family_tests(struct CMUnitTest *tests, const char *const *families,
                                       size_t n, CMUnitTestFunction in_fp32,
                                       CMUnitTestFunction in_bf16) {
    for (size_t i = 0; i < 2 * n; i++)
        tests[i] = (struct CMUnitTest){.name = families[i / 2],
                                       .test_func = i % 2 ? in_bf16 : in_fp32,
                                       .initial_state = (void *)families[i / 2]};
}

/* grads: as g->param. */
static inline void golden_model_backward(const golden_model *g, model_run *run,
                                         float *const *grads) {
    for (size_t stage = model_stages(g->m); stage-- > 0;) {
        const size_t first = g->unit_first[model_stage_unit(g->m, stage)];
        model_backward(run, stage, (const float *const *)g->param + first, grads + first);
    }
}
