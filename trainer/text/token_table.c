/* Open addressing over at least twice as many rows as strings; the hash is FNV-1a. */
#include "text/token_table.h"

#include <stdlib.h>
#include <string.h>

#include "programs/fail.h"

int text_token_table_open(token_table *t, size_t n, dcp_error *err) {
    size_t rows = 4;
    while (rows < 2 * n) rows *= 2;
    t->mask = rows - 1;
    t->rows = calloc(rows, sizeof *t->rows);
    return t->rows ? DCP_OK : core_fail_memory(err, rows * sizeof *t->rows);
}

void text_token_table_close(token_table *t) { free(t->rows); }

/* Its row, or the free one that it would have. */
static token_row *row_of(const token_table *t, const char *text, size_t bytes) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++) hash = (hash ^ (unsigned char)text[i]) * 0x100000001b3u;
    size_t at = (hash ^ hash >> 32) & t->mask;
    for (; t->rows[at].text; at = (at + 1) & t->mask)
        if (t->rows[at].bytes == bytes && !memcmp(t->rows[at].text, text, bytes)) break;
    return &t->rows[at];
}

int32_t text_token_table_put(token_table *t, const char *text, size_t bytes, int32_t number) {
    token_row *row = row_of(t, text, bytes);
    if (!row->text) *row = (token_row){text, bytes, number};
    return row->number;
}

int32_t text_token_table_find(const token_table *t, const char *text, size_t bytes) {
    if (!t->rows) return -1;
    const token_row *row = row_of(t, text, bytes);
    return row->text ? row->number : -1;
}
