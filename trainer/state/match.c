/* The first difference is told in full, the others are counted. */
#include "state/match.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/fail.h"
#include "ranks/say.h"

#define PIECE_BYTES (1u << 20)

typedef struct differences {
    size_t prefix_length; /* of the names found */
    size_t n;
    char first[600];
} differences;

static void differ(differences *d, const char *fmt, ...) DCP_PRINTF(2, 3);
static void differ(differences *d, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    if (d->n++ == 0) vsnprintf(d->first, sizeof d->first, fmt, args);
    va_end(args);
}

static void tell_difference(void *differences_of, weights_difference difference) {
    differences *d = differences_of;
    const model_param *param = difference.param;
    const dcp_tensor *tensor = difference.tensor;
    char here[160], there[160];
    if (param) model_weights_shape_text(param->ndim, param->shape, here, sizeof here);
    if (tensor) model_weights_shape_text(tensor->ndim, tensor->shape, there, sizeof there);
    if (!tensor)
        differ(d, "%s %s is missing there", param->name, here);
    else if (!param)
        differ(d, "%s is there, and the model here has no such tensor",
               tensor->path + d->prefix_length);
    else
        differ(d, "%s is %s there, %s here", param->name, there, here);
}

static void compare_dtype(const model_param *param, const found_tensors *found, differences *d) {
    const dcp_tensor *tensor = model_weights_find_param(found, param);
    if (tensor && tensor->dtype != DCP_F32 && tensor->dtype != DCP_BF16 && tensor->dtype != DCP_F16)
        differ(d, "%s is %s there, which is not widened to F32", param->name,
               dcp_dtype_name(tensor->dtype));
}

/* The parameter that is the head's weight, too; NULL: there is none. */
static const fsdp_param *tied_param(const fsdp_layout *layout) {
    for (size_t i = 0; i < layout->n_params; i++)
        if (layout->params[i].info.tied) return &layout->params[i];
    return NULL;
}

static void tell_fresh(const fsdp_layout *layout, const found_tensors *found) {
    for (size_t i = 0; i < layout->n_params; i++) {
        const model_param *param = &layout->params[i].info;
        if (param->fresh && !model_weights_find_param(found, param))
            ranks_warn(layout->rank, "%s has no %s: newly initialized", found->where, param->name);
    }
}

static int compare_params(const fsdp_layout *layout, const found_tensors *found, differences *d,
                          dcp_error *err) {
    const size_t n = layout->n_params;
    const model_param **params = calloc(n + 1, sizeof *params);
    if (!params) return core_fail_memory(err, (n + 1) * sizeof *params);
    for (size_t i = 0; i < n; i++) params[i] = &layout->params[i].info;
    const int status = model_weights_compare(params, n, found, tell_difference, d, err);
    for (size_t i = 0; i < n; i++) compare_dtype(params[i], found, d);
    free(params);
    return status;
}

/* A tensor whose name has a part that a wrapper of modules put there; NULL: there is none. */
static const char *find_wrapped(const found_tensors *found) {
    static const char *const parts[] = {"_orig_mod.", "_module.", "module.", "base_model."};
    for (size_t i = 0; i < found->n; i++) {
        const char *name = found->list[i]->path + strlen(found->prefix);
        for (size_t j = 0; j < sizeof parts / sizeof *parts; j++) {
            const char *at = strstr(name, parts[j]);
            if (at && (at == name || *parts[j] == '_')) return name;
        }
    }
    return NULL;
}

static int match_shapes(const fsdp_layout *layout, const found_tensors *found, dcp_error *err) {
    differences d = {.prefix_length = strlen(found->prefix)};
    const int status = compare_params(layout, found, &d, err);
    if (status != DCP_OK) return status;
    if (d.n == 0) {
        tell_fresh(layout, found);
        return DCP_OK;
    }
    char more[48] = "";
    if (d.n > 1) snprintf(more, sizeof more, " (and %zu more differences)", d.n - 1);
    const char *wrapped = find_wrapped(found);
    if (wrapped)
        return core_fail(
            err, DCP_ERR_MISMATCH,
            "%s holds another model: %s%s; %s is named as a wrapper of modules has it: "
            "dcp-import makes a checkpoint without such parts of names",
            found->where, d.first, more, wrapped);
    return core_fail(err, DCP_ERR_MISMATCH,
                     "%s holds another model: %s%s; set model to the config.json that belongs "
                     "to it, or choose another checkpoint",
                     found->where, d.first, more);
}

static int fail_tied(const found_tensors *found, const char *name, dcp_error *err) {
    return core_fail(err, DCP_ERR_MISMATCH,
                     "%s: " WEIGHTS_COPY " is not %s, while the model ties the two; set "
                     "model.tie_word_embeddings=false to train both, or remove " WEIGHTS_COPY,
                     found->where, name);
}

/* `memory`: two pieces. */
static int compare_tied(const fsdp_param *param, const found_tensors *found,
                        const dcp_tensor *const both[2], state_match_read read, void *from,
                        char *memory, dcp_error *err) {
    const uint32_t ndim = both[0]->ndim;
    const uint64_t size = dcp_dtype_bytes(both[0]->dtype);
    for (uint64_t first = 0, n; first < param->elems; first += n) {
        dcp_box box;
        n = dcp_box_slice(ndim, &param->box, first, PIECE_BYTES / size, &box);
        int status = read(from, both[0], &box, memory, err);
        if (status == DCP_OK) status = read(from, both[1], &box, memory + PIECE_BYTES, err);
        if (status != DCP_OK) return status;
        if (memcmp(memory, memory + PIECE_BYTES, n * size) != 0)
            return fail_tied(found, param->info.name, err);
    }
    return DCP_OK;
}

static int match_tied(const fsdp_layout *layout, const found_tensors *found, state_match_read read,
                      void *from, dcp_error *err) {
    const fsdp_param *param = tied_param(layout);
    if (!param) return DCP_OK;
    const dcp_tensor *const both[] = {model_weights_find_param(found, &param->info),
                                      model_weights_find(found, WEIGHTS_COPY)};
    if (!both[0] || !both[1]) return DCP_OK;
    if (both[0]->dtype != both[1]->dtype || both[0]->ndim != both[1]->ndim ||
        memcmp(both[0]->shape, both[1]->shape, both[0]->ndim * sizeof *both[0]->shape) != 0)
        return fail_tied(found, param->info.name, err);
    char *memory = malloc(2 * (size_t)PIECE_BYTES);
    if (!memory) return core_fail_memory(err, 2 * (size_t)PIECE_BYTES);
    const int status = compare_tied(param, found, both, read, from, memory, err);
    free(memory);
    return status;
}

int state_match_weights(const fsdp_layout *layout, const found_tensors *found,
                        state_match_read read, void *from, dcp_error *err) {
    const int status = match_shapes(layout, found, err);
    return status == DCP_OK ? match_tied(layout, found, read, from, err) : status;
}
