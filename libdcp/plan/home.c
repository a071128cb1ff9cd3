/* A home's part of plan_exchange: it takes the boxes of its tensors from all ranks, looks whether
 * they cover each tensor once, and chooses the keeper of each set of equal boxes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/box.h"
#include "core/cover.h"
#include "core/fail.h"
#include "plan/home.h"
#include "plan/plan.h"

typedef struct home_box {
    const unsigned char *wire; /* the box as it came */
    size_t answer;             /* its place in the message back */
} home_box;

/* The next box of a message; *tensor is its number. */
static const unsigned char *next_box(const unsigned char *at, size_t *tensor) {
    uint64_t head[2];
    memcpy(head, at, sizeof head);
    *tensor = head[0];
    return at + home_wire_bytes((uint32_t)(head[1] >> 32));
}

/* Counts the boxes of each of this home's tensors; tensor i is number i / size of them. */
static int count_boxes(size_t n, const comm_message *in, const uint64_t *bytes, int size, home *h) {
    size_t mine = n / (size_t)size + 1, tensor;
    h->starts = calloc(mine + 1, sizeof *h->starts);
    h->answer_bytes = calloc((size_t)size, sizeof *h->answer_bytes);
    if (!h->starts || !h->answer_bytes) return 0;
    const unsigned char *at = in->data;
    for (int r = 0; r < size; r++)
        for (const unsigned char *end = at + bytes[r]; at < end; h->n++) {
            at = next_box(at, &tensor);
            h->starts[tensor / (size_t)size + 1]++;
            h->answer_bytes[r] += sizeof *h->answers;
        }
    for (size_t i = 1; i <= mine; i++) {
        if (h->starts[i] > h->most) h->most = h->starts[i];
        h->starts[i] += h->starts[i - 1];
    }
    return 1;
}

/* By tensor: a counting sort. */
int home_unpack(size_t n, const comm_message *in, const uint64_t *bytes, int size, home *h) {
    if (!count_boxes(n, in, bytes, size, h)) return 0;
    h->boxes = malloc((h->n + 1) * sizeof *h->boxes);
    h->answers = calloc(h->n + 1, sizeof *h->answers);
    if (!h->boxes || !h->answers) return 0;
    size_t tensor, mine = n / (size_t)size + 1;
    const unsigned char *at = in->data;
    for (size_t i = 0; i < h->n; i++) {
        const unsigned char *after = next_box(at, &tensor);
        h->boxes[h->starts[tensor / (size_t)size]++] = (home_box){at, i};
        at = after;
    }
    for (size_t i = mine; i > 0; i--) h->starts[i] = h->starts[i - 1];
    h->starts[0] = 0;
    return 1;
}

static cover_box read_box(const home_box *b, uint32_t dims) {
    uint64_t head[2];
    cover_box box = {.tag = b->answer};
    memcpy(head, b->wire, sizeof head);
    box.rank = (int)(uint32_t)head[1];
    memcpy(box.box.start, b->wire + 16, 8ULL * dims);
    memcpy(box.box.count, b->wire + 16 + 8ULL * dims, 8ULL * dims);
    return box;
}

/* "ranks 0-2" that hold boxes. */
static void print_holders(const cover_box *boxes, size_t n, char *text, size_t size) {
    int ranks = 0;
    for (size_t i = 0; i < n; i++)
        if (boxes[i].rank >= ranks) ranks = boxes[i].rank + 1;
    unsigned char *member = calloc((size_t)ranks + 1, 1);
    snprintf(text, size, "no rank");
    if (!member) return;
    for (size_t i = 0; i < n; i++) member[boxes[i].rank] = 1;
    if (n) plan_ranks_print(member, ranks, text, size);
    free(member);
}

static int explain_hole(const dcp_tensor *t, const cover_box *boxes, size_t n, dcp_error *err) {
    char shape[300], elements[300], holders[120];
    dcp_box hole = core_cover_hole(t->ndim, t->shape, boxes, n);
    core_shape_print(t->ndim, t->shape, shape, sizeof shape);
    core_box_print(core_box_dims(t->ndim), &hole, elements, sizeof elements);
    print_holders(boxes, n, holders, sizeof holders);
    return core_fail(err, DCP_ERR_MISMATCH,
                     "tensor %s of shape %s: its elements %s are in no rank's box; boxes of it are "
                     "on %s",
                     t->path, shape, elements, holders);
}

static int explain_overlap(const dcp_tensor *t, const cover_box *a, const cover_box *b,
                           dcp_error *err) {
    char first[300], second[300];
    core_box_print(core_box_dims(t->ndim), &a->box, first, sizeof first);
    core_box_print(core_box_dims(t->ndim), &b->box, second, sizeof second);
    return core_fail(err, DCP_ERR_MISMATCH,
                     "tensor %s: box %s of rank %d and box %s of rank %d overlap", t->path, first,
                     a->rank, second, b->rank);
}

int home_judge(const dcp_comm *comm, state_tensor *const *sorted, size_t n, const home *h,
               int strict, unsigned char *exact, dcp_error *err) {
    cover_box *boxes = malloc((h->most + 1) * sizeof *boxes);
    int status = boxes ? DCP_OK : core_fail_memory(err, h->most * sizeof *boxes);
    for (size_t i = (size_t)comm->rank; i < n && !status; i += (size_t)comm->size) {
        const size_t *start = h->starts + i / (size_t)comm->size;
        size_t count = start[1] - start[0], first = 0, second = 0;
        const dcp_tensor *t = &sorted[i]->tensor;
        for (size_t k = 0; k < count; k++)
            boxes[k] = read_box(&h->boxes[start[0] + k], core_box_dims(t->ndim));
        cover_result result =
            sorted[i]->bytes ? core_cover_check(t->ndim, t->shape, boxes, count, &first, &second)
                             : COVER_EXACT;
        exact[i] = result == COVER_EXACT;
        if (strict && result == COVER_MISSING) status = explain_hole(t, boxes, count, err);
        if (strict && result == COVER_OVERLAP)
            status = explain_overlap(t, &boxes[first], &boxes[second], err);
        for (size_t k = 0; k < count; k++)
            h->answers[boxes[k].tag] =
                2 * (uint32_t)boxes[k].keeper_rank + (uint32_t)boxes[k].keeper;
    }
    free(boxes);
    return status;
}

void home_free(home *h) {
    free(h->boxes);
    free(h->starts);
    free(h->answers);
    free(h->answer_bytes);
}
