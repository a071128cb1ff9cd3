/* Filling the state from a checkpoint. Tables are the same on all ranks, so what is decided from
 * them is too. Weights of two bytes are loaded, as they are, into the memory of the first moment,
 * which a checkpoint with such weights has no use for, and widened from there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../agree.h"
#include "../fail.h"
#include "match.h"
#include "state.h"
#include "widen.h"

enum { NO_MOMENTS, ALL_MOMENTS };

static const char *const moments[] = {"/optimizer/exp_avg/", "/optimizer/exp_avg_sq/"};

static int same_shape(const dcp_tensor *tensor, const model_param *param) {
    return tensor->ndim == param->ndim &&
           memcmp(tensor->shape, param->shape, param->ndim * sizeof *param->shape) == 0;
}

/* How many of the two moments of a parameter the checkpoint has; -1 where one has another type or
 * shape. */
static int count_moments(const dcp_checkpoint *ckpt, const fsdp_param *param) {
    int n = 0;
    for (size_t i = 0; i < 2; i++) {
        char path[DCP_MAX_PATH];
        snprintf(path, sizeof path, "%s%s", moments[i], param->info.name);
        const dcp_tensor *tensor = dcp_checkpoint_find(ckpt, path);
        if (tensor && (tensor->dtype != DCP_F32 || !same_shape(tensor, &param->info))) return -1;
        n += tensor != NULL;
    }
    return n;
}

static int match_moments(const train_state *s, const dcp_checkpoint *ckpt, int *out,
                         dcp_error *err) {
    const char *without = NULL, *with = NULL;
    for (size_t u = 0; u < s->layout->n; u++)
        for (size_t i = 0; i < s->layout->units[u].n; i++) {
            const fsdp_param *param = &s->layout->units[u].params[i];
            const int n = count_moments(ckpt, param);
            if (n == 2 && !with) with = param->info.name;
            if (n != 2 && !without) without = param->info.name;
            if (n == 1 || n < 0) with = without = param->info.name;
        }
    if (with && without)
        return trainer_fail(err, DCP_ERR_MISMATCH,
                            "%s: the optimizer's moments of %s are missing, or not F32 in its "
                            "shape, while others are there",
                            dcp_checkpoint_path(ckpt), without);
    *out = with ? ALL_MOMENTS : NO_MOMENTS;
    return DCP_OK;
}

int state_match(const fsdp_layout *layout, const dcp_checkpoint *ckpt, dcp_error *err) {
    const size_t n = dcp_checkpoint_tensors(ckpt);
    const dcp_tensor **list = calloc(n + 1, sizeof *list);
    if (!list) return trainer_fail_memory(err, n * sizeof *list);
    for (size_t i = 0; i < n; i++) list[i] = dcp_checkpoint_tensor(ckpt, i);
    const found_tensors found = {
        .where = dcp_checkpoint_path(ckpt), .prefix = "/model/", .list = list, .n = n};
    const int status = match_model(layout, &found, err);
    free(list);
    return status;
}

typedef int (*param_fn)(train_state *s, const fsdp_param *param, const dcp_tensor *tensor,
                        dcp_state *state, dcp_error *err);

/* By its name, or without the family's prefix. */
static const dcp_tensor *find_weights(const dcp_checkpoint *ckpt, const model_param *param) {
    char path[DCP_MAX_PATH];
    snprintf(path, sizeof path, "/model/%s", param->name);
    const dcp_tensor *tensor = dcp_checkpoint_find(ckpt, path);
    if (tensor) return tensor;
    snprintf(path, sizeof path, "/model/%s", param->name + param->base);
    return dcp_checkpoint_find(ckpt, path);
}

/* Calls `visit` with each parameter and its tensor in the checkpoint. */
static int each_param(train_state *s, const dcp_checkpoint *ckpt, dcp_state *state, param_fn visit,
                      dcp_error *err) {
    int status = DCP_OK;
    for (size_t u = 0; u < s->layout->n; u++)
        for (size_t i = 0; i < s->layout->units[u].n && status == DCP_OK; i++) {
            const fsdp_param *param = &s->layout->units[u].params[i];
            status = visit(s, param, find_weights(ckpt, &param->info), state, err);
        }
    return status;
}

static int add_weights(train_state *s, const fsdp_param *param, const dcp_tensor *tensor,
                       dcp_state *state, dcp_error *err) {
    float *memory = tensor->dtype == DCP_F32 ? s->params : s->exp_avg;
    return dcp_state_add(state, tensor, &param->box, memory + param->shard_at, err);
}

static int widen_weights(train_state *s, const fsdp_param *param, const dcp_tensor *tensor,
                         dcp_state *state, dcp_error *err) {
    (void)state, (void)err;
    if (tensor->dtype == DCP_F32) return DCP_OK;
    widen(s->params + param->shard_at, s->exp_avg + param->shard_at, param->elems, tensor->dtype);
    return DCP_OK;
}

/* What is to be loaded, and where to. */
static int plan(train_state *s, const dcp_checkpoint *ckpt, unsigned sections, int *with_moments,
                dcp_state **state, dcp_error *err) {
    int status = state_match(s->layout, ckpt, err);
    if (status == DCP_OK && sections & STATE_OPTIMIZER)
        status = match_moments(s, ckpt, with_moments, err);
    if (status == DCP_OK && sections & STATE_FILES) status = state_take_files(s, ckpt, err);
    if (status != DCP_OK) return status;
    if (*with_moments) return state_register(s, sections, state, err);
    status = state_register(s, sections & STATE_FILES, state, err);
    return status == DCP_OK ? each_param(s, ckpt, *state, add_weights, err) : status;
}

int state_load(train_state *s, MPI_Comm comm, dcp_checkpoint *ckpt, unsigned sections,
               dcp_engine engine, int *with_moments, dcp_error *err) {
    const dcp_load_options options = {.engine = engine};
    dcp_state *state = NULL;
    int found = NO_MOMENTS;
    int status = agree(comm, plan(s, ckpt, sections, &found, &state, err), err);
    if (status == DCP_OK) status = dcp_load_with(ckpt, state, &options, NULL, err);
    if (state) dcp_state_destroy(state);
    if (status != DCP_OK) return status;
    if (found == NO_MOMENTS) {
        status = each_param(s, ckpt, NULL, widen_weights, err);
        s->k->zero(s->k, s->exp_avg, s->layout->shard_elems);
        s->k->zero(s->k, s->exp_avg_sq, s->layout->shard_elems);
    }
    *with_moments = found;
    return status;
}
