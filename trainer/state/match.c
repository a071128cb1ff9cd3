/* The first difference is told in full, the others are counted. */
#include "match.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../fail.h"
#include "../say.h"

#define COPY "lm_head.weight"
#define PIECE_BYTES (1u << 20)

typedef struct differences {
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

static void shape_text(uint32_t ndim, const uint64_t *shape, char *out, size_t size) {
    size_t at = (size_t)snprintf(out, size, "[");
    for (uint32_t d = 0; d < ndim && at < size; d++)
        at += (size_t)snprintf(out + at, size - at, d ? ",%" PRIu64 : "%" PRIu64, shape[d]);
    if (at < size) snprintf(out + at, size - at, "]");
}

static int by_path(const void *key, const void *element) {
    return strcmp(key, (*(const dcp_tensor *const *)element)->path);
}

static const dcp_tensor *find(const found_tensors *found, const char *name) {
    char path[DCP_MAX_PATH];
    snprintf(path, sizeof path, "%s%s", found->prefix, name);
    const dcp_tensor *const *at =
        found->n ? bsearch(path, found->list, found->n, sizeof *found->list, by_path) : NULL;
    return at ? *at : NULL;
}

const dcp_tensor *match_find(const found_tensors *found, const model_param *param) {
    const dcp_tensor *tensor = find(found, param->name);
    return tensor || !param->base ? tensor : find(found, param->name + param->base);
}

static void compare_param(const model_param *param, const found_tensors *found, differences *d) {
    const dcp_tensor *tensor = match_find(found, param);
    char here[160], there[160];
    shape_text(param->ndim, param->shape, here, sizeof here);
    if (!tensor && param->fresh && found->weights_only) return;
    if (!tensor) {
        differ(d, "%s %s is missing there", param->name, here);
        return;
    }
    shape_text(tensor->ndim, tensor->shape, there, sizeof there);
    if (strcmp(here, there) != 0)
        differ(d, "%s is %s there, %s here", param->name, there, here);
    else if (tensor->dtype != DCP_F32 && tensor->dtype != DCP_BF16 && tensor->dtype != DCP_F16)
        differ(d, "%s is %s there, which is not widened to F32", param->name,
               dcp_dtype_name(tensor->dtype));
}

/* The parameter that is the head's weight, too; NULL: there is none. */
static const fsdp_param *tied_param(const fsdp_layout *layout) {
    for (size_t u = 0; u < layout->n; u++)
        for (size_t i = 0; i < layout->units[u].n; i++)
            if (layout->units[u].params[i].info.tied) return &layout->units[u].params[i];
    return NULL;
}

/* Whether `name`, with a dot before it, ends in `end`, which begins with one. */
static int ends_in(const char *name, const char *end) {
    const size_t n = strlen(name), m = strlen(end);
    return (n >= m && strcmp(name + n - m, end) == 0) || strcmp(name, end + 1) == 0;
}

static int may_be_surplus(const fsdp_layout *layout, const char *name) {
    static const char *const ends[] = {".inv_freq",          ".attn.bias",
                                       ".attn.masked_bias",  ".pooler.dense.weight",
                                       ".pooler.dense.bias", ".embeddings.mask_token"};
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (ends_in(name, ends[i])) return 1;
    return strcmp(name, COPY) == 0 && tied_param(layout);
}

static int is_param(const fsdp_layout *layout, const char *name) {
    for (size_t u = 0; u < layout->n; u++)
        for (size_t i = 0; i < layout->units[u].n; i++) {
            const model_param *param = &layout->units[u].params[i].info;
            if (strcmp(param->name, name) == 0 || strcmp(param->name + param->base, name) == 0)
                return 1;
        }
    return 0;
}

static void compare_surplus(const fsdp_layout *layout, const found_tensors *found, differences *d) {
    const size_t prefix = strlen(found->prefix);
    for (size_t i = 0; i < found->n; i++) {
        if (strncmp(found->list[i]->path, found->prefix, prefix) != 0) continue;
        const char *name = found->list[i]->path + prefix;
        if (!is_param(layout, name) && !may_be_surplus(layout, name))
            differ(d, "%s is there, and the model here has no such tensor", name);
    }
}

static void tell_fresh(const fsdp_layout *layout, const found_tensors *found) {
    for (size_t u = 0; u < layout->n; u++)
        for (size_t i = 0; i < layout->units[u].n; i++) {
            const model_param *param = &layout->units[u].params[i].info;
            if (param->fresh && !match_find(found, param))
                say_warning(layout->rank, "%s has no %s: newly initialized", found->where,
                            param->name);
        }
}

int match_model(const fsdp_layout *layout, const found_tensors *found, dcp_error *err) {
    differences d = {0};
    for (size_t u = 0; u < layout->n; u++)
        for (size_t i = 0; i < layout->units[u].n; i++)
            compare_param(&layout->units[u].params[i].info, found, &d);
    compare_surplus(layout, found, &d);
    if (d.n == 0) {
        tell_fresh(layout, found);
        return DCP_OK;
    }
    char more[48] = "";
    if (d.n > 1) snprintf(more, sizeof more, " (and %zu more differences)", d.n - 1);
    return trainer_fail(err, DCP_ERR_MISMATCH,
                        "%s holds another model: %s%s; set model to the config.json that belongs "
                        "to it, or choose another checkpoint",
                        found->where, d.first, more);
}

static int fail_tied(const found_tensors *found, const char *name, dcp_error *err) {
    return trainer_fail(err, DCP_ERR_MISMATCH,
                        "%s: " COPY " is not %s, while the model ties the two; set "
                        "model.tie_word_embeddings=false to train both, or remove " COPY,
                        found->where, name);
}

/* `memory`: two pieces. */
static int compare_tied(const fsdp_param *param, const found_tensors *found,
                        const dcp_tensor *const both[2], match_read read, void *from, char *memory,
                        dcp_error *err) {
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

int match_tied(const fsdp_layout *layout, const found_tensors *found, match_read read, void *from,
               dcp_error *err) {
    const fsdp_param *param = tied_param(layout);
    if (!param) return DCP_OK;
    const dcp_tensor *const both[] = {match_find(found, &param->info), find(found, COPY)};
    if (!both[0] || !both[1]) return DCP_OK;
    if (both[0]->dtype != both[1]->dtype || both[0]->ndim != both[1]->ndim ||
        memcmp(both[0]->shape, both[1]->shape, both[0]->ndim * sizeof *both[0]->shape) != 0)
        return fail_tied(found, param->info.name, err);
    char *memory = malloc(2 * (size_t)PIECE_BYTES);
    if (!memory) return trainer_fail_memory(err, 2 * (size_t)PIECE_BYTES);
    const int status = compare_tied(param, found, both, read, from, memory, err);
    free(memory);
    return status;
}
