/* Names are looked up in sorted lists: files and configurations may have very many. */
#include "models/weights_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/fail.h"

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

static int shapes_agree(const model_param *param, const dcp_tensor *tensor) {
    return param->ndim == tensor->ndim &&
           memcmp(param->shape, tensor->shape, param->ndim * sizeof *param->shape) == 0;
}

/* The names that tensors of the model may have, ascending. */
typedef struct name_list {
    const char **list;
    size_t n;
    int tied;
    int speaks; /* a talker's, whose files may have a speaker encoder, too */
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

/* Whether `name`, with a dot before it, ends in `end`, which begins with one. */
static int ends_in(const char *name, const char *end) {
    const size_t n = strlen(name), m = strlen(end);
    return (n >= m && strcmp(name + n - m, end) == 0) || strcmp(name, end + 1) == 0;
}

static int may_be_surplus(const name_list *names, const char *name) {
    static const char *const ends[] = {".inv_freq",          ".attn.bias",
                                       ".attn.masked_bias",  ".pooler.dense.weight",
                                       ".pooler.dense.bias", ".embeddings.mask_token"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_in(name, ends[i])) return 1;
    if (names->speaks && strncmp(name, "speaker_encoder.", 16) == 0) return 1;
    return names->tied && strcmp(name, WEIGHTS_COPY) == 0;
}

static void compare_surplus(const name_list *names, const found_tensors *found, weights_tell tell,
                            void *ctx) {
    const size_t prefix = strlen(found->prefix);
    for (size_t i = 0; i < found->n; i++) {
        if (strncmp(found->list[i]->path, found->prefix, prefix) != 0) continue;
        const char *name = found->list[i]->path + prefix;
        if (!bsearch(&name, names->list, names->n, sizeof *names->list, order_by_name) &&
            !may_be_surplus(names, name))
            tell(ctx, (weights_difference){.tensor = found->list[i]});
    }
}

int model_weights_compare(const model_param *const *params, size_t n, const found_tensors *found,
                          weights_tell tell, void *ctx, dcp_error *err) {
    name_list names;
    const int status = list_names(params, n, &names, err);
    if (status != DCP_OK) return status;
    for (size_t i = 0; i < n; i++) {
        const dcp_tensor *tensor = model_weights_find_param(found, params[i]);
        if (!tensor && params[i]->fresh && found->weights_only) continue;
        if (!tensor || !shapes_agree(params[i], tensor))
            tell(ctx, (weights_difference){params[i], tensor});
    }
    compare_surplus(&names, found, tell, ctx);
    free(names.list);
    return DCP_OK;
}
