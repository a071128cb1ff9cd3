/* A folder whose tensors do not fit its config.json is found when it is imported, not when it is
 * trained. */
#include "import/config_check.h"

#include <stdlib.h>
#include <string.h>

#include "models/weights.h"
#include "programs/program.h"

enum { MOST_TOLD = 5 }; /* of a kind */

enum { MISSING, SURPLUS, OTHER_SHAPE, KINDS };

typedef struct check_report {
    const char *folder;
    size_t n[KINDS];
} check_report;

static void note_difference(void *to, weights_difference difference) {
    check_report *r = to;
    const model_param *param = difference.param;
    const dcp_tensor *tensor = difference.tensor;
    char asked[160], there[160];
    if (r->n[!tensor ? MISSING : !param ? SURPLUS : OTHER_SHAPE]++ >= MOST_TOLD) return;
    if (param) model_weights_shape_text(param->ndim, param->shape, asked, sizeof asked);
    if (tensor) model_weights_shape_text(tensor->ndim, tensor->shape, there, sizeof there);
    if (!tensor)
        program_note("%s: %s %s is missing, config.json asks for it", r->folder, param->name,
                     asked);
    else if (!param)
        program_note("%s: %s %s is surplus, config.json asks for no such tensor", r->folder,
                     tensor->path, there);
    else
        program_note("%s: %s is %s, config.json asks for %s", r->folder, tensor->path, there,
                     asked);
}

/* Says how many differences were not listed, and judges. An exit status. */
static int judge_report(const check_report *r, int allow) {
    size_t n = 0, more = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        n += r->n[kind];
        if (r->n[kind] > MOST_TOLD) more += r->n[kind] - MOST_TOLD;
    }
    if (more) program_note("%s: and %zu more differences", r->folder, more);
    if (n == 0 || allow) return 0;
    return program_fail(
        PROGRAM_DIFFERS,
        "%s: these are not the tensors of its config.json, and dcp-train would refuse them: mend "
        "one or the other; --allow-mismatch imports them as they are",
        r->folder);
}

static const model_param **list_params(const model *m, size_t *n) {
    *n = 0;
    for (size_t u = 0; u < model_units(m); u++) *n += model_unit_params(m, u);
    const model_param **params = calloc(*n + 1, sizeof *params);
    size_t at = 0;
    for (size_t u = 0; params && u < model_units(m); u++)
        for (size_t i = 0; i < model_unit_params(m, u); i++)
            params[at++] = model_unit_param(m, u, i);
    return params;
}

static const dcp_tensor **list_tensors(const dcp_st_reader *reader) {
    const size_t n = dcp_st_tensors(reader);
    const dcp_tensor **list = calloc(n + 1, sizeof *list);
    for (size_t i = 0; list && i < n; i++) list[i] = dcp_st_tensor(reader, i);
    return list;
}

static void note_fresh(const model_param *const *params, size_t n, const found_tensors *found) {
    for (size_t i = 0; i < n; i++)
        if (params[i]->fresh && !model_weights_find_param(found, params[i]))
            program_note("%s: has no %s: dcp-train will initialize it", found->where,
                         params[i]->name);
}

static int compare_config(const char *folder, const model *m, const dcp_st_reader *reader,
                          int allow) {
    dcp_error err = {0};
    size_t n;
    check_report r = {.folder = folder};
    const model_param **params = list_params(m, &n);
    const dcp_tensor **list = list_tensors(reader);
    const found_tensors found = {.where = folder,
                                 .prefix = "",
                                 .list = list,
                                 .n = dcp_st_tensors(reader),
                                 .weights_only = 1};
    int status = params && list ? 0 : program_no_memory();
    if (status == 0 && model_weights_compare(params, n, &found, note_difference, &r, &err))
        status = program_report(&err);
    if (status == 0) note_fresh(params, n, &found);
    free(list);
    free(params);
    return status ? status : judge_report(&r, allow);
}

/* The message without "model config: ", with which it may begin. */
static const char *message(const dcp_error *err) {
    static const char whose[] = "model config: ";
    return err->message + (strncmp(err->message, whose, strlen(whose)) ? 0 : strlen(whose));
}

static int ends_in(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

/* The same without dropout, which dcp-train refuses and no tensor depends on. NULL: out of memory.
 */
static json_t *without_dropout(const json_t *config) {
    json_t *copy = json_copy((json_t *)config);
    const char *key;
    json_t *value;
    json_object_foreach(copy, key, value) if (ends_in(key, "drop") || ends_in(key, "dropout") ||
                                              ends_in(key, "dropout_prob"))
        json_object_set_new(copy, key, json_real(0.0));
    return copy;
}

int import_config_check(const char *folder, const json_t *config, const dcp_st_reader *reader,
                        int allow) {
    dcp_error err = {0}, still = {0};
    model *m = NULL;
    json_t *bare = without_dropout(config);
    if (model_describe(config, &m, &err)) {
        model_describe(bare, &m, &still);
        program_note("%s/config.json: %s: dcp-train would refuse it%s", folder, message(&err),
                     m ? "" : "; the tensors are not compared with it");
    }
    json_decref(bare);
    const int status = m ? compare_config(folder, m, reader, allow) : 0;
    model_forget(m);
    return status;
}
