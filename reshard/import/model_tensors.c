#include "import/model_tensors.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/tensor_names.h"
#include "programs/program.h"

static int find_names(import_model *model) {
    const size_t n = dcp_st_tensors(model->reader);
    const char **list = calloc(n + 1, sizeof *list);
    if (!list) return program_no_memory();
    for (size_t i = 0; i < n; i++) list[i] = dcp_st_tensor(model->reader, i)->path;
    const int status = tensor_names_find(list, n, true, &model->names);
    free(list);
    return status;
}

/* Returns the name in the checkpoint. The first `kept` bytes of the name, which are the slot of a
 * moment, remain. */
static char *new_name(const tensor_names *names, const char *name, size_t kept) {
    char *rest = tensor_names_new(names, name + kept), *out = NULL;
    if (rest && asprintf(&out, "%.*s%s", (int)kept, name, rest) < 0) out = NULL;
    free(rest);
    return out;
}

static int order_tensors(const void *a, const void *b) {
    return strcmp(((const import_tensor *)a)->tensor.path, ((const import_tensor *)b)->tensor.path);
}

static int refuse_twice(const import_tensors *tensors) {
    for (size_t i = 1; i < tensors->n; i++) {
        const import_tensor *t = &tensors->list[i];
        if (strcmp(t->tensor.path, t[-1].tensor.path) == 0)
            return program_fail(PROGRAM_DIFFERS, "tensors %s and %s would both be named %s",
                                t[-1].stored, t->stored, t->tensor.path);
    }
    return 0;
}

static int list_tensors(const dcp_st_reader *reader, const tensor_names *names, bool is_moments,
                        import_tensors *out) {
    const size_t n = dcp_st_tensors(reader);
    out->list = calloc(n + 1, sizeof *out->list);
    if (!out->list) return program_no_memory();
    for (size_t i = 0; i < n; i++) {
        import_tensor *t = &out->list[out->n];
        t->tensor = *dcp_st_tensor(reader, i);
        t->stored = t->tensor.path;
        t->tensor.path = new_name(names, t->stored, is_moments ? strcspn(t->stored, ".") + 1 : 0);
        if (!t->tensor.path) return program_no_memory();
        out->n++;
    }
    qsort(out->list, n, sizeof *out->list, order_tensors);
    return refuse_twice(out);
}

int import_model_name(import_model *model) {
    int status = find_names(model);
    if (status == 0) status = list_tensors(model->reader, &model->names, false, &model->tensors);
    if (status == 0 && model->moments)
        status = list_tensors(model->moments, &model->names, true, &model->moment_tensors);
    return status;
}

static void free_tensors(import_tensors *tensors) {
    for (size_t i = 0; i < tensors->n; i++) free((char *)(uintptr_t)tensors->list[i].tensor.path);
    free(tensors->list);
}

void import_model_close(import_model *model) {
    free_tensors(&model->tensors);
    free_tensors(&model->moment_tensors);
    tensor_names_free(&model->names);
    dcp_st_close(model->moments);
    dcp_st_close(model->reader);
}

#define PIECE_BYTES (8u << 20) /* the bytes that are compared at a time */

static const dcp_tensor **list_named(const import_tensors *tensors) {
    const dcp_tensor **list = calloc(tensors->n + 1, sizeof *list);
    for (size_t i = 0; list && i < tensors->n; i++) list[i] = &tensors->list[i].tensor;
    return list;
}

static const char *stored_name(const import_tensors *tensors, const dcp_tensor *tensor) {
    size_t i = 0;
    while (&tensors->list[i].tensor != tensor) i++;
    return tensors->list[i].stored;
}

static int is_same_data(const import_model *model, const dcp_tensor *a, const dcp_tensor *b,
                        char *memory, bool *same, dcp_error *err) {
    const uint64_t bytes = dcp_tensor_bytes(a);
    const char *x = stored_name(&model->tensors, a), *y = stored_name(&model->tensors, b);
    *same = a->dtype == b->dtype && dcp_tensor_bytes(b) == bytes;
    for (uint64_t at = 0, n; *same && at < bytes; at += n) {
        n = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;
        if (dcp_st_read(model->reader, x, at, n, memory, err) ||
            dcp_st_read(model->reader, y, at, n, memory + PIECE_BYTES, err))
            return program_report(err);
        *same = memcmp(memory, memory + PIECE_BYTES, n) == 0;
    }
    return 0;
}

/* If tied weights have a second tensor with different contents, reports that transformers does not
 * use that tensor, and that dcp-train refuses such weights. */
static int note_untied(const char *folder, const import_model *model, const weights_found *found) {
    dcp_error err = {0};
    bool same = true;
    if (!found->copy || found->differences) return 0; /* reports one problem at a time */
    char *memory = malloc(2 * (size_t)PIECE_BYTES);
    if (!memory) return program_no_memory();
    const int status = is_same_data(model, found->tied, found->copy, memory, &same, &err);
    free(memory);
    if (status == 0 && !same)
        program_note("%s: config.json ties %s to %s, but they differ: transformers uses only the "
                     "latter, and dcp-train refuses such weights; if the former is right, set "
                     "tie_word_embeddings to false in config.json",
                     folder, found->copy->path, found->tied->path);
    return status;
}

/* For a model that dcp-train does not know: returns true if `name` might be tied to the embedding,
 * because the configuration does not exclude it. */
static bool may_be_tied(const json_t *config, const char *name) {
    static const char head[] = "lm_head.weight";
    const size_t n = strlen(name), m = sizeof head - 1;
    const json_t *text = json_object_get(config, "text_config");
    return n >= m && strcmp(name + n - m, head) == 0 &&
           !json_is_false(json_object_get(config, "tie_word_embeddings")) &&
           !json_is_false(json_object_get(text, "tie_word_embeddings"));
}

/* Reports names in the index that no file contains, and returns their number. Does not count the
 * copy of tied weights: some versions of transformers list it in the index, although they do not
 * store it. */
static size_t note_absent(const char *folder, const json_t *config, const import_model *model,
                          const weights_found *found) {
    size_t n = 0;
    const char *name;
    for (size_t i = 0; (name = dcp_st_absent(model->reader, i)); i++) {
        char *named = tensor_names_new(&model->names, name);
        const bool is_copy = found->tied && named && strcmp(named, "lm_head.weight") == 0;
        const bool is_guessed = *found->unknown && may_be_tied(config, name);
        free(named);
        if (is_copy) continue;
        program_note("%s: its index names tensor '%s', which no file holds%s", folder, name,
                     is_guessed ? ": assumed to be tied to the embedding" : "");
        n += !is_guessed;
    }
    return n;
}

int import_tensors_check(const char *folder, const json_t *config, const import_model *model,
                         bool allow) {
    weights_found found = {0};
    const dcp_tensor **list = list_named(&model->tensors);
    const weights_query asked = {.where = folder,
                                 .config = config,
                                 .list = list,
                                 .n = model->tensors.n,
                                 .by_training = true};
    int status = list ? weights_report_print(&asked, &found) : program_no_memory();
    const size_t absent = status ? 0 : note_absent(folder, config, model, &found);
    if (status == 0) status = note_untied(folder, model, &found);
    free(list);
    if (status || found.differences + absent == 0 || allow) return status;
    if (!found.differences)
        return program_fail(PROGRAM_DIFFERS,
                            "%s: a part of the model is missing: fetch its files again, or "
                            "--allow-mismatch imports what the folder has",
                            folder);
    return program_fail(
        PROGRAM_DIFFERS,
        "%s: its tensors differ from those that config.json requires, and dcp-train "
        "would refuse them: correct the tensors or config.json; --allow-mismatch "
        "imports the tensors as they are",
        folder);
}

static const char remedy[] =
    "export the model and its optimizer again, or import without --with-optimizer";

/* Finds the optimizer's file, or the index of its files. */
static int find_file(const char *folder, char *out, size_t size) {
    static const char *const names[] = {"optimizer.safetensors",
                                        "optimizer.safetensors.index.json"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const int length = snprintf(out, size, "%s/%s", folder, names[i]);
        if (length < 0 || (size_t)length >= size) continue;
        if (access(out, F_OK) == 0) return 0;
        if (errno != ENOENT && errno != ENOTDIR) return program_fail_errno("cannot look at", out);
    }
    return program_refuse("%s: has no %s, which dcp-export --with-optimizer writes; import without "
                          "--with-optimizer",
                          folder, names[0]);
}

static bool is_same_shape(const dcp_tensor *a, const dcp_tensor *b) {
    return a->ndim == b->ndim && memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0;
}

static int check_count(const char *file, const dcp_st_reader *moments, const char *param) {
    char name[DCP_MAX_PATH];
    snprintf(name, sizeof name, "step.%s", param);
    const dcp_tensor *count = dcp_st_find(moments, name);
    if (count && count->dtype == DCP_F32 && count->ndim == 0) return 0;
    return program_fail(PROGRAM_DIFFERS, "%s: %s, the number of a parameter's updates, is %s; %s",
                        file, name, count ? "not a number of type F32" : "missing", remedy);
}

/* Checks that a moment has the shape of its parameter, and that the parameter is fp32. */
static int check_moment(const char *file, const dcp_st_reader *model, const dcp_st_reader *moments,
                        const dcp_tensor *moment) {
    const char *dot = strchr(moment->path, '.');
    const dcp_tensor *param = dot ? dcp_st_find(model, dot + 1) : NULL;
    if (!param)
        return program_fail(PROGRAM_DIFFERS, "%s: %s belongs to no tensor of the model; %s", file,
                            moment->path, remedy);
    if (strncmp(moment->path, "step.", 5) == 0) return check_count(file, moments, dot + 1);
    if (param->dtype != DCP_F32)
        return program_refuse("%s: moments require weights of type F32, but %s is %s: export the "
                              "model without --dtype, or import without --with-optimizer",
                              file, param->path, dcp_dtype_name(param->dtype));
    if (!is_same_shape(moment, param))
        return program_fail(PROGRAM_DIFFERS, "%s: %s has another shape than %s; %s", file,
                            moment->path, param->path, remedy);
    return check_count(file, moments, dot + 1);
}

int import_moments_open(const char *folder, const dcp_st_reader *model, dcp_st_reader **out) {
    char file[PATH_MAX];
    dcp_error err = {0};
    dcp_st_reader *moments;
    int status = find_file(folder, file, sizeof file);
    if (status) return status;
    if (dcp_st_open(file, &moments, &err)) return program_report(&err);
    for (size_t i = 0; status == 0 && i < dcp_st_tensors(moments); i++)
        status = check_moment(file, model, moments, dcp_st_tensor(moments, i));
    if (status)
        dcp_st_close(moments);
    else
        *out = moments;
    return status;
}
