/* Tokens are bytes where the step's about.json says that the run's data were text; of older steps,
 * and of copies without that file, where the model has 256 tokens and was trained here. A model
 * that comes with a tokenizer has tokens of its own, unless it is one of 256 that was trained on
 * text. */
#include "sample/tokens.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/fail.h"
#include "programs/json_read.h"
#include "programs/model_files.h"
#include "sample/characters.h"
#include "state/provenance.h"

enum { BYTES = 256, SHOWN = 40 /* characters of what is no id */ };

static const char space[] = " \t\n\v\f\r"; /* between ids */
static const char section[] = "/files/";

struct sample_tokens {
    int as_ids;
    const char *where;
    uint64_t classes; /* of the model's vocabulary */
    int is_begun;     /* an id was written */
    sample_characters written;
};

/* Whether data.type of the run was text; *told: whether the step tells it. */
static int was_text(const sample_loaded *from, int *told) {
    char *text = NULL;
    const int status = dcp_about_read(dcp_checkpoint_path(from->ckpt), &text, NULL);
    json_t *about = status ? NULL : core_json_read(text, strlen(text), NULL);
    const char *name = json_string_value(json_object_get(about, STATE_DATA_TYPE));
    const int is = name && strcmp(name, "text") == 0;
    *told = name != NULL;
    json_decref(about);
    free(text);
    return is;
}

/* A tokenizer's file that the checkpoint carries; NULL: none. */
static const char *carried_tokenizer(const dcp_checkpoint *ckpt) {
    for (size_t i = 0; i < dcp_checkpoint_tensors(ckpt); i++) {
        const char *path = dcp_checkpoint_tensor(ckpt, i)->path;
        if (strncmp(path, section, strlen(section)) == 0 &&
            model_files_is_tokenizer(path + strlen(section)))
            return path + strlen(section);
    }
    return NULL;
}

static int is_of_bytes(const sample_loaded *from, uint64_t classes, const char *tokenizer) {
    int told;
    if (was_text(from, &told)) return tokenizer ? classes == BYTES : classes >= BYTES;
    return !told && !tokenizer && classes == BYTES &&
           json_is_object(json_object_get(from->meta, "data"));
}

static int check_bytes(const sample_loaded *from, const sample_tokens *t, dcp_error *err) {
    const char *tokenizer = carried_tokenizer(from->ckpt);
    if (is_of_bytes(from, t->classes, tokenizer)) return DCP_OK;
    if (tokenizer)
        return core_fail(err, DCP_ERR_ARG,
                         "%s: its tokens are those of a tokenizer (%s), which --sample does not "
                         "apply; run examples/sample.py CKPT TEXT, which does, or give token ids "
                         "with --ids",
                         t->where, tokenizer);
    return core_fail(err, DCP_ERR_ARG,
                     "%s: carries no tokenizer, and its tokens are no bytes; give token ids with "
                     "--ids, or run examples/sample.py CKPT TEXT --tokenizer FOLDER",
                     t->where);
}

int sample_tokens_open(const sample_loaded *from, int as_ids, sample_tokens **out, dcp_error *err) {
    sample_tokens *t = calloc(1, sizeof *t);
    if (!t) return core_fail_memory(err, sizeof *t);
    t->as_ids = as_ids;
    t->where = dcp_checkpoint_path(from->ckpt);
    t->classes = model_sample(from->m, 1).classes;
    const int status = as_ids ? DCP_OK : check_bytes(from, t, err);
    if (status)
        sample_tokens_close(t);
    else
        *out = t;
    return status;
}

void sample_tokens_close(sample_tokens *t) { free(t); }

static void read_bytes(const char *text, int32_t *ids, size_t *n) {
    for (*n = 0; text[*n]; ++*n) ids[*n] = (unsigned char)text[*n];
}

/* The id that a word of n characters is; -1: it is none below `classes`. */
static int32_t read_id(const char *word, size_t n, uint64_t classes) {
    uint64_t id = 0;
    for (size_t i = 0; i < n && id < classes; i++) {
        if (!isdigit((unsigned char)word[i])) return -1;
        id = 10 * id + (uint64_t)(word[i] - '0');
    }
    return id < classes ? (int32_t)id : -1;
}

static int read_ids(const sample_tokens *t, const char *text, int32_t *ids, size_t *n,
                    dcp_error *err) {
    *n = 0;
    for (size_t length; *(text += strspn(text, space)); text += length) {
        length = strcspn(text, space);
        const int32_t id = read_id(text, length, t->classes);
        if (id < 0)
            return core_fail(err, DCP_ERR_ARG,
                             "--ids: '%.*s' is no token of the model's, whose vocab_size is "
                             "%" PRIu64 "; give ids from 0 to %" PRIu64 ", separated by spaces",
                             (int)(length < SHOWN ? length : SHOWN), text, t->classes,
                             t->classes - 1);
        ids[(*n)++] = id;
    }
    return DCP_OK;
}

int sample_tokens_read(const sample_tokens *t, const char *text, int32_t **ids, size_t *n,
                       dcp_error *err) {
    const size_t bytes = (strlen(text) + 1) * sizeof **ids; /* an id has a character at least */
    *ids = malloc(bytes);
    if (!*ids) return core_fail_memory(err, bytes);
    if (t->as_ids) return read_ids(t, text, *ids, n, err);
    read_bytes(text, *ids, n);
    return DCP_OK;
}

/* Tokens that are no bytes have no text: a vocabulary is often rounded up. */
static void write_byte(sample_tokens *t, int32_t id) {
    const char byte = (char)id;
    if (id < BYTES) sample_characters_put(&t->written, &byte, 1, stdout);
}

void sample_tokens_write(sample_tokens *t, int32_t id) {
    if (!t->as_ids) {
        write_byte(t, id);
        return;
    }
    printf("%s%" PRId32, t->is_begun ? " " : "", id);
    t->is_begun = 1;
}
