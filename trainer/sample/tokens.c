/* Bytes are tokens where the step's about.json says that the run's data were text; of older steps,
 * and of copies without that file, where the model tells 256 things apart and was trained here. */
#include "sample/tokens.h"

#include <stdlib.h>
#include <string.h>

#include "programs/fail.h"
#include "programs/json_read.h"
#include "sample/characters.h"
#include "state/provenance.h"

enum { BYTES = 256 };

struct sample_tokens {
    sample_characters written;
};

/* Whether data.type of the run was `type`; *told: whether the step tells it. */
static int is_data(const sample_loaded *from, const char *type, int *told) {
    char *text = NULL;
    const int status = dcp_about_read(dcp_checkpoint_path(from->ckpt), &text, NULL);
    json_t *about = status ? NULL : core_json_read(text, strlen(text), NULL);
    const char *name = json_string_value(json_object_get(about, STATE_DATA_TYPE));
    const int is = name && strcmp(name, type) == 0;
    *told = name != NULL;
    json_decref(about);
    free(text);
    return is;
}

static int is_of_bytes(const sample_loaded *from, uint64_t classes) {
    int told;
    if (is_data(from, "text", &told)) return classes >= BYTES;
    return !told && classes == BYTES && json_is_object(json_object_get(from->meta, "data"));
}

int sample_tokens_open(const sample_loaded *from, sample_tokens **out, dcp_error *err) {
    if (!is_of_bytes(from, model_sample(from->m, 1).classes))
        return core_fail(err, DCP_ERR_ARG,
                         "%s: carries no tokenizer, and its tokens are no bytes; have dcp-train go "
                         "on from it with data.tokenizer=HF_FOLDER, and take the step that this "
                         "saves",
                         dcp_checkpoint_path(from->ckpt));
    *out = calloc(1, sizeof **out);
    return *out ? DCP_OK : core_fail_memory(err, sizeof **out);
}

void sample_tokens_close(sample_tokens *t) { free(t); }

int sample_tokens_read(const sample_tokens *t, const char *text, int32_t **ids, size_t *n,
                       dcp_error *err) {
    (void)t;
    *n = strlen(text);
    *ids = malloc((*n + 1) * sizeof **ids);
    if (!*ids) return core_fail_memory(err, (*n + 1) * sizeof **ids);
    for (size_t i = 0; i < *n; i++) (*ids)[i] = (unsigned char)text[i];
    return DCP_OK;
}

/* Tokens that are no bytes have no text. */
int sample_tokens_write(sample_tokens *t, int32_t id, dcp_error *err) {
    (void)err;
    const char byte = (char)id;
    if (id < BYTES) sample_characters_put(&t->written, &byte, 1, stdout);
    return DCP_OK;
}
