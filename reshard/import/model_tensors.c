#include "import/model_tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/program.h"

static int find_names(import_model *model) {
    const size_t n = dcp_st_tensors(model->reader);
    const char **list = calloc(n + 1, sizeof *list);
    if (!list) return program_no_memory();
    for (size_t i = 0; i < n; i++) list[i] = dcp_st_tensor(model->reader, i)->path;
    const int status = tensor_names_find(list, n, 1, &model->names);
    free(list);
    return status;
}

/* `kept`: so many bytes of the name stay, those of a moment's slot. */
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

static int list_tensors(const dcp_st_reader *reader, const tensor_names *names, int is_moments,
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
    if (status == 0) status = list_tensors(model->reader, &model->names, 0, &model->tensors);
    if (status == 0 && model->moments)
        status = list_tensors(model->moments, &model->names, 1, &model->moment_tensors);
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
