/* The model of a tokenizer.json, of type BPE: tokens, their merges, and what becomes of characters
 * that are no token. */
#pragma once

#include <jansson.h>

#include "text/merges.h"
#include "text/token_table.h"

typedef struct bpe_model {
    token_table tokens; /* by text; the text is the JSON's */
    merge_table merges;
    int32_t highest;       /* id */
    const char *unknown;   /* the text of the token for what is not known; NULL: there is none */
    int32_t unknown_id;    /* -1: none */
    int32_t fallback[256]; /* <0x0A>'s id for the byte 10, and so on; -1: there is no such token */
    int joins_unknown, falls_back, keeps_whole; /* fuse_unk, byte_fallback, ignore_merges */
} bpe_model;

/* `value`: that of the key "model", which lives as long as the model does. */
int text_bpe_model_open(bpe_model *m, const char *file, const json_t *value, dcp_error *err);
void text_bpe_model_close(bpe_model *m);

/* The word's tokens, as text_merges_apply leaves them. */
int text_bpe_model_encode(const bpe_model *m, const char *word, size_t bytes, text_word *out,
                          dcp_error *err);
