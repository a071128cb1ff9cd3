/* Tokens by their text: a hash table of strings to numbers. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "dcp/error.h"

enum {
    TEXT_MOST_ID = (1 << 24) - 1
}; /* tokenizers have some 300,000; memory goes by the highest */

typedef struct token_row {
    const char *text; /* NULL: a free row */
    size_t bytes;
    int32_t number;
} token_row;

/* Zeros: empty, and nothing is found. */
typedef struct token_table {
    token_row *rows;
    size_t mask; /* rows, a power of two, less one */
} token_table;

/* Room for n strings. */
int text_token_table_open(token_table *t, size_t n, dcp_error *err);
void text_token_table_close(token_table *t);

/* The string stays the caller's, and where it is. Returns the number that it has: another than
 * this where it was there before. */
int32_t text_token_table_put(token_table *t, const char *text, size_t bytes, int32_t number);

/* -1: it is not there. */
int32_t text_token_table_find(const token_table *t, const char *text, size_t bytes);
