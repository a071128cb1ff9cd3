/* A heap holds the pairs of neighbours that a merge is known for, by rank, then from the left.
 * Symbols are a linked list in an array. A pair that its symbols are no longer is passed over when
 * its turn comes, which makes n log n steps of a word of n symbols. */
#include "text/merges.h"

#include <limits.h>
#include <stdlib.h>

#include "programs/fail.h"

int text_merges_open(merge_table *t, size_t n, dcp_error *err) {
    size_t rows = 4;
    while (rows < 2 * n) rows *= 2;
    t->mask = rows - 1;
    t->rows = malloc(rows * sizeof *t->rows);
    if (!t->rows) return core_fail_memory(err, rows * sizeof *t->rows);
    for (size_t i = 0; i < rows; i++) t->rows[i].left = -1;
    return DCP_OK;
}

void text_merges_close(merge_table *t) { free(t->rows); }

static merge_row *row_of_pair(const merge_table *t, int32_t left, int32_t right) {
    const uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t at = (key * 0x9e3779b97f4a7c15u >> 32) & t->mask;
    for (; t->rows[at].left >= 0; at = (at + 1) & t->mask)
        if (t->rows[at].left == left && t->rows[at].right == right) break;
    return &t->rows[at];
}

void text_merges_put(merge_table *t, merge_row merge) {
    *row_of_pair(t, merge.left, merge.right) = merge;
}

void text_word_free(text_word *w) {
    free(w->symbols);
    free(w->pairs);
}

static int grow(void **at, size_t n, size_t *room, size_t size, dcp_error *err) {
    if (n < *room) return DCP_OK;
    void *larger = realloc(*at, (2 * n + 64) * size);
    if (!larger) return core_fail_memory(err, (2 * n + 64) * size);
    *at = larger;
    *room = 2 * n + 64;
    return DCP_OK;
}

int text_word_add(text_word *w, int32_t id, dcp_error *err) {
    if (w->n == INT32_MAX) return core_fail(err, DCP_ERR_ARG, "the text is too long");
    const int status = grow((void **)&w->symbols, w->n, &w->room, sizeof *w->symbols, err);
    if (status) return status;
    w->symbols[w->n] = (word_symbol){id, (int32_t)w->n - 1, -1};
    if (w->n) w->symbols[w->n - 1].next = (int32_t)w->n;
    w->n++;
    return DCP_OK;
}

static int is_before(word_pair a, word_pair b) {
    return a.rank != b.rank ? a.rank < b.rank : a.at < b.at;
}

static int push(text_word *w, word_pair pair, dcp_error *err) {
    const int status = grow((void **)&w->pairs, w->n_pairs, &w->pairs_room, sizeof *w->pairs, err);
    if (status) return status;
    size_t at = w->n_pairs++;
    for (; at && is_before(pair, w->pairs[(at - 1) / 2]); at = (at - 1) / 2)
        w->pairs[at] = w->pairs[(at - 1) / 2];
    w->pairs[at] = pair;
    return DCP_OK;
}

static word_pair pop(text_word *w) {
    const word_pair first = w->pairs[0], last = w->pairs[--w->n_pairs];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < w->n_pairs; at = child) {
        if (child + 1 < w->n_pairs && is_before(w->pairs[child + 1], w->pairs[child])) child++;
        if (!is_before(w->pairs[child], last)) break;
        w->pairs[at] = w->pairs[child];
    }
    w->pairs[at] = last;
    return first;
}

/* The merge of the symbol at `at` and the next one, if any. */
static const merge_row *merge_at(const merge_table *t, const text_word *w, int32_t at) {
    if (at < 0 || w->symbols[at].next < 0) return NULL;
    const word_symbol *left = &w->symbols[at], *right = &w->symbols[left->next];
    const merge_row *row = row_of_pair(t, left->id, right->id);
    return row->left >= 0 ? row : NULL;
}

static int push_at(const merge_table *t, text_word *w, int32_t at, dcp_error *err) {
    const merge_row *row = merge_at(t, w, at);
    return row ? push(w, (word_pair){row->rank, at, row->id}, err) : DCP_OK;
}

static void join(text_word *w, int32_t at, int32_t id) {
    word_symbol *left = &w->symbols[at], *right = &w->symbols[left->next];
    left->id = id;
    left->next = right->next;
    right->id = -1;
    if (left->next >= 0) w->symbols[left->next].previous = at;
}

int text_merges_apply(const merge_table *t, text_word *w, dcp_error *err) {
    int status = DCP_OK;
    w->n_pairs = 0;
    for (size_t i = 0; i + 1 < w->n && !status; i++) status = push_at(t, w, (int32_t)i, err);
    while (w->n_pairs && !status) {
        const word_pair pair = pop(w);
        if (w->symbols[pair.at].id < 0) continue;
        const merge_row *row = merge_at(t, w, pair.at);
        if (!row || row->id != pair.id) continue;
        join(w, pair.at, row->id);
        status = push_at(t, w, w->symbols[pair.at].previous, err);
        if (!status) status = push_at(t, w, pair.at, err);
    }
    return status;
}
