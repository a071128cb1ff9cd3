/* Determines which tensors are exported, their names and types, and their positions in the
 * files. */
#include "export/contents.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dcp/safetensors.h>

#include "common/element.h"
#include "common/tensor_names.h"
#include "programs/json_read.h"
#include "programs/program.h"

#define MODEL "/model/"
#define OPTIMIZER "/optimizer/"
#define COUNTS OPTIMIZER "step/"

static bool starts_with(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}

int export_contents_find_names(const dcp_checkpoint *ckpt, bool unwraps, tensor_names *names) {
    const char **list = calloc(dcp_checkpoint_tensors(ckpt) + 1, sizeof *list);
    size_t n = 0;
    if (!list) return program_no_memory();
    for (size_t i = 0; i < dcp_checkpoint_tensors(ckpt); i++) {
        const char *path = dcp_checkpoint_tensor(ckpt, i)->path;
        if (starts_with(path, MODEL)) list[n++] = path + strlen(MODEL);
    }
    const int status = tensor_names_find(list, n, unwraps, names);
    free(list);
    return status;
}

/* Returns "exp_avg.<name>" for safetensors, whose names have no folders, and
 * "optimizer/exp_avg/<name>" for HDF5. */
static char *name_optimizer(const char *path, const export_settings *s) {
    const char *slot = path + strlen(OPTIMIZER), *name = strchr(slot, '/');
    const char *from = s->hdf5 ? path + 1 : slot;
    char *param = tensor_names_new(&s->names, name ? name + 1 : ""), *out = NULL;
    const int kept = (int)(name ? name + 1 - from : (long)strlen(from));
    if (param && asprintf(&out, "%.*s%s", kept, from, param) < 0) out = NULL;
    free(param);
    if (!out || s->hdf5) return out;
    for (char *at = out; (at = strchr(at, '/'));) *at = '.';
    return out;
}

static int add_item(export_contents *contents, const dcp_tensor *tensor, const export_settings *s,
                    bool optimizer) {
    export_item *item = &contents->items[contents->n];
    *item = (export_item){.source = tensor->path, .stored = tensor->dtype, .tensor = *tensor};
    item->tensor.path = optimizer ? name_optimizer(tensor->path, s)
                                  : tensor_names_new(&s->names, tensor->path + strlen(MODEL));
    if (!item->tensor.path) return program_no_memory();
    if (!optimizer && s->cast && element_is_float(tensor->dtype)) item->tensor.dtype = s->dtype;
    contents->n++;
    return 0;
}

/* Adds an item for the number of updates of a parameter, unless the checkpoint stores that
 * number. */
static int add_count(const dcp_checkpoint *ckpt, const char *name, json_int_t count,
                     const export_settings *s, export_contents *contents) {
    char path[DCP_MAX_PATH];
    export_item *item = &contents->items[contents->n];
    snprintf(path, sizeof path, COUNTS "%s", name);
    if (dcp_checkpoint_find(ckpt, path)) return 0;
    *item = (export_item){.stored = DCP_F32, .tensor = {.dtype = DCP_F32}, .count = (float)count};
    item->tensor.path = name_optimizer(path, s);
    if (!item->tensor.path) return program_no_memory();
    contents->n++;
    return 0;
}

/* PyTorch stores with each parameter how often it was updated. For a step of dcp-train, this count
 * is the number of the step, minus the number of the step at which the parameter's moments were
 * zero (0 if that is not recorded). */
static int add_counts(const dcp_checkpoint *ckpt, const export_settings *s, size_t first,
                      export_contents *contents) {
    const size_t n = contents->n;
    json_t *meta =
        core_json_read(dcp_checkpoint_json(ckpt), strlen(dcp_checkpoint_json(ckpt)), NULL);
    const json_t *since = json_object_get(meta, "moments_since");
    const bool is_trained = json_is_object(json_object_get(meta, "optimizer"));
    const char *slot = n > first ? contents->items[first].source : OPTIMIZER;
    const size_t length = strlen(OPTIMIZER) + strcspn(slot + strlen(OPTIMIZER), "/") + 1;
    int status = 0;
    for (size_t i = first; is_trained && i < n && !status; i++) {
        const char *source = contents->items[i].source, *name = source + length;
        if (strncmp(source, slot, length) != 0) continue;
        status = add_count(ckpt, name,
                           (json_int_t)dcp_checkpoint_step(ckpt) -
                               json_integer_value(json_object_get(since, name)),
                           s, contents);
    }
    json_decref(meta);
    return status;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(((const export_item *)a)->tensor.path, ((const export_item *)b)->tensor.path);
}

/* The order of safetensors' own writer: by the size of the type, larger first, which keeps all
 * elements aligned; then by this order of types, then by names. */
static int type_order(dcp_dtype dtype) {
    static const int order[DCP_DTYPE_COUNT] = {
        [DCP_U64] = 1,  [DCP_I64] = 2,      [DCP_F64] = 3,      [DCP_C64] = 4,      [DCP_F32] = 5,
        [DCP_U32] = 6,  [DCP_I32] = 7,      [DCP_BF16] = 8,     [DCP_F16] = 9,      [DCP_U16] = 10,
        [DCP_I16] = 11, [DCP_F8_E8M0] = 12, [DCP_F8_E4M3] = 13, [DCP_F8_E5M2] = 14, [DCP_I8] = 15,
        [DCP_U8] = 16,  [DCP_BOOL] = 17};
    return order[dtype];
}

static int compare_item_places(const void *a, const void *b) {
    const export_item *x = a, *y = b;
    if (x->file != y->file) return x->file < y->file ? -1 : 1;
    int order = type_order(x->tensor.dtype) - type_order(y->tensor.dtype);
    return order ? order : compare_names(a, b);
}

/* Checks that no two items of a part have equal names. The items are in ascending order of
 * names. */
static int check_distinct(const export_contents *contents, const export_part *part) {
    for (size_t i = part->first + 1; i < part->first + part->n; i++) {
        const export_item *item = &contents->items[i], *other = item - 1;
        if (strcmp(item->tensor.path, other->tensor.path) == 0)
            return program_refuse("%s and %s would both be named %s; --rename one of them",
                                  other->source, item->source, item->tensor.path);
    }
    return 0;
}

static int add_section(const dcp_checkpoint *ckpt, const export_settings *s, const char *left_out,
                       bool optimizer, export_contents *contents) {
    const char *section = optimizer ? OPTIMIZER : MODEL;
    export_part *part = &contents->parts[contents->n_parts++];
    *part = (export_part){.stem = optimizer ? "optimizer" : "model", .first = contents->n};
    for (size_t i = 0; i < dcp_checkpoint_tensors(ckpt); i++) {
        const dcp_tensor *tensor = dcp_checkpoint_tensor(ckpt, i);
        if (!starts_with(tensor->path, section)) continue;
        if (left_out && strcmp(tensor->path, left_out) == 0) continue;
        int status = add_item(contents, tensor, s, optimizer);
        if (status) return status;
    }
    if (optimizer) {
        const int status = add_counts(ckpt, s, part->first, contents);
        if (status) return status;
    }
    part->n = contents->n - part->first;
    if (part->n == 0)
        return program_refuse(
            "%s: has no tensor under %s: nothing to export%s", dcp_checkpoint_path(ckpt), section,
            optimizer
                ? "; an import has no moments until it is trained, so leave out --with-optimizer"
                : "");
    qsort(&contents->items[part->first], part->n, sizeof *contents->items, compare_names);
    const int status = check_distinct(contents, part);
    if (status) return status;
    for (size_t i = part->first; i < contents->n; i++) {
        const dcp_tensor *tensor = &contents->items[i].tensor;
        part->bytes += dcp_tensor_bytes(tensor);
        part->elems += dcp_tensor_bytes(tensor) / dcp_dtype_bytes(tensor->dtype);
    }
    contents->bytes += part->bytes;
    return 0;
}

/* Assigns the items to files in the order of names; fills one file after the other. */
static void assign_files(export_contents *contents, export_part *part, uint64_t max_file_bytes) {
    uint64_t filled = 0;
    part->file = contents->n_files;
    part->files = 1;
    for (size_t i = part->first; i < part->first + part->n; i++) {
        uint64_t bytes = dcp_tensor_bytes(&contents->items[i].tensor);
        if (filled && bytes > max_file_bytes - filled) {
            part->files++;
            filled = 0;
        }
        contents->items[i].file = part->file + part->files - 1;
        filled += bytes < max_file_bytes - filled ? bytes : max_file_bytes - filled;
    }
    contents->n_files += part->files;
    qsort(&contents->items[part->first], part->n, sizeof *contents->items, compare_item_places);
}

static void name_files(const export_contents *contents, const export_part *part) {
    for (size_t i = 0; i < part->files; i++) {
        export_file *file = &contents->files[part->file + i];
        if (part->files == 1)
            snprintf(file->name, sizeof file->name, "%s.safetensors", part->stem);
        else
            snprintf(file->name, sizeof file->name, "%s-%05zu-of-%05zu.safetensors", part->stem,
                     i + 1, part->files);
    }
}

/* Makes the header of a file, and sets the positions of its items, which follow the header one
 * after another. */
static int place_items(export_contents *contents, export_file *file) {
    dcp_error err = {0};
    dcp_tensor *tensors = calloc(file->n + 1, sizeof *tensors);
    if (!tensors) return program_no_memory();
    for (size_t i = 0; i < file->n; i++) tensors[i] = contents->items[file->first + i].tensor;
    int status = dcp_st_header(tensors, file->n, &file->head, &file->head_bytes, &err);
    free(tensors);
    if (status) return program_report(&err);
    file->bytes = file->head_bytes;
    for (size_t i = 0; i < file->n; i++) {
        export_item *item = &contents->items[file->first + i];
        item->offset = file->bytes;
        file->bytes += dcp_tensor_bytes(&item->tensor);
    }
    return 0;
}

static int make_files(export_contents *contents, const export_settings *s) {
    for (size_t p = 0; !s->hdf5 && p < contents->n_parts; p++)
        assign_files(contents, &contents->parts[p], s->max_file_bytes);
    if (s->hdf5) contents->n_files = 1;
    contents->files = calloc(contents->n_files, sizeof *contents->files);
    if (!contents->files) return program_no_memory();
    for (size_t i = 0; i < contents->n; i++) {
        export_file *file = &contents->files[contents->items[i].file];
        if (file->n++ == 0) file->first = i;
    }
    if (s->hdf5) {
        snprintf(contents->files[0].name, sizeof contents->files[0].name, "model.h5");
        return 0;
    }
    for (size_t p = 0; p < contents->n_parts; p++) name_files(contents, &contents->parts[p]);
    int status = 0;
    for (size_t i = 0; status == 0 && i < contents->n_files; i++)
        status = place_items(contents, &contents->files[i]);
    return status;
}

int export_contents_make(const dcp_checkpoint *ckpt, const export_settings *settings,
                         const char *left_out, export_contents *out) {
    export_contents contents = {
        .items = calloc(2 * dcp_checkpoint_tensors(ckpt) + 1, sizeof *contents.items)};
    if (!contents.items) return program_no_memory();
    int status = add_section(ckpt, settings, left_out, false, &contents);
    if (status == 0 && settings->with_optimizer)
        status = add_section(ckpt, settings, left_out, true, &contents);
    if (status == 0) status = make_files(&contents, settings);
    *out = contents;
    if (status) export_contents_free(out);
    return status;
}

void export_contents_free(export_contents *contents) {
    for (size_t i = 0; i < contents->n; i++)
        free((char *)(uintptr_t)contents->items[i].tensor.path);
    for (size_t i = 0; contents->files && i < contents->n_files; i++) free(contents->files[i].head);
    free(contents->items);
    free(contents->files);
    *contents = (export_contents){0};
}

/* Tied weights: if the configuration ties them, transformers also uses the embedding as
 * lm_head.weight, and stores only the embedding. If the checkpoint has an lm_head.weight with
 * different contents, that tensor is not a copy, and is exported. */
#define COPY "lm_head.weight"
#define PIECE_BYTES (8u << 20)

static const char *const embeddings[] = {
    "model.embed_tokens.weight",
    "transformer.wte.weight",
    "wte.weight",
};

json_t *export_contents_config(const dcp_checkpoint *ckpt) {
    json_t *meta =
        core_json_read(dcp_checkpoint_json(ckpt), strlen(dcp_checkpoint_json(ckpt)), NULL);
    json_t *config = json_incref(json_object_get(meta, "model"));
    json_decref(meta);
    if (json_is_object(config)) return config;
    json_decref(config);
    return NULL;
}

/* Returns true if the configuration ties the weights. GPT-2's weights are tied unless its
 * configuration says otherwise. */
static bool is_tied(const dcp_checkpoint *ckpt) {
    json_t *config = export_contents_config(ckpt);
    const json_t *tie = json_object_get(config, "tie_word_embeddings");
    const char *type = json_string_value(json_object_get(config, "model_type"));
    bool tied = tie && !json_is_null(tie) ? json_is_true(tie) : type && strcmp(type, "gpt2") == 0;
    json_decref(config);
    return tied;
}

static bool is_alike(const dcp_tensor *a, const dcp_tensor *b) {
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0;
}

/* Compares piece by piece; `memory` has room for two pieces. */
static int compare_tensors(dcp_checkpoint *ckpt, const dcp_tensor *a, const dcp_tensor *b,
                           char *memory, int *same) {
    const dcp_box whole = dcp_box_whole(a);
    const uint64_t size = dcp_dtype_bytes(a->dtype), elems = dcp_box_elems(&whole, a->ndim);
    *same = 1;
    for (uint64_t first = 0, n; *same && first < elems; first += n) {
        dcp_error err = {0};
        dcp_box piece;
        n = dcp_box_slice(a->ndim, &whole, first, PIECE_BYTES / size, &piece);
        if (dcp_checkpoint_read(ckpt, a->path, &piece, memory, &err) ||
            dcp_checkpoint_read(ckpt, b->path, &piece, memory + PIECE_BYTES, &err))
            return program_report(&err);
        *same = memcmp(memory, memory + PIECE_BYTES, n * size) == 0;
    }
    return 0;
}

/* Returns the tensor whose exported name is `wanted`; NULL if there is none. */
static const dcp_tensor *find_named(const dcp_checkpoint *ckpt, const tensor_names *names,
                                    const char *wanted) {
    const dcp_tensor *found = NULL;
    for (size_t i = 0; !found && i < dcp_checkpoint_tensors(ckpt); i++) {
        const dcp_tensor *tensor = dcp_checkpoint_tensor(ckpt, i);
        if (!starts_with(tensor->path, MODEL)) continue;
        char *name = tensor_names_new(names, tensor->path + strlen(MODEL));
        if (name && strcmp(name, wanted) == 0) found = tensor;
        free(name);
    }
    return found;
}

static int find_copy(dcp_checkpoint *ckpt, const dcp_tensor *copy, const tensor_names *names,
                     int *found) {
    const dcp_tensor *embedding = NULL;
    *found = 0;
    for (size_t i = 0; !embedding && i < sizeof embeddings / sizeof *embeddings; i++)
        embedding = find_named(ckpt, names, embeddings[i]);
    if (!copy || !embedding || !is_tied(ckpt) || !is_alike(copy, embedding)) return 0;
    char *memory = malloc(2 * (size_t)PIECE_BYTES);
    if (!memory) return program_no_memory();
    int status = compare_tensors(ckpt, copy, embedding, memory, found);
    free(memory);
    if (!status && !*found)
        program_note("%s: the configuration ties %s to %s, but they differ: both are written, and "
                     "transformers uses only the latter",
                     dcp_checkpoint_path(ckpt), copy->path, embedding->path);
    return status;
}

int export_contents_find_tied(const launch *job, dcp_checkpoint *ckpt, const tensor_names *names,
                              const char **out) {
    int found = 0;
    const dcp_tensor *copy = find_named(ckpt, names, COPY);
    int status = launch_worst(job, job->rank == 0 ? find_copy(ckpt, copy, names, &found) : 0);
    launch_broadcast(job, &found, sizeof found);
    *out = found && copy ? copy->path : NULL;
    return status;
}

static int order_tensors(const void *a, const void *b) {
    const dcp_tensor *const *x = a, *const *y = b;
    return strcmp((*x)->path, (*y)->path);
}

/* Returns the model's tensors as they are exported, in ascending order of names. NULL if out of
 * memory. */
static const dcp_tensor **list_exported(const export_contents *contents) {
    const export_part *model = &contents->parts[0];
    const dcp_tensor **list = calloc(model->n + 1, sizeof *list);
    for (size_t i = 0; list && i < model->n; i++)
        list[i] = &contents->items[model->first + i].tensor;
    if (list) qsort(list, model->n, sizeof *list, order_tensors);
    return list;
}

static bool has_adapters(const export_contents *contents) {
    for (size_t i = 0; i < contents->parts[0].n; i++)
        if (strstr(contents->items[contents->parts[0].first + i].tensor.path, ".lora_"))
            return true;
    return false;
}

int export_contents_check(const dcp_checkpoint *ckpt, const export_settings *settings,
                          export_contents *contents) {
    weights_found found = {0};
    json_t *config = export_contents_config(ckpt);
    if (!config) return 0;
    const dcp_tensor **list = list_exported(contents);
    const weights_query asked = {.where = dcp_checkpoint_path(ckpt),
                                 .config = config,
                                 .list = list,
                                 .n = contents->parts[0].n};
    const int status = list ? weights_report_print(&asked, &found) : program_no_memory();
    free(list);
    json_decref(config);
    snprintf(contents->unknown, sizeof contents->unknown, "%s", found.unknown);
    if (status || found.differences == 0 || settings->allow_mismatch) return status;
    return program_refuse(
        "%s: its tensors differ from those that config.json requires: transformers would ignore "
        "surplus tensors and initialize missing ones at random; %s, or --allow-mismatch exports "
        "the tensors as they are",
        dcp_checkpoint_path(ckpt),
        has_adapters(contents) ? "merge the adapters (merge_and_unload) before the save"
                               : "--rename FROM=TO gives other names");
}
