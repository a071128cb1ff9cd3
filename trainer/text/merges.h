/* Byte-pair encoding's merges: which neighbouring tokens become one, the lowest rank first. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "dcp/error.h"

typedef struct merge_row {
    int32_t left, right; /* left -1: a free row */
    uint32_t rank;
    int32_t id; /* what the two become */
} merge_row;

typedef struct merge_table {
    merge_row *rows;
    size_t mask;
} merge_table;

int text_merges_open(merge_table *t, size_t n, dcp_error *err);
void text_merges_close(merge_table *t);

/* Of two merges of one pair the later one holds. */
void text_merges_put(merge_table *t, merge_row merge);

typedef struct word_symbol {
    int32_t id;             /* -1: it is part of one before */
    int32_t previous, next; /* -1: none */
} word_symbol;

typedef struct word_pair {
    uint32_t rank;
    int32_t at; /* the symbol on the left */
    int32_t id; /* what was to come of it */
} word_pair;

/* A word on its way to tokens. Zeros: empty memory, which the owner frees by text_word_free. */
typedef struct text_word {
    word_symbol *symbols;
    size_t n, room;
    word_pair *pairs; /* a heap */
    size_t n_pairs, pairs_room;
} text_word;

void text_word_free(text_word *w);

/* One more symbol at the end. */
int text_word_add(text_word *w, int32_t id, dcp_error *err);

/* Merges until no pair is left. Symbols whose id is not -1 are the tokens, in their order. */
int text_merges_apply(const merge_table *t, text_word *w, dcp_error *err);
