/* Which tensors go out, under which names and types, and where they lie in which file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dcp/safetensors.h>

#include "common/element.h"
#include "export/export.h"
#include "programs/program.h"

#define MODEL "/model/"
#define OPTIMIZER "/optimizer/"

static int starts_with(const char *text, const char *start) {
    return strncmp(text, start, strlen(start)) == 0;
}

/* "exp_avg.<name>" in safetensors, whose names are flat; HDF5 has folders. */
static char *name_optimizer(const char *path, int hdf5) {
    char *name = strdup(hdf5 ? path + 1 : path + strlen(OPTIMIZER));
    for (char *at = name; !hdf5 && at && (at = strchr(at, '/'));) *at = '.';
    return name;
}

static int add_item(export_plan *plan, const dcp_tensor *tensor, const export_settings *s,
                    int optimizer) {
    export_item *item = &plan->items[plan->n];
    *item = (export_item){.source = tensor->path, .stored = tensor->dtype, .tensor = *tensor};
    item->tensor.path =
        optimizer ? name_optimizer(tensor->path, s->hdf5) : strdup(tensor->path + strlen(MODEL));
    if (!item->tensor.path) return program_fail(PROGRAM_FAILED, "out of memory");
    if (!optimizer && s->cast && element_is_float(tensor->dtype)) item->tensor.dtype = s->dtype;
    plan->n++;
    return 0;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const export_item *)a)->tensor.path, ((const export_item *)b)->tensor.path);
}

/* As safetensors' own writer orders a file: types of more bytes first, which keeps all elements
 * aligned, then this order of types, then names. */
static int type_order(dcp_dtype dtype) {
    static const int order[DCP_DTYPE_COUNT] = {
        [DCP_U64] = 1,      [DCP_I64] = 2,      [DCP_F64] = 3, [DCP_F32] = 4, [DCP_U32] = 5,
        [DCP_I32] = 6,      [DCP_BF16] = 7,     [DCP_F16] = 8, [DCP_U16] = 9, [DCP_I16] = 10,
        [DCP_F8_E4M3] = 11, [DCP_F8_E5M2] = 12, [DCP_I8] = 13, [DCP_U8] = 14, [DCP_BOOL] = 15};
    return order[dtype];
}

static int by_place(const void *a, const void *b) {
    const export_item *x = a, *y = b;
    if (x->file != y->file) return x->file < y->file ? -1 : 1;
    int order = type_order(x->tensor.dtype) - type_order(y->tensor.dtype);
    return order ? order : by_name(a, b);
}

static int add_part(const dcp_checkpoint *ckpt, const export_settings *s, const char *left_out,
                    int optimizer, export_plan *plan) {
    const char *section = optimizer ? OPTIMIZER : MODEL;
    export_part *part = &plan->parts[plan->n_parts++];
    *part = (export_part){.stem = optimizer ? "optimizer" : "model", .first = plan->n};
    for (size_t i = 0; i < dcp_checkpoint_tensors(ckpt); i++) {
        const dcp_tensor *tensor = dcp_checkpoint_tensor(ckpt, i);
        if (!starts_with(tensor->path, section)) continue;
        if (left_out && strcmp(tensor->path, left_out) == 0) continue;
        int status = add_item(plan, tensor, s, optimizer);
        if (status) return status;
    }
    part->n = plan->n - part->first;
    if (part->n == 0)
        return program_fail(PROGRAM_USAGE, "%s: has no tensor under %s: nothing to export%s",
                            dcp_checkpoint_path(ckpt), section,
                            optimizer
                                ? "; an import has no moments until it is trained, so leave out "
                                  "--with-optimizer"
                                : "");
    qsort(&plan->items[part->first], part->n, sizeof *plan->items, by_name);
    for (size_t i = part->first; i < plan->n; i++) {
        const dcp_tensor *tensor = &plan->items[i].tensor;
        part->bytes += dcp_tensor_bytes(tensor);
        part->elems += dcp_tensor_bytes(tensor) / dcp_dtype_bytes(tensor->dtype);
    }
    plan->bytes += part->bytes;
    return 0;
}

/* In the order of names; a file takes what fits. */
static void assign_files(export_plan *plan, export_part *part, uint64_t max_file_bytes) {
    uint64_t filled = 0;
    part->file = plan->n_files;
    part->files = 1;
    for (size_t i = part->first; i < part->first + part->n; i++) {
        uint64_t bytes = dcp_tensor_bytes(&plan->items[i].tensor);
        if (filled && bytes > max_file_bytes - filled) {
            part->files++;
            filled = 0;
        }
        plan->items[i].file = part->file + part->files - 1;
        filled += bytes < max_file_bytes - filled ? bytes : max_file_bytes - filled;
    }
    plan->n_files += part->files;
    qsort(&plan->items[part->first], part->n, sizeof *plan->items, by_place);
}

static void name_files(const export_plan *plan, const export_part *part) {
    for (size_t i = 0; i < part->files; i++) {
        export_file *file = &plan->files[part->file + i];
        if (part->files == 1)
            snprintf(file->name, sizeof file->name, "%s.safetensors", part->stem);
        else
            snprintf(file->name, sizeof file->name, "%s-%05zu-of-%05zu.safetensors", part->stem,
                     i + 1, part->files);
    }
}

/* Headers, and so the places of all data. The items of a file lie one after another. */
static int lay_out(export_plan *plan, export_file *file) {
    dcp_error err = {0};
    dcp_tensor *tensors = calloc(file->n + 1, sizeof *tensors);
    if (!tensors) return program_fail(PROGRAM_FAILED, "out of memory");
    for (size_t i = 0; i < file->n; i++) tensors[i] = plan->items[file->first + i].tensor;
    int status = dcp_st_header(tensors, file->n, &file->head, &file->head_bytes, &err);
    free(tensors);
    if (status) return program_report(&err);
    file->bytes = file->head_bytes;
    for (size_t i = 0; i < file->n; i++) {
        export_item *item = &plan->items[file->first + i];
        item->offset = file->bytes;
        file->bytes += dcp_tensor_bytes(&item->tensor);
    }
    return 0;
}

static int make_files(export_plan *plan, const export_settings *s) {
    for (size_t p = 0; !s->hdf5 && p < plan->n_parts; p++)
        assign_files(plan, &plan->parts[p], s->max_file_bytes);
    if (s->hdf5) plan->n_files = 1;
    plan->files = calloc(plan->n_files, sizeof *plan->files);
    if (!plan->files) return program_fail(PROGRAM_FAILED, "out of memory");
    for (size_t i = 0; i < plan->n; i++) {
        export_file *file = &plan->files[plan->items[i].file];
        if (file->n++ == 0) file->first = i;
    }
    if (s->hdf5) {
        snprintf(plan->files[0].name, sizeof plan->files[0].name, "model.h5");
        return 0;
    }
    for (size_t p = 0; p < plan->n_parts; p++) name_files(plan, &plan->parts[p]);
    int status = 0;
    for (size_t i = 0; status == 0 && i < plan->n_files; i++)
        status = lay_out(plan, &plan->files[i]);
    return status;
}

int export_plan_make(const dcp_checkpoint *ckpt, const export_settings *settings,
                     const char *left_out, export_plan *out) {
    export_plan plan = {.items = calloc(dcp_checkpoint_tensors(ckpt) + 1, sizeof *plan.items)};
    if (!plan.items) return program_fail(PROGRAM_FAILED, "out of memory");
    int status = add_part(ckpt, settings, left_out, 0, &plan);
    if (status == 0 && settings->with_optimizer)
        status = add_part(ckpt, settings, left_out, 1, &plan);
    if (status == 0) status = make_files(&plan, settings);
    *out = plan;
    if (status) export_plan_free(out);
    return status;
}

void export_plan_free(export_plan *plan) {
    for (size_t i = 0; i < plan->n; i++) free((char *)(uintptr_t)plan->items[i].tensor.path);
    for (size_t i = 0; plan->files && i < plan->n_files; i++) free(plan->files[i].head);
    free(plan->items);
    free(plan->files);
    *plan = (export_plan){0};
}
