/* Compares the model's parameters with the tensors that were found. The message contains the first
 * difference in full, and the number of other differences. */
#include "state/state_load.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dcp/safetensors.h>

#include "fsdp/shard_layout.h"
#include "programs/fail.h"
#include "programs/json_read.h"
#include "programs/model_files.h"
#include "ranks/board.h"
#include "ranks/log.h"
#include "state/meta.h"

#define PIECE_BYTES (1u << 20)

typedef struct differences {
    size_t prefix_length; /* the length of the prefix of the names that were found */
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

static void record_difference(void *differences_of, weights_difference difference) {
    differences *d = differences_of;
    const model_param *param = difference.param;
    const dcp_tensor *tensor = difference.tensor;
    char here[160], there[160];
    if (param) model_weights_shape_text(param->ndim, param->shape, here, sizeof here);
    if (tensor) model_weights_shape_text(tensor->ndim, tensor->shape, there, sizeof there);
    if (!tensor)
        differ(d, "%s %s is missing there", param->name, here);
    else if (!param)
        differ(d, "the model here has no tensor %s", tensor->path + d->prefix_length);
    else
        differ(d, "%s is %s there, %s here", param->name, there, here);
}

static void compare_dtype(const model_param *param, const found_tensors *found, differences *d) {
    const dcp_tensor *tensor = model_weights_find_param(found, param);
    if (tensor && tensor->dtype != DCP_F32 && tensor->dtype != DCP_BF16 && tensor->dtype != DCP_F16)
        differ(d, "%s is %s there, which cannot be widened to F32", param->name,
               dcp_dtype_name(tensor->dtype));
}

/* Returns the parameter that is also the head's weight, or NULL if the model ties no weights. */
static const fsdp_param *tied_param(const fsdp_layout *layout) {
    for (size_t i = 0; i < layout->n_params; i++)
        if (layout->params[i].info.tied) return &layout->params[i];
    return NULL;
}

static void report_fresh(const fsdp_layout *layout, const found_tensors *found) {
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
    const int status = model_weights_compare(params, n, found, record_difference, d, err);
    for (size_t i = 0; i < n; i++) compare_dtype(params[i], found, d);
    free(params);
    return status;
}

/* Returns a tensor's name that contains a part added by a wrapper of modules, or NULL. */
static const char *find_wrapped(const found_tensors *found) {
    for (size_t i = 0; i < found->n; i++) {
        const char *name = found->list[i]->path + strlen(found->prefix);
        for (size_t j = 0; j < MODEL_WRAPPERS; j++) {
            const char *at = strstr(name, model_wrappers[j].part);
            if (at && (at == name || !model_wrappers[j].leads)) return name;
        }
    }
    return NULL;
}

static int match_shapes(const fsdp_layout *layout, const found_tensors *found, dcp_error *err) {
    differences d = {.prefix_length = strlen(found->prefix)};
    const int status = compare_params(layout, found, &d, err);
    if (status != DCP_OK) return status;
    if (d.n == 0) {
        report_fresh(layout, found);
        return DCP_OK;
    }
    char more[48] = "";
    if (d.n > 1) snprintf(more, sizeof more, " (and %zu more differences)", d.n - 1);
    const char *wrapped = find_wrapped(found);
    if (wrapped)
        return core_fail(err, DCP_ERR_MISMATCH,
                         "%s holds another model: %s%s; the name %s has a part that a wrapper of "
                         "modules added: dcp-import makes a checkpoint without such parts",
                         found->where, d.first, more, wrapped);
    return core_fail(err, DCP_ERR_MISMATCH,
                     "%s holds another model: %s%s; set model to the config.json that belongs "
                     "to it, or choose another checkpoint",
                     found->where, d.first, more);
}

static int fail_tied(const found_tensors *found, const char *name, dcp_error *err) {
    return core_fail(err, DCP_ERR_MISMATCH,
                     "%s: " WEIGHTS_COPY " differs from %s, but the model ties the two; set "
                     "model.tie_word_embeddings=false to train both, or remove " WEIGHTS_COPY,
                     found->where, name);
}

/* Compares this rank's rows of both copies of a tied weight. memory: room for two pieces. */
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

/* Returns DCP_OK if each parameter has exactly one tensor, with the right shape and a type that can
 * be widened to fp32. A classifier may be missing if only weights were found; then rank 0 warns.
 * model_weights_compare decides which surplus tensors are acceptable. Otherwise returns
 * DCP_ERR_MISMATCH: the message describes the first tensor that differs, and counts the others.
 *
 * If lm_head.weight was found although the model ties it to the embedding, this rank's rows of both
 * tensors are read and compared. If they differ, the weights are not tied, and the result is
 * DCP_ERR_MISMATCH. Not collective. */
static int state_match_weights(const fsdp_layout *layout, const found_tensors *found,
                               state_match_read read, void *from, dcp_error *err) {
    const int status = match_shapes(layout, found, err);
    return status == DCP_OK ? match_tied(layout, found, read, from, err) : status;
}

/* Fills the state from a checkpoint. All ranks see the same tables, so they make the same
 * decisions. Weights of two bytes per element are widened by the load, if no tensors of an
 * optimizer are loaded with them. */

static bool is_shaped_like(const dcp_tensor *tensor, const model_param *param) {
    return tensor->ndim == param->ndim &&
           memcmp(tensor->shape, param->shape, param->ndim * sizeof *param->shape) == 0;
}

static const dcp_tensor *find_slot(const dcp_checkpoint *ckpt, const optim_slot *slot,
                                   const fsdp_param *param) {
    char path[DCP_MAX_PATH];
    snprintf(path, sizeof path, "/optimizer/%s/%s", slot->name, param->info.name);
    return dcp_checkpoint_find(ckpt, path);
}

/* Returns the number of a parameter's slots in the checkpoint, or -1 if a slot has a different type
 * or shape. */
static int count_slots(const dcp_checkpoint *ckpt, const optim_type *optimizer,
                       const fsdp_param *param) {
    int n = 0;
    for (size_t i = 0; i < optimizer->n_slots; i++) {
        const optim_slot *slot = &optimizer->slots[i];
        const dcp_tensor *tensor = find_slot(ckpt, slot, param);
        if (tensor && (tensor->dtype != slot->dtype || !is_shaped_like(tensor, &param->info)))
            return -1;
        n += tensor != NULL;
    }
    return n;
}

/* The kinds of trained parameters, by the slots that the checkpoint has for them: for each kind a
 * count, the name of the first parameter, or both. */
typedef struct slots_found {
    size_t with, thawed; /* thawed: no slots, because the saved run had frozen them */
    const char *without, *first_thawed, *broken;
} slots_found;

static void look_at_slots(const dcp_checkpoint *ckpt, const optim_type *optimizer,
                          const fsdp_param *param, const json_t *frozen, slots_found *found) {
    const char *name = param->info.name;
    const int n = count_slots(ckpt, optimizer, param);
    if (n == (int)optimizer->n_slots) {
        found->with++;
    } else if (n != 0) {
        if (!found->broken) found->broken = name;
    } else if (fsdp_globs_match(frozen, name)) {
        if (found->thawed++ == 0) found->first_thawed = name;
    } else if (!found->without) {
        found->without = name;
    }
}

static int match_slots(const fsdp_layout *layout, const optim_type *optimizer,
                       const dcp_checkpoint *ckpt, slots_found *found, dcp_error *err) {
    json_t *meta;
    const char *text = dcp_checkpoint_json(ckpt);
    const int status = core_json_parse_object(text, strlen(text), &meta, err);
    if (status != DCP_OK) return status;
    for (size_t i = 0; i < layout->n_params; i++) {
        const fsdp_param *param = &layout->params[i];
        if (!param->info.frozen)
            look_at_slots(ckpt, optimizer, param, json_object_get(meta, "frozen"), found);
    }
    json_decref(meta);
    if (!found->broken && found->with > 0) found->broken = found->without;
    if (!found->broken) return DCP_OK;
    return core_fail(err, DCP_ERR_MISMATCH,
                     "%s: the optimizer's moments of %s are missing, or are not F32 tensors of its "
                     "shape, although other parameters have moments",
                     dcp_checkpoint_path(ckpt), found->broken);
}

bool state_has_optimizer(const dcp_checkpoint *ckpt) {
    for (size_t i = 0; i < dcp_checkpoint_tensors(ckpt); i++)
        if (strncmp(dcp_checkpoint_tensor(ckpt, i)->path, "/optimizer/", 11) == 0) return true;
    return false;
}

static int read_stored_box(void *ckpt, const dcp_tensor *tensor, const dcp_box *box, void *out,
                           dcp_error *err) {
    return dcp_checkpoint_read(ckpt, tensor->path, box, out, err);
}

static int match_weights(const fsdp_layout *layout, dcp_checkpoint *ckpt, dcp_error *err) {
    const size_t n = dcp_checkpoint_tensors(ckpt);
    const dcp_tensor **list = calloc(n + 1, sizeof *list);
    if (!list) return core_fail_memory(err, n * sizeof *list);
    for (size_t i = 0; i < n; i++) list[i] = dcp_checkpoint_tensor(ckpt, i);
    const found_tensors found = {.where = dcp_checkpoint_path(ckpt),
                                 .prefix = "/model/",
                                 .list = list,
                                 .n = n,
                                 .weights_only = !state_has_optimizer(ckpt)};
    const int status = state_match_weights(layout, &found, read_stored_box, ckpt, err);
    free(list);
    return status;
}

/* Compares the checkpoint's tensors with the model's. optimizer: NULL if slots are not needed. */
static int match_tensors(const fsdp_layout *layout, const optim_type *optimizer,
                         dcp_checkpoint *ckpt, slots_found *found, dcp_error *err) {
    const int status = match_weights(layout, ckpt, err);
    if (status != DCP_OK || !optimizer) return status;
    return match_slots(layout, optimizer, ckpt, found, err);
}

int state_match(const fsdp_layout *layout, const optim_type *optimizer, dcp_checkpoint *ckpt,
                bool *with_slots, dcp_error *err) {
    slots_found found = {0};
    const int status = match_tensors(layout, optimizer, ckpt, &found, err);
    *with_slots = found.with > 0;
    return status;
}

/* Finds a parameter by its name, with or without the family's prefix. */
static const dcp_tensor *find_weights(const dcp_checkpoint *ckpt, const model_param *param) {
    char path[DCP_MAX_PATH];
    snprintf(path, sizeof path, "/model/%s", param->name);
    const dcp_tensor *tensor = dcp_checkpoint_find(ckpt, path);
    if (tensor) return tensor;
    snprintf(path, sizeof path, "/model/%s", param->name + param->base);
    return dcp_checkpoint_find(ckpt, path);
}

/* Adds a parameter's weights to the tensors to load. A missing classifier is initialized randomly
 * instead. */
static int add_weights(train_state *s, const dcp_checkpoint *ckpt, const fsdp_param *param,
                       dcp_state *state, dcp_error *err) {
    const dcp_tensor *there = find_weights(ckpt, &param->info);
    if (!there) {
        state_randomize_param(s, param);
        return DCP_OK;
    }
    dcp_tensor tensor = *there;
    tensor.dtype = DCP_F32;
    return state_add(s, state, &tensor, &param->box, s->params + param->param_at, err);
}

/* Adds a parameter's slots, if the checkpoint has them, to the tensors to load. */
static int add_slots(const train_state *s, const dcp_checkpoint *ckpt, const fsdp_param *param,
                     dcp_state *state, dcp_error *err) {
    int status = DCP_OK;
    for (size_t i = 0; i < s->optimizer->n_slots && status == DCP_OK && !param->info.frozen; i++) {
        const dcp_tensor *tensor = find_slot(ckpt, &s->optimizer->slots[i], param);
        if (tensor)
            status = state_add(s, state, tensor, &param->box, state_slot_at(s, i, param), err);
    }
    return status;
}

static int add_unit(train_state *s, const dcp_checkpoint *ckpt, size_t unit, bool with_slots,
                    dcp_state *state, dcp_error *err) {
    int status = DCP_OK;
    for (size_t i = 0; i < s->layout->units[unit].n && status == DCP_OK; i++) {
        const fsdp_param *param = &s->layout->units[unit].params[i];
        status = add_weights(s, ckpt, param, state, err);
        if (status == DCP_OK && with_slots) status = add_slots(s, ckpt, param, state, err);
    }
    return status;
}

enum { MOST_UPDATES = 1 << 30 };

/* PyTorch's optimizers store a count of updates with each parameter. Reads the count of one
 * parameter into *n. *found: whether the checkpoint has that count. */
static int read_updates(dcp_checkpoint *ckpt, const char *name, bool *found, float *n,
                        dcp_error *err) {
    char path[DCP_MAX_PATH];
    snprintf(path, sizeof path, "/optimizer/step/%s", name);
    const dcp_tensor *tensor = dcp_checkpoint_find(ckpt, path);
    *found = tensor != NULL;
    if (!tensor) return DCP_OK;
    if (tensor->dtype != DCP_F32 || tensor->ndim != 0)
        return core_fail(err, DCP_ERR_MISMATCH, "%s: %s is not a number of type F32",
                         dcp_checkpoint_path(ckpt), path);
    const dcp_box whole = dcp_box_whole(tensor);
    return dcp_checkpoint_read(ckpt, path, &whole, n, err);
}

/* Does the same as read_since, for a checkpoint that counts a parameter's updates. Computes the
 * result from the count, because the count may differ from the checkpoint's step: an import is step
 * 0, but can have any counts. */
static int since_updates(const dcp_checkpoint *ckpt, const char *name, float n, int64_t *out,
                         dcp_error *err) {
    if (!(n >= 0 && n <= MOST_UPDATES))
        return core_fail(
            err, DCP_ERR_MISMATCH,
            "%s: %g, the stored number of updates of %s, is not a count; save the checkpoint again",
            dcp_checkpoint_path(ckpt), (double)n, name);
    *out = (int64_t)dcp_checkpoint_step(ckpt) - (int64_t)n;
    return DCP_OK;
}

/* *out: the step at which the parameter began to count its updates. If the checkpoint has slots of
 * the parameter, the step is taken from `kept`, the checkpoint's STATE_META_SINCE; it is 0 if
 * `kept` lacks the parameter. Without slots, it is `step`, the checkpoint's step. */
static int read_since(const json_t *kept, const char *name, int slots, int64_t step, int64_t *out,
                      dcp_error *err) {
    const json_t *value = json_object_get(kept, name);
    *out = slots > 0 ? json_integer_value(value) : step;
    if (!value || (json_is_integer(value) && *out <= step)) return DCP_OK;
    return core_fail(err, DCP_ERR_CORRUPT,
                     "the checkpoint's \"%s\" of %s is not a step, or is after step %" PRId64,
                     STATE_META_SINCE, name, step);
}

static int take_since_of(train_state *s, dcp_checkpoint *ckpt, const json_t *kept, size_t i,
                         dcp_error *err) {
    const char *name = s->layout->params[i].info.name;
    const int slots = count_slots(ckpt, s->optimizer, &s->layout->params[i]);
    bool counted = false;
    float n = 0;
    const int status = slots > 0 ? read_updates(ckpt, name, &counted, &n, err) : DCP_OK;
    if (status != DCP_OK) return status;
    if (counted) return since_updates(ckpt, name, n, &s->since[i], err);
    return read_since(kept, name, slots, (int64_t)dcp_checkpoint_step(ckpt), &s->since[i], err);
}

static int take_since(train_state *s, dcp_checkpoint *ckpt, unsigned sections, dcp_error *err) {
    const size_t n = s->layout->n_params;
    int status = DCP_OK;
    memset(s->since, 0, n * sizeof *s->since);
    if (!(sections & STATE_OPTIMIZER)) return DCP_OK;
    json_t *meta;
    const char *text = dcp_checkpoint_json(ckpt);
    status = core_json_parse_object(text, strlen(text), &meta, err);
    if (status != DCP_OK) return status;
    const json_t *kept = json_object_get(meta, STATE_META_SINCE);
    for (size_t i = 0; i < n && status == DCP_OK; i++)
        if (!s->layout->params[i].info.frozen) status = take_since_of(s, ckpt, kept, i, err);
    json_decref(meta);
    return status;
}

static int check_checkpoint(train_state *s, dcp_checkpoint *ckpt, unsigned sections,
                            slots_found *found, dcp_error *err) {
    const optim_type *optimizer = sections & STATE_OPTIMIZER ? s->optimizer : NULL;
    int status = match_tensors(s->layout, optimizer, ckpt, found, err);
    if (status == DCP_OK && sections & STATE_FILES) status = state_adopt_files(s, ckpt, err);
    return status == DCP_OK ? take_since(s, ckpt, sections, err) : status;
}

static void zero_slots(const train_state *s) {
    for (size_t i = 0; i < s->optimizer->n_slots; i++) {
        const uint64_t size = dcp_dtype_bytes(s->optimizer->slots[i].dtype);
        s->k->zero(s->k, s->slots[i], s->layout->grad_elems * size / sizeof(float));
    }
    s->k->sync(s->k); /* finish before a load writes to slots in the host's memory */
    state_release_all(s);
}

/* Plans the next load. It starts at unit *next, and consists of all units or, to limit the memory,
 * of a single unit if parameters are offloaded. Files that the checkpoint carries are part of the
 * first load. */
static int plan_units(train_state *s, const dcp_checkpoint *ckpt, unsigned sections,
                      bool with_slots, size_t *next, dcp_state **state, dcp_error *err) {
    const size_t first = *next, end = s->offloaded ? first + 1 : s->layout->n;
    int status = state_register(s, first == 0 ? sections & STATE_FILES : 0, state, err);
    for (; *next < end && status == DCP_OK; ++*next)
        status = add_unit(s, ckpt, *next, with_slots, *state, err);
    return status;
}

static int load_units(train_state *s, MPI_Comm comm, dcp_checkpoint *ckpt, unsigned sections,
                      dcp_engine engine, bool with_slots, dcp_error *err) {
    const dcp_load_options options = {.size = sizeof options,
                                      .engine = engine,
                                      .cast = !with_slots,
                                      .on_progress = ranks_board_on_progress};
    int status = DCP_OK;
    for (size_t next = 0; next < s->layout->n && status == DCP_OK;) {
        dcp_state *state = NULL;
        status =
            ranks_agree(comm, plan_units(s, ckpt, sections, with_slots, &next, &state, err), err);
        if (status == DCP_OK) status = dcp_load_with(ckpt, state, &options, NULL, err);
        if (state) dcp_state_destroy(state);
        state_release_all(s);
    }
    return status;
}

int state_load(train_state *s, MPI_Comm comm, dcp_checkpoint *ckpt, unsigned sections,
               dcp_engine engine, int *with_slots, dcp_error *err) {
    slots_found found = {0};
    int status = ranks_agree(comm, check_checkpoint(s, ckpt, sections, &found, err), err);
    if (status == DCP_OK && (found.with == 0 || found.thawed > 0)) zero_slots(s);
    if (status == DCP_OK) status = load_units(s, comm, ckpt, sections, engine, found.with > 0, err);
    if (status != DCP_OK) return status;
    if (found.with > 0 && found.thawed > 0)
        ranks_warn(s->layout->rank,
                   "%zu parameters, the first of them %s, were frozen when %s was saved: their "
                   "moments start at zero",
                   found.thawed, found.first_thawed, dcp_checkpoint_path(ckpt));
    *with_slots = found.with > 0;
    return DCP_OK;
}

/* Safetensors of Hugging Face: each rank reads its own rows. */
enum { PIECE_ELEMS = 1 << 18 };

static int read_param(train_state *s, dcp_st_reader *reader, const fsdp_param *param, void *piece,
                      float *wide, dcp_error *err) {
    const model_param *info = &param->info;
    const dcp_tensor *tensor = dcp_st_find(reader, info->name);
    if (!tensor) tensor = dcp_st_find(reader, info->name + info->base);
    if (!tensor) state_randomize_param(s, param);
    if (!tensor) return DCP_OK;
    const uint64_t size = dcp_dtype_bytes(tensor->dtype);
    const uint64_t first = param->box.start[0] * param->row_elems;
    int status = DCP_OK;
    for (uint64_t at = 0; at < param->elems && status == DCP_OK; at += PIECE_ELEMS) {
        const uint64_t left = param->elems - at, n = left < PIECE_ELEMS ? left : PIECE_ELEMS;
        status = dcp_st_read(reader, tensor->path, (first + at) * size, n * size, piece, err);
        if (status != DCP_OK) break;
        dcp_convert(tensor->dtype, piece, DCP_F32, wide, n); /* exact; the type was checked
                                                              * before */
        s->k->upload(s->k, s->params + param->param_at + at, wide, n * sizeof *wide);
    }
    state_release(s, param);
    return status;
}

/* Reads a box of a matrix into `out`. The box is either whole rows or a part of one row. */
static int read_hf_box(void *reader, const dcp_tensor *tensor, const dcp_box *box, void *out,
                       dcp_error *err) {
    const uint64_t size = dcp_dtype_bytes(tensor->dtype);
    const uint64_t first = box->start[0] * tensor->shape[1] + box->start[1];
    const uint64_t n = dcp_box_elems(box, tensor->ndim);
    return dcp_st_read(reader, tensor->path, first * size, n * size, out, err);
}

/* Fails if the index names a tensor that no file holds. The only exception is the copy of a tied
 * embedding. */
static int check_absent(const fsdp_layout *layout, const dcp_st_reader *reader, const char *path,
                        dcp_error *err) {
    const char *name;
    bool is_tied = false;
    for (size_t i = 0; i < layout->n_params; i++) is_tied |= layout->params[i].info.tied;
    for (size_t i = 0; (name = dcp_st_absent(reader, i)); i++)
        if (!is_tied || strcmp(name, WEIGHTS_COPY) != 0)
            return core_fail(
                err, DCP_ERR_CORRUPT,
                "%s: its index names tensor '%.256s', which no file holds: fetch the files again",
                path, name);
    return DCP_OK;
}

static int match_reader(const fsdp_layout *layout, dcp_st_reader *reader, const char *path,
                        dcp_error *err) {
    const int absent = check_absent(layout, reader, path, err);
    if (absent != DCP_OK) return absent;
    const size_t n = dcp_st_tensors(reader);
    const dcp_tensor **list = calloc(n + 1, sizeof *list);
    if (!list) return core_fail_memory(err, n * sizeof *list);
    for (size_t i = 0; i < n; i++) list[i] = dcp_st_tensor(reader, i);
    const found_tensors found = {
        .where = path, .prefix = "", .list = list, .n = n, .weights_only = true};
    const int status = state_match_weights(layout, &found, read_hf_box, reader, err);
    free(list);
    return status;
}

int state_match_hf(const fsdp_layout *layout, const char *path, dcp_error *err) {
    dcp_st_reader *reader;
    int status = dcp_st_open_incomplete(path, &reader, err);
    if (status != DCP_OK) return status;
    status = match_reader(layout, reader, path, err);
    dcp_st_close(reader);
    return status;
}

int state_read_hf(train_state *s, const char *path, dcp_error *err) {
    dcp_st_reader *reader;
    int status = dcp_st_open_incomplete(path, &reader, err);
    if (status != DCP_OK) return status;
    float *piece = malloc(2 * PIECE_ELEMS * sizeof *piece); /* elements as read, and widened */
    if (!piece) status = core_fail_memory(err, 2 * PIECE_ELEMS * sizeof *piece);
    if (status == DCP_OK) status = match_reader(s->layout, reader, path, err);
    for (size_t i = 0; i < s->layout->n_params && status == DCP_OK; i++)
        status = read_param(s, reader, &s->layout->params[i], piece, piece + PIECE_ELEMS, err);
    free(piece);
    dcp_st_close(reader);
    return status;
}
