/* A text goes through these, each handing pieces to the next one:
 *   valid UTF-8, and what is none
 *   added tokens of the text as it is; the normalizer; added tokens of the normalized text
 *   the pre-tokenizer
 *   the model, which has a word's ids
 * The strings of tokens are those of the JSON tree, which therefore stays. */
#include "text/bpe.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "programs/fail.h"
#include "programs/json_read.h"
#include "text/added.h"
#include "text/bpe_model.h"
#include "text/post_processor.h"
#include "text/step_parts.h"
#include "text/utf8.h"

enum { MOST_VALUES = 1 << 23 }; /* of the JSON, each of which takes up to 350 bytes of memory */

typedef struct text_token {
    const char *text; /* NULL: no token has this id */
    size_t text_bytes;
    size_t at, bytes; /* what it is decoded to, in `decoded` */
    int is_special;
} text_token;

struct text_bpe {
    json_t *file;
    bpe_model model;
    added_tokens added;
    text_steps normalizer, pre_tokenizer, decoder;
    text_steps bytes; /* that are no UTF-8 */
    text_frame frame;
    int is_byte_level;
    text_token *tokens; /* by id */
    size_t n_tokens;
    text_buffer decoded;
};

static int parse(const char *name, const char *json, size_t bytes, json_t **out, dcp_error *err) {
    json_error_t where;
    if (core_json_count_values(json, bytes) > MOST_VALUES)
        return core_fail(err, DCP_ERR_UNSUPPORTED, "%s: it has more than %d values", name,
                         MOST_VALUES);
    *out = json_loadb(json, bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &where);
    if (!*out)
        return core_fail(err, DCP_ERR_CORRUPT, "%s: line %d, column %d: %s", name, where.line,
                         where.column, where.text);
    if (json_is_object(*out)) return DCP_OK;
    return core_fail(err, DCP_ERR_ARG,
                     "%s: it is not an object with a model, as a tokenizer.json is", name);
}

static int place_token(text_bpe *t, const char *name, int32_t id, const char *text, size_t bytes,
                       dcp_error *err) {
    text_token *token = &t->tokens[id];
    if (token->text && (token->text_bytes != bytes || memcmp(token->text, text, bytes) != 0))
        return core_fail(err, DCP_ERR_CORRUPT,
                         "%s: id %d has two tokens, \"%.200s\" and \"%.200s\"", name, id,
                         token->text, text);
    token->text = text;
    token->text_bytes = bytes;
    return DCP_OK;
}

static int place_added(text_bpe *t, const char *name, const added_token *added, dcp_error *err) {
    const size_t bytes = strlen(added->text);
    const int32_t other = text_token_table_find(&t->model.tokens, added->text, bytes);
    if (other >= 0 && other != added->id)
        return core_fail(err, DCP_ERR_CORRUPT,
                         "%s: added_tokens has id %d for \"%.200s\", which is %d in vocab", name,
                         added->id, added->text, other);
    const int status = place_token(t, name, added->id, added->text, bytes, err);
    if (!status) t->tokens[added->id].is_special |= added->is_special;
    return status;
}

static int place_tokens(text_bpe *t, const char *name, dcp_error *err) {
    int32_t highest = t->model.highest;
    for (size_t i = 0; i < t->added.n; i++)
        if (t->added.list[i].id > highest) highest = t->added.list[i].id;
    t->n_tokens = (size_t)highest + 1;
    t->tokens = calloc(t->n_tokens, sizeof *t->tokens);
    if (!t->tokens) return core_fail_memory(err, t->n_tokens * sizeof *t->tokens);
    int status = DCP_OK;
    for (size_t i = 0; i <= t->model.tokens.mask && !status; i++) {
        const token_row *row = &t->model.tokens.rows[i];
        if (row->text) status = place_token(t, name, row->number, row->text, row->bytes, err);
    }
    for (size_t i = 0; i < t->added.n && !status; i++)
        status = place_added(t, name, &t->added.list[i], err);
    return status;
}

/* An unknown token may be an added one. */
static int find_unknown(text_bpe *t, const char *name, dcp_error *err) {
    const char *unknown = t->model.unknown;
    for (size_t i = 0; i < t->added.n && unknown && t->model.unknown_id < 0; i++)
        if (!strcmp(t->added.list[i].text, unknown)) t->model.unknown_id = t->added.list[i].id;
    if (!unknown || t->model.unknown_id >= 0) return DCP_OK;
    return core_fail(err, DCP_ERR_CORRUPT, "%s: model: unk_token \"%s\" is no token", name,
                     unknown);
}

static int put_decoded(void *ctx, text_piece piece, dcp_error *err) {
    text_buffer *decoded = ctx;
    if (text_buffer_put(decoded, piece.text, piece.bytes)) return DCP_OK;
    return core_fail_memory(err, decoded->bytes + piece.bytes);
}

static int decode_tokens(text_bpe *t, dcp_error *err) {
    text_run run;
    int status = text_run_open(&run, &t->decoder, put_decoded, &t->decoded, err);
    for (size_t id = 0; id < t->n_tokens && !status; id++) {
        text_token *token = &t->tokens[id];
        token->at = t->decoded.bytes;
        if (token->text && !token->is_special)
            status = text_run_do(&run, (text_piece){token->text, token->text_bytes, 0}, err);
        token->bytes = t->decoded.bytes - token->at;
    }
    text_run_close(&run);
    return status;
}

static int read_steps(text_bpe *t, const char *name, dcp_error *err) {
    int status = text_step_parts_normalizer(name, json_object_get(t->file, "normalizer"),
                                            &t->normalizer, err);
    if (!status)
        status = text_step_parts_pre_tokenizer(name, json_object_get(t->file, "pre_tokenizer"),
                                               &t->pre_tokenizer, err);
    if (!status)
        status =
            text_step_parts_decoder(name, json_object_get(t->file, "decoder"), &t->decoder, err);
    for (size_t i = 0; i < t->pre_tokenizer.n; i++)
        t->is_byte_level |= t->pre_tokenizer.step[i].kind == STEP_NAME_BYTES;
    t->bytes.step[0].kind = STEP_NAME_BYTES;
    t->bytes.n = 1;
    return status;
}

static int read_tokenizer(text_bpe *t, const char *name, dcp_error *err) {
    json_t *model = json_object_get(t->file, "model");
    int status = read_steps(t, name, err);
    if (!status) status = text_bpe_model_open(&t->model, name, model, err);
    if (!status)
        status = text_added_open(&t->added, name, json_object_get(t->file, "added_tokens"),
                                 &t->normalizer, err);
    if (!status) status = place_tokens(t, name, err);
    if (!status) status = find_unknown(t, name, err);
    if (!status) status = decode_tokens(t, err);
    if (!status)
        status = text_post_processor_read(name, json_object_get(t->file, "post_processor"),
                                          (int32_t)t->n_tokens - 1, &t->frame, err);
    json_object_del(model, "merges"); /* most of the tree */
    return status;
}

int text_bpe_open(const char *name, const char *json, size_t bytes, text_bpe **out,
                  dcp_error *err) {
    text_bpe *t = calloc(1, sizeof *t);
    if (!t) return core_fail_memory(err, sizeof *t);
    int status = parse(name, json, bytes, &t->file, err);
    if (!status) status = read_tokenizer(t, name, err);
    if (status)
        text_bpe_close(t);
    else
        *out = t;
    return status;
}

void text_bpe_close(text_bpe *t) {
    if (!t) return;
    text_bpe_model_close(&t->model);
    text_added_close(&t->added);
    text_steps_close(&t->normalizer);
    text_steps_close(&t->pre_tokenizer);
    text_steps_close(&t->decoder);
    text_frame_free(&t->frame);
    free(t->tokens);
    free(t->decoded.at);
    json_decref(t->file);
    free(t);
}

uint64_t text_bpe_vocabulary(const text_bpe *t) { return t->n_tokens; }

int text_bpe_bytes(const text_bpe *t, int32_t id, const char **out, size_t *n, int *is_special,
                   dcp_error *err) {
    if (id < 0 || (size_t)id >= t->n_tokens || !t->tokens[id].text)
        return core_fail(err, DCP_ERR_ARG, "the tokenizer has no token with the id %d", id);
    const text_token *token = &t->tokens[id];
    *out = token->bytes ? t->decoded.at + token->at : "";
    *n = token->bytes;
    *is_special = token->is_special;
    return DCP_OK;
}

size_t text_bpe_before(const text_bpe *t, const int32_t **ids) {
    *ids = t->frame.before;
    return t->frame.n_before;
}

size_t text_bpe_after(const text_bpe *t) { return t->frame.n_after; }

/* One call of text_bpe_encode. */
typedef struct encoding {
    const text_bpe *t;
    text_run normalizer, pre_tokenizer, bytes;
    text_word word;
    text_buffer ids; /* of int32_t */
} encoding;

static int put_id(encoding *e, int32_t id, dcp_error *err) {
    if (text_buffer_put(&e->ids, (const char *)&id, sizeof id)) return DCP_OK;
    return core_fail_memory(err, e->ids.bytes + sizeof id);
}

static int take_word(void *ctx, text_piece piece, dcp_error *err) {
    encoding *e = ctx;
    int status = text_bpe_model_encode(&e->t->model, piece.text, piece.bytes, &e->word, err);
    for (size_t i = 0; i < e->word.n && !status; i++)
        if (e->word.symbols[i].id >= 0) status = put_id(e, e->word.symbols[i].id, err);
    return status;
}

static int take_normalized(void *ctx, const added_token *token, text_piece piece, dcp_error *err) {
    encoding *e = ctx;
    return token ? put_id(e, token->id, err) : text_run_do(&e->pre_tokenizer, piece, err);
}

static int take_normal(void *ctx, text_piece piece, dcp_error *err) {
    const encoding *e = ctx;
    const added_tokens *a = &e->t->added;
    return text_added_split(a, &a->normalized, piece, take_normalized, ctx, err);
}

static int take_plain(void *ctx, const added_token *token, text_piece piece, dcp_error *err) {
    encoding *e = ctx;
    return token ? put_id(e, token->id, err) : text_run_do(&e->normalizer, piece, err);
}

static int encode_valid(encoding *e, text_piece piece, dcp_error *err) {
    const added_tokens *a = &e->t->added;
    return text_added_split(a, &a->plain, piece, take_plain, e, err);
}

/* What is no UTF-8 is a word by itself. */
static int encode_bytes(encoding *e, const char *text, size_t bytes, dcp_error *err) {
    size_t at = 0, invalid;
    int status = DCP_OK;
    while (at < bytes && !status) {
        const size_t valid = text_utf8_valid(text + at, bytes - at);
        size_t end = at + valid;
        status = encode_valid(e, (text_piece){text + at, valid, at == 0}, err);
        while (end < bytes && !text_utf8_character(text + end, bytes - end, &invalid))
            end += invalid;
        const text_piece rest = {text + at + valid, end - at - valid, 0};
        if (!status) status = text_run_do(&e->bytes, rest, err);
        at = end;
    }
    return status;
}

static int encode_replaced(encoding *e, const char *text, size_t bytes, dcp_error *err) {
    static const char replacement[] = "\xef\xbf\xbd";
    text_buffer out = {0};
    size_t at = 0, invalid;
    int ok = 1;
    while (at < bytes && ok) {
        const size_t valid = text_utf8_valid(text + at, bytes - at);
        ok = text_buffer_put(&out, text + at, valid);
        at += valid;
        if (at == bytes) break;
        text_utf8_character(text + at, bytes - at, &invalid);
        ok = ok && text_buffer_put(&out, replacement, sizeof replacement - 1);
        at += invalid;
    }
    const int status = ok ? encode_valid(e, (text_piece){out.at, out.bytes, 1}, err)
                          : core_fail_memory(err, out.bytes);
    free(out.at);
    return status;
}

static int encode_all(encoding *e, const char *text, size_t bytes, int special, dcp_error *err) {
    const text_frame *frame = &e->t->frame;
    int status = DCP_OK;
    for (size_t i = 0; special && i < frame->n_before && !status; i++)
        status = put_id(e, frame->before[i], err);
    if (!status)
        status = (e->t->is_byte_level ? encode_bytes : encode_replaced)(e, text, bytes, err);
    for (size_t i = 0; special && i < frame->n_after && !status; i++)
        status = put_id(e, frame->after[i], err);
    return status;
}

static int open_runs(encoding *e, dcp_error *err) {
    int status = text_run_open(&e->normalizer, &e->t->normalizer, take_normal, e, err);
    if (!status) status = text_run_open(&e->pre_tokenizer, &e->t->pre_tokenizer, take_word, e, err);
    return status ? status : text_run_open(&e->bytes, &e->t->bytes, take_word, e, err);
}

int text_bpe_encode(const text_bpe *t, const char *text, size_t bytes, int special, int32_t **ids,
                    size_t *n, dcp_error *err) {
    encoding e = {.t = t};
    int status = open_runs(&e, err);
    if (!status) status = encode_all(&e, text, bytes, special, err);
    text_run_close(&e.normalizer);
    text_run_close(&e.pre_tokenizer);
    text_run_close(&e.bytes);
    text_word_free(&e.word);
    if (status) {
        free(e.ids.at);
        return status;
    }
    *ids = (int32_t *)(void *)e.ids.at;
    *n = e.ids.bytes / sizeof **ids;
    return DCP_OK;
}
