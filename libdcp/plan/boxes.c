/* Boxes travel to the arbiters of their tensors, and answers come back. A box is sent as u64s: the
 * tensor's number; the holder's rank, with the number of dimensions in the upper half; start and
 * count of each dimension. */
#include "plan/boxes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/message.h"
#include "core/box.h"
#include "core/cover.h"
#include "core/fail.h"
#include "plan/agreement.h"

enum { KEPT = 1, REPLICATED = 2, ANSWER_RANK = 2 /* bits below the rank */ };

/* Bits of plan_boxes.exact while it is shared. */
enum { EXACT = 1, HAS_REPLICAS = 2 };

typedef struct arbiter_box {
    const unsigned char *wire; /* the box as it came */
    size_t answer;             /* its place in the message back */
} arbiter_box;

/* What came to this rank as an arbiter; zeroed at first. */
typedef struct arbiter {
    arbiter_box *boxes; /* by tensor; within one as they came */
    size_t n;
    size_t *starts; /* of each of this arbiter's tensors in `boxes`, and the end */
    size_t most;    /* boxes of a tensor */
    uint32_t
        *answers;   /* a box, as they came: KEPT and REPLICATED, and above them the keeper's rank */
    uint32_t *sets; /* a box, as they came: number of its set of equal boxes from 1 on; 0: alone */
    uint32_t n_sets;
    uint64_t *answer_bytes; /* to each rank */
} arbiter;

static uint64_t wire_bytes(uint32_t dims) { return 8 * (2 + 2 * (uint64_t)dims); }

/* The next box of a message; *tensor is its number. */
static const unsigned char *next_box(const unsigned char *at, size_t *tensor) {
    uint64_t head[2];
    memcpy(head, at, sizeof head);
    *tensor = head[0];
    return at + wire_bytes((uint32_t)(head[1] >> 32));
}

/* Counts the boxes of each of this arbiter's tensors; tensor i is number i / size of them. */
static int count_boxes(size_t n, const comm_message *in, const uint64_t *bytes, int size,
                       arbiter *a) {
    size_t mine = n / (size_t)size + 1, tensor;
    a->starts = calloc(mine + 1, sizeof *a->starts);
    a->answer_bytes = calloc((size_t)size, sizeof *a->answer_bytes);
    if (!a->starts || !a->answer_bytes) return 0;
    const unsigned char *at = in->data;
    for (int r = 0; r < size; r++)
        for (const unsigned char *end = at + bytes[r]; at < end; a->n++) {
            at = next_box(at, &tensor);
            a->starts[tensor / (size_t)size + 1]++;
            a->answer_bytes[r] += sizeof *a->answers;
        }
    for (size_t i = 1; i <= mine; i++) {
        if (a->starts[i] > a->most) a->most = a->starts[i];
        a->starts[i] += a->starts[i - 1];
    }
    return 1;
}

/* Orders the boxes of `in`, bytes[r] of which came from rank r, by tensor, of n in all: a counting
 * sort. `a` borrows them: `in` stays until they are judged. 0 where memory is short. */
static int unpack_boxes(size_t n, const comm_message *in, const uint64_t *bytes, int size,
                        arbiter *a) {
    if (!count_boxes(n, in, bytes, size, a)) return 0;
    a->boxes = malloc((a->n + 1) * sizeof *a->boxes);
    a->answers = calloc(a->n + 1, sizeof *a->answers);
    a->sets = calloc(a->n + 1, sizeof *a->sets);
    if (!a->boxes || !a->answers || !a->sets) return 0;
    size_t tensor, mine = n / (size_t)size + 1;
    const unsigned char *at = in->data;
    for (size_t i = 0; i < a->n; i++) {
        const unsigned char *after = next_box(at, &tensor);
        a->boxes[a->starts[tensor / (size_t)size]++] = (arbiter_box){at, i};
        at = after;
    }
    for (size_t i = mine; i > 0; i--) a->starts[i] = a->starts[i - 1];
    a->starts[0] = 0;
    return 1;
}

static cover_box unpack_box(const arbiter_box *b, uint32_t dims) {
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
    return core_fail_tensor(
        core_fail(err, DCP_ERR_MISMATCH,
                  "tensor %s of shape %s: its elements %s are in no rank's box; boxes of it are "
                  "on %s",
                  t->path, shape, elements, holders),
        t->path, err);
}

static int explain_overlap(const dcp_tensor *t, const cover_box *a, const cover_box *b,
                           dcp_error *err) {
    char first[300], second[300];
    if (a == b)
        return core_fail_tensor(
            core_fail(err, DCP_ERR_MISMATCH, "tensor %s: of its boxes some overlap", t->path),
            t->path, err);
    core_box_print(core_box_dims(t->ndim), &a->box, first, sizeof first);
    core_box_print(core_box_dims(t->ndim), &b->box, second, sizeof second);
    core_fail(err, DCP_ERR_MISMATCH, "tensor %s: box %s of rank %d and box %s of rank %d overlap",
              t->path, first, a->rank, second, b->rank);
    core_fail_rank(DCP_ERR_MISMATCH, a->rank < b->rank ? a->rank : b->rank, err);
    if (a->rank != b->rank)
        core_fail_rank(DCP_ERR_MISMATCH, a->rank < b->rank ? b->rank : a->rank, err);
    return core_fail_tensor(DCP_ERR_MISMATCH, t->path, err);
}

static int order_by_box(const void *a, const void *b) {
    return memcmp(&((const cover_box *)a)->box, &((const cover_box *)b)->box, sizeof(dcp_box));
}

/* Numbers the sets of equal boxes of a tensor that is covered; 1 where there are any. */
static int find_replicas(arbiter *a, cover_box *boxes, size_t n) {
    size_t kept = 0;
    for (size_t k = 0; k < n; k++) kept += boxes[k].keeper != 0;
    if (kept == n) return 0;
    qsort(boxes, n, sizeof *boxes, order_by_box);
    for (size_t k = 1; k < n; k++) {
        uint32_t *before = &a->sets[boxes[k - 1].tag];
        if (order_by_box(&boxes[k - 1], &boxes[k])) continue;
        if (!*before) *before = ++a->n_sets;
        a->sets[boxes[k].tag] = *before;
    }
    return 1;
}

/* Fills in the answers, and in exact[n] a 1 for each tensor of this arbiter that its boxes cover
 * once. Where `strict`, one that they don't is DCP_ERR_MISMATCH. Not collective. */
static int judge_tensors(const dcp_comm *comm, state_tensor *const *sorted, size_t n, arbiter *a,
                         int strict, unsigned char *exact, dcp_error *err) {
    cover_box *boxes = malloc((a->most + 1) * sizeof *boxes);
    int status = boxes ? DCP_OK : core_fail_memory(err, a->most * sizeof *boxes);
    for (size_t i = (size_t)comm->rank; i < n && !status; i += (size_t)comm->size) {
        const size_t *start = a->starts + i / (size_t)comm->size;
        size_t count = start[1] - start[0], first = 0, second = 0;
        const dcp_tensor *t = &sorted[i]->tensor;
        for (size_t k = 0; k < count; k++)
            boxes[k] = unpack_box(&a->boxes[start[0] + k], core_box_dims(t->ndim));
        cover_result result =
            sorted[i]->bytes ? core_cover_check(t->ndim, t->shape, boxes, count, &first, &second)
                             : COVER_EXACT;
        exact[i] = result == COVER_EXACT ? EXACT : 0;
        if (strict && result == COVER_MISSING) status = explain_hole(t, boxes, count, err);
        if (strict && result == COVER_OVERLAP)
            status = explain_overlap(t, &boxes[first], &boxes[second], err);
        if (strict && exact[i] && find_replicas(a, boxes, count)) exact[i] |= HAS_REPLICAS;
        for (size_t k = 0; k < count; k++)
            a->answers[boxes[k].tag] = (uint32_t)boxes[k].keeper_rank << ANSWER_RANK |
                                       (a->sets[boxes[k].tag] ? REPLICATED : 0) |
                                       (boxes[k].keeper ? KEPT : 0);
    }
    free(boxes);
    return status;
}

static void free_arbiter(arbiter *a) {
    free(a->boxes);
    free(a->starts);
    free(a->answers);
    free(a->sets);
    free(a->answer_bytes);
}

/* From here on: what each rank does as a holder of boxes. First it lists them. */
static int list_boxes(const dcp_comm *comm, state_tensor *const *sorted, size_t n, size_t total,
                      plan_boxes *plan) {
    plan->boxes = calloc(total + 1, sizeof *plan->boxes);
    plan->exact = calloc(n + 8, 1);
    if (!plan->boxes || !plan->exact) return 0;
    for (size_t i = 0; i < n; i++) {
        core_state_prefetch(sorted, n, i);
        for (size_t k = 0; k < sorted[i]->n_boxes; k++) {
            const state_box *box = &sorted[i]->boxes[k];
            int rank = box->rank < 0 ? comm->rank : box->rank;
            plan->boxes[plan->n++] = (plan_box){.tensor = i, .box = box, .rank = rank};
        }
    }
    return 1;
}

/* The boxes' numbers ordered by arbiter: a counting sort. */
static size_t *order_by_arbiter(const plan_boxes *plan, int size) {
    size_t n = (size_t)size, *order = malloc((plan->n + 1) * sizeof *order);
    size_t *next = calloc(n + 1, sizeof *next);
    for (size_t i = 0; i < plan->n && next; i++) next[plan->boxes[i].tensor % n + 1]++;
    for (size_t r = 0; r < n && next; r++) next[r + 1] += next[r];
    for (size_t i = 0; i < plan->n && order && next; i++)
        order[next[plan->boxes[i].tensor % n]++] = i;
    if (!next) {
        free(order);
        order = NULL;
    }
    free(next);
    return order;
}

/* Answers come back in the order in which the boxes went out. */
static void read_answers(plan_boxes *plan, const size_t *order, const uint32_t *answers) {
    for (size_t i = 0; i < plan->n; i++) {
        plan->boxes[order[i]].keeper = answers[i] & KEPT;
        plan->boxes[order[i]].replicated = (answers[i] & REPLICATED) != 0;
        plan->boxes[order[i]].keeper_rank = (int)(answers[i] >> ANSWER_RANK);
    }
}

/* Each arbiter knows whether its own tensors are covered; XOR joins what they know. */
static int share_exact(dcp_comm *comm, plan_boxes *plan, size_t n, dcp_error *err) {
    size_t words = (n + 7) / 8;
    uint64_t *all = calloc(words + 1, sizeof *all);
    int status = comm_agree(comm, all ? DCP_OK : core_fail_memory(err, words * 8), err);
    if (status) goto free_all;
    memcpy(all, plan->exact, n);
    status = comm_allreduce(comm, all, words, DCP_REDUCE_XOR, err);
    for (size_t i = 0; i < n && !status; i++) {
        const unsigned char bits = ((unsigned char *)all)[i];
        plan->exact[i] = bits & EXACT;
        plan->has_replicas |= (bits & HAS_REPLICAS) != 0;
    }
free_all:
    free(all);
    return status;
}

typedef struct question {
    comm_message send, receive;
    uint64_t *bytes, *received; /* a rank */
    size_t *order;              /* the boxes' numbers as they went out */
    uint32_t *answers;          /* to them */
    uint64_t *answer_bytes;     /* from each rank */
    arbiter arbiter;
} question;

static unsigned char *pack_box(const state_tensor *t, const plan_box *b, unsigned char *at) {
    uint32_t dims = core_box_dims(t->tensor.ndim);
    uint64_t head[2] = {b->tensor, (uint64_t)b->rank | (uint64_t)dims << 32};
    memcpy(at, head, sizeof head);
    memcpy(at + 16, b->box->box.start, 8ULL * dims);
    memcpy(at + 16 + 8ULL * dims, b->box->box.count, 8ULL * dims);
    return at + wire_bytes(dims);
}

/* The boxes, how much goes to each arbiter, and how much each will answer. */
static size_t count_out(state_tensor *const *sorted, size_t n, int size, question *t) {
    size_t total = 0;
    for (size_t i = 0; i < n; i++) {
        core_state_prefetch(sorted, n, i);
        size_t to = i % (size_t)size, boxes = sorted[i]->n_boxes;
        t->bytes[to] += boxes * wire_bytes(core_box_dims(sorted[i]->tensor.ndim));
        t->answer_bytes[to] += boxes * sizeof *t->answers;
        total += boxes;
    }
    return total;
}

/* The message to the arbiters. */
static int pack_boxes(state_tensor *const *sorted, const plan_boxes *plan, int size, question *t) {
    uint64_t total = 0;
    for (int r = 0; r < size; r++) total += t->bytes[r];
    t->order = order_by_arbiter(plan, size);
    unsigned char *at = comm_message_append(&t->send, total);
    for (size_t i = 0; i < plan->n && at && t->order; i++) {
        const plan_box *b = &plan->boxes[t->order[i]];
        if (i + PREFETCH_DISTANCE < plan->n)
            core_state_prefetch_one(sorted[plan->boxes[t->order[i + PREFETCH_DISTANCE]].tensor]);
        at = pack_box(sorted[b->tensor], b, at);
    }
    return at && t->order;
}

static int prepare_question(dcp_comm *comm, state_tensor *const *sorted, size_t n, plan_boxes *plan,
                            question *t, dcp_error *err) {
    size_t size = (size_t)comm->size;
    t->bytes = calloc(3 * size, sizeof *t->bytes);
    if (!t->bytes) return core_fail_memory(err, 3 * size * sizeof *t->bytes);
    t->received = t->bytes + size;
    t->answer_bytes = t->received + size;
    if (!list_boxes(comm, sorted, n, count_out(sorted, n, comm->size, t), plan))
        return core_fail_memory(err, n);
    t->answers = malloc((plan->n + 1) * sizeof *t->answers);
    if (!t->answers || !pack_boxes(sorted, plan, comm->size, t))
        return core_fail_memory(err, plan->n);
    return DCP_OK;
}

/* Boxes to their arbiters, verdicts back. */
static int ask_arbiters(dcp_comm *comm, state_tensor *const *sorted, size_t n, int strict,
                        plan_boxes *plan, question *t, dcp_error *err) {
    int status = comm_message_exchange(comm, &t->send, t->bytes, &t->receive, t->received, err);
    if (status) return status;
    if (!unpack_boxes(n, &t->receive, t->received, comm->size, &t->arbiter))
        status = core_fail_memory(err, t->receive.bytes);
    else
        status = judge_tensors(comm, sorted, n, &t->arbiter, strict, plan->exact, err);
    status = comm_agree(comm, status, err);
    if (status) return status;
    status = comm_alltoall(comm, t->arbiter.answers, t->arbiter.answer_bytes, t->answers,
                           t->answer_bytes, err);
    if (!status) read_answers(plan, t->order, t->answers);
    return status;
}

/* Holder's and arbiter's side of the comparison, of the boxes that have replicas. */
static int list_replicas(const question *t, int size, plan_boxes *plan) {
    plan_replicas *r = &plan->replicas;
    size_t ranks = (size_t)size;
    r->told = malloc((plan->n + 1) * sizeof *r->told);
    r->sets = malloc((t->arbiter.n + 1) * sizeof *r->sets);
    r->to_arbiters = calloc(2 * ranks, sizeof *r->to_arbiters);
    if (!r->told || !r->sets || !r->to_arbiters) return 0;
    r->from_holders = r->to_arbiters + ranks;
    for (size_t i = 0; i < plan->n; i++) {
        const plan_box *b = &plan->boxes[t->order[i]];
        if (!b->replicated) continue;
        r->told[r->n_told++] = t->order[i];
        r->to_arbiters[b->tensor % ranks] += sizeof(uint64_t);
    }
    for (size_t rank = 0, k = 0; rank < ranks; rank++)
        for (size_t end = k + t->arbiter.answer_bytes[rank] / sizeof *t->answers; k < end; k++) {
            if (!t->arbiter.sets[k]) continue;
            r->sets[r->n_heard++] = t->arbiter.sets[k] - 1;
            r->from_holders[rank] += sizeof(uint64_t);
        }
    r->n_sets = t->arbiter.n_sets;
    return 1;
}

static void free_question(question *t) {
    free(t->order);
    free(t->answers);
    free(t->receive.data);
    free(t->send.data);
    free(t->bytes);
    free_arbiter(&t->arbiter);
}

int plan_exchange(dcp_comm *comm, state_tensor *const *sorted, size_t n, int strict,
                  plan_boxes *out, dcp_error *err) {
    plan_boxes plan = {0};
    question t = {0};
    int status = comm_agree(comm, prepare_question(comm, sorted, n, &plan, &t, err), err);
    if (!status) status = ask_arbiters(comm, sorted, n, strict, &plan, &t, err);
    if (!status) status = share_exact(comm, &plan, n, err);
    if (!status && plan.has_replicas)
        status = comm_agree(
            comm, list_replicas(&t, comm->size, &plan) ? DCP_OK : core_fail_memory(err, plan.n),
            err);
    free_question(&t);
    if (status)
        plan_boxes_free(&plan);
    else
        *out = plan;
    return status;
}

void plan_boxes_free(plan_boxes *plan) {
    free(plan->boxes);
    free(plan->exact);
    free(plan->replicas.told);
    free(plan->replicas.sets);
    free(plan->replicas.to_arbiters);
    *plan = (plan_boxes){0};
}
