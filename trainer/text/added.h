/* added_tokens of a tokenizer.json: what becomes one token wherever it stands in a text, before
 * anything else is done to the text. */
#pragma once

#include <jansson.h>

#include "text/steps.h"
#include "text/token_table.h"

typedef struct added_token {
    const char *text; /* the JSON's */
    char *sought;     /* the text, normalized where that is asked for */
    size_t bytes;     /* of `sought` */
    int32_t id;
    int is_special;
    int takes_left, takes_right; /* the whitespace beside it */
    int is_word;                 /* no letter or digit stands beside it */
    int is_normalized;           /* it is looked for in the normalized text */
} added_token;

/* Those that are looked for in the text as it is, or in the normalized one. */
typedef struct added_set {
    token_table table; /* of `sought`, to the place in the list */
    size_t *lengths;   /* that they have, the longest first */
    size_t n_lengths;
    unsigned char first[256]; /* whether one begins with that byte */
} added_set;

typedef struct added_tokens {
    added_token *list;
    size_t n;
    added_set plain, normalized;
} added_tokens;

/* `value`: that of the key "added_tokens", which lives as long as they do; NULL: none. */
int text_added_open(added_tokens *a, const char *file, const json_t *value,
                    const text_steps *normalizer, dcp_error *err);
void text_added_close(added_tokens *a);

/* Takes a piece of text (token NULL), or what became a token. */
typedef int (*text_added_fn)(void *ctx, const added_token *token, text_piece piece, dcp_error *err);

/* Cuts a piece, valid UTF-8, at the tokens of the set: at each place the longest. */
int text_added_split(const added_tokens *a, const added_set *set, text_piece piece,
                     text_added_fn take, void *ctx, dcp_error *err);
