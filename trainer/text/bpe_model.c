/* Reading a model of type BPE, and applying it to a word. */
#include "text/bpe_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "programs/fail.h"
#include "text/buffer.h"
#include "text/part.h"
#include "text/utf8.h"

static int check_unused(const text_part *part, dcp_error *err) {
    const char *prefix, *suffix;
    int status = text_part_string(part, "continuing_subword_prefix", "", &prefix, err);
    if (!status) status = text_part_string(part, "end_of_word_suffix", "", &suffix, err);
    if (status) return status;
    const char *found = *prefix   ? "continuing_subword_prefix"
                        : *suffix ? "end_of_word_suffix"
                        : json_number_value(json_object_get(part->value, "dropout")) != 0
                            ? "dropout"
                            : NULL;
    if (!found) return DCP_OK;
    return text_part_fail(part, DCP_ERR_UNSUPPORTED, err, "%s is not supported", found);
}

static int read_options(bpe_model *m, const text_part *part, dcp_error *err) {
    int status = check_unused(part, err);
    const char *unknown = "";
    if (!status) status = text_part_flag(part, "fuse_unk", 0, &m->joins_unknown, err);
    if (!status) status = text_part_flag(part, "byte_fallback", 0, &m->falls_back, err);
    if (!status) status = text_part_flag(part, "ignore_merges", 0, &m->keeps_whole, err);
    if (!status) status = text_part_string(part, "unk_token", "", &unknown, err);
    m->unknown = *unknown ? unknown : NULL;
    return status;
}

static int read_token(bpe_model *m, const text_part *part, void *entry, dcp_error *err) {
    const char *text = json_object_iter_key(entry);
    const json_t *value = json_object_iter_value(entry);
    const json_int_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < 0 || id > TEXT_MOST_ID)
        return text_part_fail(part, DCP_ERR_ARG, err,
                              "the id of token \"%s\" is not an integer of 0 to %d", text,
                              TEXT_MOST_ID);
    text_token_table_put(&m->tokens, text, json_object_iter_key_len(entry), (int32_t)id);
    if (id > m->highest) m->highest = (int32_t)id;
    return DCP_OK;
}

static int read_tokens(bpe_model *m, const text_part *part, dcp_error *err) {
    json_t *vocabulary = json_object_get(part->value, "vocab");
    if (!json_is_object(vocabulary) || !json_object_size(vocabulary))
        return text_part_fail(part, DCP_ERR_ARG, err, "vocab is not an object with tokens");
    int status = text_token_table_open(&m->tokens, json_object_size(vocabulary), err);
    for (void *i = json_object_iter(vocabulary); i && !status;
         i = json_object_iter_next(vocabulary, i))
        status = read_token(m, part, i, err);
    return status;
}

/* "a b", or ["a", "b"]: both joined, of which the left one has *left bytes. */
static int read_pair(const text_part *part, size_t rank, const json_t *value, text_buffer *joined,
                     size_t *left, dcp_error *err) {
    const json_t *both[2] = {json_array_get(value, 0), json_array_get(value, 1)};
    const char *text = json_string_value(value);
    const char *space = text ? strchr(text, ' ') : NULL;
    int ok = 1;
    joined->bytes = 0;
    if (space && !strchr(space + 1, ' ')) {
        *left = (size_t)(space - text);
        ok = text_buffer_put(joined, text, *left) &&
             text_buffer_put(joined, space + 1, json_string_length(value) - *left - 1);
    } else if (json_array_size(value) == 2 && json_is_string(both[0]) && json_is_string(both[1])) {
        *left = json_string_length(both[0]);
        ok = text_buffer_put(joined, json_string_value(both[0]), *left) &&
             text_buffer_put(joined, json_string_value(both[1]), json_string_length(both[1]));
    } else {
        return text_part_fail(part, DCP_ERR_ARG, err,
                              "merge %zu is neither two tokens with one space between nor a list "
                              "of two",
                              rank);
    }
    return ok ? DCP_OK : core_fail_memory(err, joined->bytes);
}

static int find_token(const bpe_model *m, const text_part *part, size_t rank, const char *text,
                      size_t bytes, int32_t *out, dcp_error *err) {
    *out = text_token_table_find(&m->tokens, text, bytes);
    if (*out >= 0) return DCP_OK;
    return text_part_fail(part, DCP_ERR_CORRUPT, err,
                          "merge %zu is about \"%.*s\", which is no token of vocab", rank,
                          bytes > 200 ? 200 : (int)bytes, text);
}

static int read_merge(bpe_model *m, const text_part *part, size_t rank, const json_t *value,
                      text_buffer *joined, dcp_error *err) {
    merge_row row = {.rank = (uint32_t)rank};
    size_t left = 0;
    const char *text = json_string_value(value);
    if (text && !strncmp(text, "#version", 8)) return DCP_OK;
    int status = read_pair(part, rank, value, joined, &left, err);
    if (status) return status;
    const char *both = joined->at ? joined->at : "";
    status = find_token(m, part, rank, both, left, &row.left, err);
    if (!status)
        status = find_token(m, part, rank, both + left, joined->bytes - left, &row.right, err);
    if (!status) status = find_token(m, part, rank, both, joined->bytes, &row.id, err);
    if (!status) text_merges_put(&m->merges, row);
    return status;
}

static int read_merges(bpe_model *m, const text_part *part, dcp_error *err) {
    json_t *merges = json_object_get(part->value, "merges");
    text_buffer joined = {0};
    if (!json_is_array(merges))
        return text_part_fail(part, DCP_ERR_ARG, err, "merges is not a list");
    int status = text_merges_open(&m->merges, json_array_size(merges), err);
    for (size_t i = 0; i < json_array_size(merges) && !status; i++)
        status = read_merge(m, part, i, json_array_get(merges, i), &joined, err);
    free(joined.at);
    return status;
}

static void find_fallbacks(bpe_model *m) {
    for (unsigned byte = 0; byte < 256; byte++) {
        char name[8];
        const int bytes = snprintf(name, sizeof name, "<0x%02X>", byte);
        m->fallback[byte] = text_token_table_find(&m->tokens, name, (size_t)bytes);
    }
}

int text_bpe_model_open(bpe_model *m, const char *file, const json_t *value, dcp_error *err) {
    text_part part = {file, "model", NULL, value};
    *m = (bpe_model){.unknown_id = -1};
    if (!json_is_object(value))
        return text_part_fail(&part, DCP_ERR_ARG, err, "it is not an object");
    /* GPT-2's own file names no type. */
    int status = text_part_string(&part, "type", "BPE", &part.type, err);
    if (status) return status;
    if (strcmp(part.type, "BPE") != 0)
        return text_part_fail(&part, DCP_ERR_UNSUPPORTED, err,
                              "this type is not supported (only BPE)");
    status = read_options(m, &part, err);
    if (!status) status = read_tokens(m, &part, err);
    if (!status) status = read_merges(m, &part, err);
    if (!status) find_fallbacks(m);
    if (!status && m->unknown)
        m->unknown_id = text_token_table_find(&m->tokens, m->unknown, strlen(m->unknown));
    return status;
}

void text_bpe_model_close(bpe_model *m) {
    text_token_table_close(&m->tokens);
    text_merges_close(&m->merges);
}

/* Whether there are tokens for all bytes of the character. */
static int can_fall_back(const bpe_model *m, const char *text, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (m->fallback[(unsigned char)text[i]] < 0) return 0;
    return m->falls_back;
}

/* A character becomes its token, those of its bytes, or the unknown one. The unknown one waits for
 * another, to be joined with; where bytes come between, it comes after them, as in `tokenizers`. */
static int add_character(const bpe_model *m, const char *text, size_t bytes, text_word *out,
                         int *waits, dcp_error *err) {
    const int32_t id = text_token_table_find(&m->tokens, text, bytes);
    int status = DCP_OK;
    if (id < 0 && can_fall_back(m, text, bytes)) {
        for (size_t i = 0; i < bytes && !status; i++)
            status = text_word_add(out, m->fallback[(unsigned char)text[i]], err);
        return status;
    }
    const int is_unknown = id < 0 && m->unknown_id >= 0;
    if (*waits && (id >= 0 || (is_unknown && !m->joins_unknown)))
        status = text_word_add(out, m->unknown_id, err);
    *waits = is_unknown;
    return status || id < 0 ? status : text_word_add(out, id, err);
}

int text_bpe_model_encode(const bpe_model *m, const char *word, size_t bytes, text_word *out,
                          dcp_error *err) {
    const int32_t whole = m->keeps_whole ? text_token_table_find(&m->tokens, word, bytes) : -1;
    int status = DCP_OK, waits = 0;
    size_t length, invalid;
    out->n = 0;
    if (whole >= 0) return text_word_add(out, whole, err);
    for (size_t at = 0; at < bytes && !status; at += length) {
        length = text_utf8_character(word + at, bytes - at, &invalid);
        status = add_character(m, word + at, length, out, &waits, err);
    }
    if (!status && waits) status = text_word_add(out, m->unknown_id, err);
    return status ? status : text_merges_apply(&m->merges, out, err);
}
