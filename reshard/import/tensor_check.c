#include "import/tensor_check.h"

#include <stdlib.h>
#include <string.h>

#include "common/weights_report.h"
#include "programs/program.h"

#define PIECE_BYTES (8u << 20) /* compared at once */

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
                        char *memory, int *same, dcp_error *err) {
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

/* A second tensor of tied weights that is another one is used by nobody, though it was trained. */
static int note_untied(const char *folder, const import_model *model, const weights_found *found) {
    dcp_error err = {0};
    int same = 1;
    if (!found->copy || found->differences) return 0; /* one thing at a time */
    char *memory = malloc(2 * (size_t)PIECE_BYTES);
    if (!memory) return program_no_memory();
    const int status = is_same_data(model, found->tied, found->copy, memory, &same, &err);
    free(memory);
    if (status == 0 && !same)
        program_note("%s: config.json ties %s to %s, and they differ: transformers uses the latter "
                     "alone, and dcp-train takes neither for the other; if the former is right, "
                     "set tie_word_embeddings to false there",
                     folder, found->copy->path, found->tied->path);
    return status;
}

/* Of a model that dcp-train does not know, what its configuration leaves open. */
static int may_be_tied(const json_t *config, const char *name) {
    static const char head[] = "lm_head.weight";
    const size_t n = strlen(name), m = sizeof head - 1;
    const json_t *text = json_object_get(config, "text_config");
    return n >= m && strcmp(name + n - m, head) == 0 &&
           !json_is_false(json_object_get(config, "tie_word_embeddings")) &&
           !json_is_false(json_object_get(text, "tie_word_embeddings"));
}

/* transformers writes tied weights once, and some of its versions name them in the index all the
 * same. Returns how many other names of the index no file holds. */
static size_t note_absent(const char *folder, const json_t *config, const import_model *model,
                          const weights_found *found) {
    size_t n = 0;
    const char *name;
    for (size_t i = 0; (name = dcp_st_absent(model->reader, i)); i++) {
        char *named = tensor_names_new(&model->names, name);
        const int is_copy = found->tied && named && strcmp(named, "lm_head.weight") == 0;
        const int is_guessed = *found->unknown && may_be_tied(config, name);
        free(named);
        if (is_copy) continue;
        program_note("%s: its index names tensor '%s', which no file holds%s", folder, name,
                     is_guessed ? ": taken for tied weights" : "");
        n += !is_guessed;
    }
    return n;
}

int import_tensors_check(const char *folder, const json_t *config, const import_model *model,
                         int allow) {
    weights_found found = {0};
    const dcp_tensor **list = list_named(&model->tensors);
    const weights_asked asked = {
        .where = folder, .config = config, .list = list, .n = model->tensors.n, .by_training = 1};
    int status = list ? weights_report_print(&asked, &found) : program_no_memory();
    const size_t absent = status ? 0 : note_absent(folder, config, model, &found);
    if (status == 0) status = note_untied(folder, model, &found);
    free(list);
    if (status || found.differences + absent == 0 || allow) return status;
    if (!found.differences)
        return program_fail(PROGRAM_DIFFERS,
                            "%s: a part of the model is missing: fetch its files anew, or "
                            "--allow-mismatch imports what is there",
                            folder);
    return program_fail(
        PROGRAM_DIFFERS,
        "%s: these are not the tensors of its config.json, and dcp-train would refuse them: mend "
        "one or the other; --allow-mismatch imports them as they are",
        folder);
}
