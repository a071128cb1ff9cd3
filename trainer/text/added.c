/* Where a token may begin, the text is looked up by each length that a token has. */
#include "text/added.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "programs/fail.h"
#include "text/part.h"
#include "text/utf8.h"

/* How many bytes the character at text[at] has, or the one that ends there (to_left); *character is
 * what it is. 0: the text ends there. */
static size_t character_at(text_piece piece, size_t at, int to_left, utf8proc_int32_t *character) {
    size_t start = at;
    if (at == (to_left ? 0 : piece.bytes)) return 0;
    if (to_left) do
            start--;
        while (start && ((unsigned char)piece.text[start] & 0xc0) == 0x80);
    const utf8proc_uint8_t *text = (const utf8proc_uint8_t *)piece.text;
    const utf8proc_ssize_t bytes =
        utf8proc_iterate(text + start, (utf8proc_ssize_t)(piece.bytes - start), character);
    return bytes > 0 ? (size_t)bytes : 0;
}

static int is_space(utf8proc_int32_t c) {
    const utf8proc_category_t kind = utf8proc_category(c);
    return (c >= '\t' && c <= '\r') || c == 0x85 ||
           (kind >= UTF8PROC_CATEGORY_ZS && kind <= UTF8PROC_CATEGORY_ZP);
}

static int is_of_word(utf8proc_int32_t c) {
    const utf8proc_category_t kind = utf8proc_category(c);
    return (kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_NL) ||
           kind == UTF8PROC_CATEGORY_PC || c == 0x200c || c == 0x200d;
}

static int stands_alone(text_piece piece, size_t start, size_t end) {
    utf8proc_int32_t c;
    if (character_at(piece, start, 1, &c) && is_of_word(c)) return 0;
    return !character_at(piece, end, 0, &c) || !is_of_word(c);
}

/* The token at text[at], the longest one. */
static const added_token *token_at(const added_tokens *a, const added_set *set, text_piece piece,
                                   size_t at) {
    if (!set->first[(unsigned char)piece.text[at]]) return NULL;
    for (size_t i = 0; i < set->n_lengths; i++) {
        const size_t bytes = set->lengths[i];
        if (bytes > piece.bytes - at) continue;
        const int32_t found = text_token_table_find(&set->table, piece.text + at, bytes);
        if (found >= 0) return &a->list[found];
    }
    return NULL;
}

/* With the whitespace that it takes; `least` is where it may begin. */
static void widen(const added_token *token, text_piece piece, size_t least, size_t *start,
                  size_t *end) {
    utf8proc_int32_t c;
    size_t bytes;
    while (token->takes_left && *start > least && (bytes = character_at(piece, *start, 1, &c)) &&
           is_space(c))
        *start -= bytes;
    while (token->takes_right && (bytes = character_at(piece, *end, 0, &c)) && is_space(c))
        *end += bytes;
}

static text_piece cut_out(text_piece piece, size_t start, size_t end) {
    return (text_piece){piece.text + start, end - start, piece.is_first && start == 0};
}

int text_added_split(const added_tokens *a, const added_set *set, text_piece piece,
                     text_added_fn take, void *ctx, dcp_error *err) {
    size_t done = 0, after;
    int status = DCP_OK;
    for (size_t at = 0; set->n_lengths && at < piece.bytes && !status; at = after) {
        const added_token *token = token_at(a, set, piece, at);
        size_t start = at, end = at + (token ? token->bytes : 1);
        after = end; /* of the token alone: whitespace that it takes may be a token, too */
        if (!token || (token->is_word && !stands_alone(piece, start, end))) continue;
        widen(token, piece, done, &start, &end);
        if (done < start) status = take(ctx, NULL, cut_out(piece, done, start), err);
        if (!status) status = take(ctx, token, cut_out(piece, start, end), err);
        done = end;
    }
    if (!status && done < piece.bytes)
        status = take(ctx, NULL, cut_out(piece, done, piece.bytes), err);
    return status;
}

static int read_added(added_token *t, const text_part *part, dcp_error *err) {
    json_int_t id;
    if (!json_is_object(part->value))
        return text_part_fail(part, DCP_ERR_ARG, err, "one is not an object");
    int status = text_part_string(part, "content", NULL, &t->text, err);
    text_part named = *part;
    named.type = t->text; /* so that messages name it */
    if (!status) status = text_part_number(&named, "id", TEXT_MOST_ID, &id, err);
    if (!status) status = text_part_flag(&named, "special", 0, &t->is_special, err);
    if (!status) status = text_part_flag(&named, "lstrip", 0, &t->takes_left, err);
    if (!status) status = text_part_flag(&named, "rstrip", 0, &t->takes_right, err);
    if (!status) status = text_part_flag(&named, "single_word", 0, &t->is_word, err);
    if (!status)
        status = text_part_flag(&named, "normalized", !t->is_special, &t->is_normalized, err);
    if (!status) t->id = (int32_t)id;
    return status;
}

static int keep_sought(void *ctx, text_piece piece, dcp_error *err) {
    added_token *t = ctx;
    free(t->sought);
    t->sought = malloc(piece.bytes + 1);
    if (!t->sought) return core_fail_memory(err, piece.bytes);
    memcpy(t->sought, piece.text, piece.bytes);
    t->bytes = piece.bytes;
    return DCP_OK;
}

static int find_sought(added_token *t, const text_steps *normalizer, dcp_error *err) {
    const text_piece text = {t->text, strlen(t->text), 1};
    text_run run;
    if (!t->is_normalized) return keep_sought(t, text, err);
    int status = text_run_open(&run, normalizer, keep_sought, t, err);
    if (!status) status = text_run_do(&run, text, err);
    text_run_close(&run);
    return status;
}

static int descending(const void *a, const void *b) {
    const size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x < y) - (x > y);
}

static int make_set(const added_tokens *a, int is_normalized, added_set *set, dcp_error *err) {
    size_t n = 0;
    int status = text_token_table_open(&set->table, a->n, err);
    set->lengths = malloc((a->n + 1) * sizeof *set->lengths);
    if (!set->lengths) return core_fail_memory(err, a->n * sizeof *set->lengths);
    for (size_t i = 0; i < a->n && !status; i++) {
        const added_token *t = &a->list[i];
        if (t->is_normalized != is_normalized || !t->bytes) continue;
        text_token_table_put(&set->table, t->sought, t->bytes, (int32_t)i);
        set->lengths[n++] = t->bytes;
        set->first[(unsigned char)t->sought[0]] = 1;
    }
    qsort(set->lengths, n, sizeof *set->lengths, descending);
    for (size_t i = 0; i < n; i++)
        if (!i || set->lengths[i] != set->lengths[i - 1])
            set->lengths[set->n_lengths++] = set->lengths[i];
    return status;
}

int text_added_open(added_tokens *a, const char *file, const json_t *value,
                    const text_steps *normalizer, dcp_error *err) {
    text_part part = {file, "added_tokens", NULL, value};
    *a = (added_tokens){0};
    if (!value || json_is_null(value)) return DCP_OK;
    if (!json_is_array(value)) return text_part_fail(&part, DCP_ERR_ARG, err, "it is not a list");
    a->n = json_array_size(value);
    a->list = calloc(a->n + 1, sizeof *a->list);
    if (!a->list) return core_fail_memory(err, a->n * sizeof *a->list);
    for (size_t i = 0; i < a->n; i++) {
        part.value = json_array_get(value, i);
        int status = read_added(&a->list[i], &part, err);
        if (!status) status = find_sought(&a->list[i], normalizer, err);
        if (status) return status;
    }
    const int status = make_set(a, 0, &a->plain, err);
    return status ? status : make_set(a, 1, &a->normalized, err);
}

void text_added_close(added_tokens *a) {
    for (size_t i = 0; i < a->n && a->list; i++) free(a->list[i].sought);
    free(a->list);
    text_token_table_close(&a->plain.table);
    text_token_table_close(&a->normalized.table);
    free(a->plain.lengths);
    free(a->normalized.lengths);
}
