/* Bytes are tokens where the step's about.json says that the run's data were text; of older steps,
 * and of copies without that file, where the model tells 256 things apart and was trained here. */
#include "sample/tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/fail.h"
#include "programs/json_read.h"
#include "programs/model_files.h"
#include "sample/characters.h"
#include "state/provenance.h"
#include "text/bpe.h"

enum { BYTES = 256 };

static const char section[] = "/files/";
static const char tokenizer[] = "/files/tokenizer.json";

struct sample_tokens {
    text_bpe *bpe; /* NULL: bytes */
    const char *where;
    uint64_t classes;
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

static int is_of_bytes(const sample_loaded *from, uint64_t classes) {
    int told;
    if (was_text(from, &told)) return classes >= BYTES;
    return !told && classes == BYTES && json_is_object(json_object_get(from->meta, "data"));
}

/* A tokenizer's file that the checkpoint carries; NULL: none. */
static const char *other_tokenizer(const dcp_checkpoint *ckpt) {
    for (size_t i = 0; i < dcp_checkpoint_tensors(ckpt); i++) {
        const char *path = dcp_checkpoint_tensor(ckpt, i)->path;
        if (strncmp(path, section, strlen(section)) == 0 &&
            model_files_is_tokenizer(path + strlen(section)))
            return path + strlen(section);
    }
    return NULL;
}

/* Without a tokenizer.json. */
static int open_bytes(const sample_loaded *from, const sample_tokens *t, dcp_error *err) {
    const char *other = other_tokenizer(from->ckpt);
    if (other)
        return core_fail(err, DCP_ERR_UNSUPPORTED,
                         "%s: carries a tokenizer (%s) without tokenizer.json, which alone can be "
                         "read here; save it by transformers' AutoTokenizer, and import the model "
                         "with that",
                         t->where, other);
    if (is_of_bytes(from, t->classes)) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG,
                     "%s: carries no tokenizer, and its tokens are no bytes; have dcp-train go on "
                     "from it with data.tokenizer=HF_FOLDER, and take the step that this saves",
                     t->where);
}

/* Of what is not supported the message says what is. */
static int fail_bpe(int status, const dcp_error *why, dcp_error *err) {
    const char *remedy = status == DCP_ERR_NO_MEMORY ? ""
                         : status == DCP_ERR_UNSUPPORTED
                             ? "; sample with transformers, from dcp-export's folder"
                             : "; save it anew by transformers' AutoTokenizer, and "
                               "import the model with that";
    return core_fail(err, status, "%s%s", why->message, remedy);
}

static int open_bpe(const sample_loaded *from, const dcp_tensor *file, sample_tokens *t,
                    dcp_error *err) {
    char name[4096];
    const uint64_t bytes = dcp_tensor_bytes(file);
    const dcp_box whole = dcp_box_whole(file);
    char *json = malloc(bytes + 1);
    if (!json) return core_fail_memory(err, bytes);
    snprintf(name, sizeof name, "%s: tokenizer.json", t->where);
    int status = dcp_checkpoint_read(from->ckpt, tokenizer, &whole, json, err);
    dcp_error why;
    if (!status) {
        status = text_bpe_open(name, json, bytes, &t->bpe, &why);
        if (status) status = fail_bpe(status, &why, err);
    }
    free(json);
    return status;
}

int sample_tokens_open(const sample_loaded *from, sample_tokens **out, dcp_error *err) {
    const dcp_tensor *file = dcp_checkpoint_find(from->ckpt, tokenizer);
    sample_tokens *t = calloc(1, sizeof *t);
    if (!t) return core_fail_memory(err, sizeof *t);
    t->where = dcp_checkpoint_path(from->ckpt);
    t->classes = model_sample(from->m, 1).classes;
    const int status = file ? open_bpe(from, file, t, err) : open_bytes(from, t, err);
    if (status)
        sample_tokens_close(t);
    else
        *out = t;
    return status;
}

void sample_tokens_close(sample_tokens *t) {
    if (!t) return;
    text_bpe_close(t->bpe);
    free(t);
}

static int read_bytes(const char *text, int32_t **ids, size_t *n, dcp_error *err) {
    *n = strlen(text);
    *ids = malloc((*n + 1) * sizeof **ids);
    if (!*ids) return core_fail_memory(err, (*n + 1) * sizeof **ids);
    for (size_t i = 0; i < *n; i++) (*ids)[i] = (unsigned char)text[i];
    return DCP_OK;
}

/* A text by a chat template has what begins one in it; trained texts had it once. */
static void drop_second_begin(const text_bpe *t, int32_t *ids, size_t *n) {
    const int32_t *before;
    const size_t own = text_bpe_before(t, &before), bytes = own * sizeof *ids;
    if (own == 0 || *n < 2 * own || memcmp(ids + own, before, bytes) != 0) return;
    *n -= own;
    memmove(ids, ids + own, *n * sizeof *ids);
}

int sample_tokens_read(const sample_tokens *t, const char *text, int32_t **ids, size_t *n,
                       dcp_error *err) {
    if (!t->bpe) return read_bytes(text, ids, n, err);
    const int status = text_bpe_encode(t->bpe, text, strlen(text), 1, ids, n, err);
    if (status) return status;
    *n -= text_bpe_after(t->bpe); /* the text goes on: its end is not there yet */
    drop_second_begin(t->bpe, *ids, n);
    for (size_t i = 0; i < *n; i++)
        if ((uint64_t)(*ids)[i] >= t->classes)
            return core_fail(err, DCP_ERR_MISMATCH,
                             "%s: the tokenizer has token %d for a part of the text, and the "
                             "model's vocab_size is %llu: the tokenizer is another model's; go on "
                             "from it with the model's own as data.tokenizer",
                             t->where, (int)(*ids)[i], (unsigned long long)t->classes);
    return DCP_OK;
}

/* Tokens that are no bytes, or that the tokenizer does not know, have no text: a vocabulary is
 * often rounded up. */
void sample_tokens_write(sample_tokens *t, int32_t id) {
    const char byte = (char)id, *bytes = &byte;
    size_t n = id < BYTES;
    int is_special = 0;
    if (t->bpe && text_bpe_bytes(t->bpe, id, &bytes, &n, &is_special, NULL) != DCP_OK) return;
    if (!is_special) sample_characters_put(&t->written, bytes, n, stdout);
}
