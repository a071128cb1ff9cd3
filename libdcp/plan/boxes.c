/* Boxes travel to the home ranks of their tensors, verdicts come back (plan.h). On the wire a box
 * is u64s: tensor, holder, start and count of each dimension. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/exchange.h"
#include "core/box.h"
#include "core/bytes.h"
#include "core/cover.h"
#include "core/fail.h"
#include "plan/plan.h"

typedef struct home_box {
    size_t tensor;
    size_t answer; /* its place in the message back */
    cover_box cover;
} home_box;

typedef struct home {
    home_box *boxes;
    size_t n;
    uint32_t *answers; /* a box: 2 * keeper's rank, + 1 where it is the one kept */
    uint64_t *answer_bytes;
} home;

static uint32_t wire_words(const state_tensor *t) { return 2 + 2 * box_dims(t->tensor.ndim); }

static int collect(const dcp_comm *comm, state_tensor *const *sorted, size_t n, plan_boxes *plan) {
    size_t total = 0;
    for (size_t i = 0; i < n; i++) total += sorted[i]->n_boxes;
    plan->boxes = calloc(total + 1, sizeof *plan->boxes);
    plan->exact = calloc(n + 8, 1);
    if (!plan->boxes || !plan->exact) return 0;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < sorted[i]->n_boxes; k++) {
            const state_box *box = &sorted[i]->boxes[k];
            int rank = box->rank < 0 ? comm->rank : box->rank;
            plan->boxes[plan->n++] = (plan_box){.tensor = i, .box = box, .rank = rank};
        }
    return 1;
}

/* The boxes' numbers ordered by home: a counting sort. starts[r] is the first of home r. */
static size_t *order_by_home(const plan_boxes *plan, int size, size_t *starts) {
    size_t *order = malloc((plan->n + 1) * sizeof *order), n = (size_t)size;
    if (!order) return NULL;
    memset(starts, 0, (n + 1) * sizeof *starts);
    for (size_t i = 0; i < plan->n; i++) starts[plan->boxes[i].tensor % n + 1]++;
    for (size_t r = 0; r < n; r++) starts[r + 1] += starts[r];
    for (size_t i = 0; i < plan->n; i++) order[starts[plan->boxes[i].tensor % n]++] = i;
    for (size_t r = n; r > 0; r--) starts[r] = starts[r - 1];
    starts[0] = 0;
    return order;
}

static int pack_box(const state_tensor *t, const plan_box *b, comm_message *out) {
    uint32_t dims = box_dims(t->tensor.ndim);
    unsigned char *at = comm_append(out, 8ULL * wire_words(t));
    if (!at) return 0;
    uint64_t head[2] = {b->tensor, (uint64_t)b->rank};
    memcpy(at, head, sizeof head);
    memcpy(at + 16, b->box->box.start, 8ULL * dims);
    memcpy(at + 16 + 8ULL * dims, b->box->box.count, 8ULL * dims);
    return 1;
}

/* *order_out: the boxes' numbers in the order in which they go out. */
static int pack(state_tensor *const *sorted, const plan_boxes *plan, int size, comm_message *out,
                uint64_t *bytes, size_t **order_out) {
    size_t *starts = malloc(((size_t)size + 1) * sizeof *starts);
    size_t *order = starts ? order_by_home(plan, size, starts) : NULL;
    int ok = order != NULL;
    for (int r = 0; r < size && ok; r++) {
        uint64_t before = out->bytes;
        for (size_t i = starts[r]; i < starts[r + 1] && ok; i++) {
            const plan_box *b = &plan->boxes[order[i]];
            ok = pack_box(sorted[b->tensor], b, out);
        }
        bytes[r] = out->bytes - before;
    }
    free(starts);
    *order_out = order;
    return ok;
}

static int unpack(state_tensor *const *sorted, const comm_message *in, const uint64_t *bytes,
                  int size, home *h) {
    h->boxes = calloc(in->bytes / 32 + 1, sizeof *h->boxes); /* a box takes 32 bytes at least */
    h->answers = calloc(in->bytes / 32 + 1, sizeof *h->answers);
    h->answer_bytes = calloc((size_t)size, sizeof *h->answer_bytes);
    if (!h->boxes || !h->answers || !h->answer_bytes) return 0;
    const unsigned char *at = in->data;
    for (int r = 0; r < size; r++)
        for (const unsigned char *end = at + bytes[r]; at < end;
             h->answer_bytes[r] += sizeof *h->answers) {
            uint64_t head[2];
            memcpy(head, at, sizeof head);
            uint32_t dims = box_dims(sorted[head[0]]->tensor.ndim);
            home_box *b = &h->boxes[h->n];
            *b = (home_box){.tensor = head[0], .answer = h->n, .cover.rank = (int)head[1]};
            memcpy(b->cover.box.start, at + 16, 8ULL * dims);
            memcpy(b->cover.box.count, at + 16 + 8ULL * dims, 8ULL * dims);
            at += 8ULL * wire_words(sorted[head[0]]);
            h->n++;
        }
    return 1;
}

static int by_tensor(const void *a, const void *b) {
    const home_box *x = a, *y = b;
    if (x->tensor != y->tensor) return x->tensor < y->tensor ? -1 : 1;
    return (x->answer > y->answer) - (x->answer < y->answer);
}

static int explain(const dcp_tensor *t, cover_result result, const cover_box *a, const cover_box *b,
                   dcp_error *err) {
    char first[300], second[300];
    if (result == COVER_MISSING) {
        shape_print(t->ndim, t->shape, first, sizeof first);
        return core_fail(err, DCP_ERR_MISMATCH,
                         "tensor %s of shape %s: some of its elements are in no rank's box",
                         t->path, first);
    }
    box_print(box_dims(t->ndim), &a->box, first, sizeof first);
    box_print(box_dims(t->ndim), &b->box, second, sizeof second);
    return core_fail(err, DCP_ERR_MISMATCH,
                     "tensor %s: box %s of rank %d and box %s of rank %d overlap", t->path, first,
                     a->rank, second, b->rank);
}

/* Judges the tensors whose home this rank is. */
static int judge(const dcp_comm *comm, state_tensor *const *sorted, size_t n, home *h, int strict,
                 unsigned char *exact, dcp_error *err) {
    qsort(h->boxes, h->n, sizeof *h->boxes, by_tensor);
    cover_box *boxes = malloc((h->n + 1) * sizeof *boxes);
    int status = boxes ? DCP_OK : core_fail_memory(err, h->n * sizeof *boxes);
    size_t at = 0;
    for (size_t i = (size_t)comm->rank; i < n && !status; i += (size_t)comm->size) {
        size_t count = 0, first = 0, second = 0;
        for (; at + count < h->n && h->boxes[at + count].tensor == i; count++) {
            boxes[count] = h->boxes[at + count].cover;
            boxes[count].tag = h->boxes[at + count].answer;
        }
        at += count;
        const dcp_tensor *t = &sorted[i]->tensor;
        cover_result result = sorted[i]->bytes
                                  ? cover_check(t->ndim, t->shape, boxes, count, &first, &second)
                                  : COVER_EXACT;
        exact[i] = result == COVER_EXACT;
        if (strict && !exact[i]) status = explain(t, result, &boxes[first], &boxes[second], err);
        for (size_t k = 0; k < count; k++)
            h->answers[boxes[k].tag] =
                2 * (uint32_t)boxes[k].keeper_rank + (uint32_t)boxes[k].keeper;
    }
    free(boxes);
    return status;
}

/* Verdicts come back in the order in which boxes went out. */
static void read_answers(plan_boxes *plan, const size_t *order, const unsigned char *answers) {
    for (size_t i = 0; i < plan->n; i++) {
        uint32_t answer = get_u32(answers + i * sizeof answer);
        plan->boxes[order[i]].keeper = answer & 1;
        plan->boxes[order[i]].keeper_rank = (int)(answer >> 1);
    }
}

/* Each home knows its own tensors' verdicts; XOR joins them. */
static int share_exact(dcp_comm *comm, plan_boxes *plan, size_t n, dcp_error *err) {
    size_t words = (n + 7) / 8;
    uint64_t *all = calloc(words + 1, sizeof *all);
    int status = comm_agree(comm, all ? DCP_OK : core_fail_memory(err, words * 8), err);
    if (status) goto free_all;
    memcpy(all, plan->exact, n);
    status = comm_allreduce(comm, all, words, DCP_REDUCE_XOR, err);
    if (!status) memcpy(plan->exact, all, n);
free_all:
    free(all);
    return status;
}

int plan_exchange(dcp_comm *comm, state_tensor *const *sorted, size_t n, int strict,
                  plan_boxes *out, dcp_error *err) {
    plan_boxes plan = {0};
    home h = {0};
    comm_message send = {0}, receive = {0}, answers = {0};
    uint64_t *bytes = calloc(2 * (size_t)comm->size, sizeof *bytes);
    uint64_t *received = bytes ? bytes + comm->size : NULL;
    size_t *order = NULL;
    int status = DCP_OK;
    if (!bytes || !collect(comm, sorted, n, &plan) ||
        !pack(sorted, &plan, comm->size, &send, bytes, &order))
        status = core_fail_memory(err, send.bytes + n);
    status = comm_agree(comm, status, err);
    if (!status) status = comm_exchange(comm, &send, bytes, &receive, received, err);
    if (status) goto free_all;
    if (!unpack(sorted, &receive, received, comm->size, &h))
        status = core_fail_memory(err, receive.bytes);
    else
        status = judge(comm, sorted, n, &h, strict, plan.exact, err);
    status = comm_agree(comm, status, err);
    if (status) goto free_all;
    comm_message back = {.data = (unsigned char *)h.answers};
    status = comm_exchange(comm, &back, h.answer_bytes, &answers, received, err);
    if (status) goto free_all;
    read_answers(&plan, order, answers.data);
    status = share_exact(comm, &plan, n, err);
free_all:
    free(order);
    free(answers.data);
    free(receive.data);
    free(send.data);
    free(bytes);
    free(h.boxes);
    free(h.answers);
    free(h.answer_bytes);
    if (status)
        plan_boxes_free(&plan);
    else
        *out = plan;
    return status;
}

void plan_boxes_free(plan_boxes *plan) {
    free(plan->boxes);
    free(plan->exact);
    *plan = (plan_boxes){0};
}
