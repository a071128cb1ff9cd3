/* Each rank sends its boxes to the arbiters of their tensors, which send answers back. A box is
 * sent as u64s: the tensor's number; the holder's rank, with the number of dimensions in the upper
 * half; start and count of each dimension. */
#include "plan/boxes.h"

#include <assert.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/box.h"
#include "core/bytes.h"
#include "core/fail.h"

/* Bits of an answer: flags, then the number of holders, this holder's turn, and the keeper's
 * rank. */
enum {
    KEPT = 1,
    REPLICATED = 2,
    ANSWER_HOLDERS = 2,
    ANSWER_TURN = 17,
    ANSWER_RANK = 32,
    TURN_MASK = 0x7fff
};

/* The memory for incoming messages that is allocated before their size is known: READY_BYTES for
 * boxes, READY_BESIDE for the additional messages of homes. */
#define READY_BYTES ((uint64_t)768 << 10)
#define READY_BESIDE ((uint64_t)2 << 20)

/* The answers of a home end with the number of bytes of its additional message. IS_LONG is set in
 * this number if some rank gets more than its share of READY_BESIDE from the home. The number is
 * HAS_FAILED if the home has failed. */
#define IS_LONG (1ULL << 63)
#define HAS_FAILED UINT64_MAX

typedef struct arbiter_box {
    const unsigned char *wire; /* the box as it was received */
    size_t answer;             /* the index of its answer in the message that goes back */
} arbiter_box;

/* What this rank has received as an arbiter. Zeroed initially. */
typedef struct arbiter {
    const plan_homes *homes; /* NULL: no homes, and tensor i has number i / ranks at its arbiter */
    arbiter_box *boxes;      /* ordered by tensor, and within a tensor by arrival */
    size_t n;
    size_t *starts;    /* where each of this arbiter's tensors begins in `boxes`, and the end */
    size_t most;       /* the largest number of boxes of a tensor */
    uint64_t *answers; /* per box, in the order of arrival */
    uint32_t *sets;    /* per box, in the order of arrival: the number of its set of equal boxes,
                          starting at 1; 0: it is in no set */
    uint32_t n_sets;
    uint64_t *answer_bytes; /* size of the answers to each rank; the question owns the memory */
    /* Before the vote, these are about the tensors of this arbiter; after it, about all tensors. */
    bool all_exact;    /* the boxes cover all of the tensors exactly */
    bool has_replicas; /* some box has replicas */
} arbiter;

static uint64_t wire_bytes(uint32_t dims) { return 8 * (2 + 2 * (uint64_t)dims); }

const unsigned char *plan_box_next(const unsigned char *at, size_t *tensor, uint32_t *dims,
                                   const unsigned char **start) {
    uint64_t head[2];
    memcpy(head, at, sizeof head);
    *tensor = head[0];
    *dims = (uint32_t)(head[1] >> 32);
    *start = at + sizeof head;
    return at + wire_bytes(*dims);
}

static const unsigned char *next_box(const unsigned char *at, size_t *tensor) {
    uint32_t dims;
    const unsigned char *start;
    return plan_box_next(at, tensor, &dims, &start);
}

static size_t arbiter_of(const plan_homes *homes, size_t tensor, int size) {
    return (homes ? homes->numbers[tensor] : tensor) % (size_t)size;
}

/* Returns the number of words that follow the answers to a rank's boxes. If tensors have homes,
 * this is one word: the number of bytes that the home sends in addition. */
static size_t words_of_homes(const plan_homes *homes) { return homes ? 1 : 0; }

/* Counts the boxes from each rank, and the bytes of the answers to it. */
static void count_boxes(const comm_buffer *in, const uint64_t *bytes, int size, arbiter *a) {
    const unsigned char *at = in->data;
    size_t tensor;
    for (int r = 0; r < size; r++) {
        a->answer_bytes[r] = words_of_homes(a->homes) * sizeof *a->answers;
        for (const unsigned char *end = at + bytes[r]; at < end; a->n++) {
            at = next_box(at, &tensor);
            a->answer_bytes[r] += sizeof *a->answers;
        }
    }
}

/* Returns a tensor's place in `starts`. */
static size_t slot_of(const arbiter *a, size_t tensor, int size) {
    return a->homes ? tensor : tensor / (size_t)size;
}

/* Finds where the boxes of each of this arbiter's tensors begin. Returns false if memory is
 * short. */
static bool find_starts(size_t n, const comm_buffer *in, int size, arbiter *a) {
    size_t mine = slot_of(a, n, size) + 1, tensor;
    a->starts = calloc(mine + 1, sizeof *a->starts);
    if (!a->starts) return false;
    const unsigned char *at = in->data;
    for (size_t i = 0; i < a->n; i++) {
        at = next_box(at, &tensor);
        a->starts[slot_of(a, tensor, size) + 1]++;
    }
    for (size_t i = 1; i <= mine; i++) {
        if (a->starts[i] > a->most) a->most = a->starts[i];
        a->starts[i] += a->starts[i - 1];
    }
    return true;
}

/* Orders the boxes of `in` by tensor, with a counting sort. The boxes must have been counted; n is
 * the number of all tensors. `a` points into `in`, which must remain valid until the boxes are
 * judged. Returns false if memory is short. */
static bool unpack_boxes(size_t n, const comm_buffer *in, int size, arbiter *a) {
    if (!find_starts(n, in, size, a)) return false;
    const size_t beside = words_of_homes(a->homes), places = a->n + beside * (size_t)size;
    a->boxes = core_array(a->n + 1, sizeof *a->boxes);
    a->answers = calloc(places + 1, sizeof *a->answers);
    a->sets = calloc(places + 1, sizeof *a->sets);
    if (!a->boxes || !a->answers || !a->sets) return false;
    size_t tensor, mine = slot_of(a, n, size) + 1, place = 0;
    const unsigned char *at = in->data;
    for (int r = 0; r < size; r++, place += beside)
        for (size_t k = a->answer_bytes[r] / sizeof *a->answers - beside; k > 0; k--) {
            const unsigned char *after = next_box(at, &tensor);
            a->boxes[a->starts[slot_of(a, tensor, size)]++] = (arbiter_box){at, place++};
            at = after;
        }
    for (size_t i = mine; i > 0; i--) a->starts[i] = a->starts[i - 1];
    a->starts[0] = 0;
    return true;
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

/* Prints the ranks that hold boxes, such as "ranks 0-2". */
static void print_holders(const cover_box *boxes, size_t n, char *text, size_t size) {
    int ranks = 0;
    for (size_t i = 0; i < n; i++)
        if (boxes[i].rank >= ranks) ranks = boxes[i].rank + 1;
    unsigned char *member = calloc((size_t)ranks + 1, 1);
    snprintf(text, size, "no rank");
    if (!member) return;
    for (size_t i = 0; i < n; i++) member[boxes[i].rank] = 1;
    if (n) comm_ranks_print(member, ranks, text, size);
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
            core_fail(err, DCP_ERR_MISMATCH, "tensor %s: some of its boxes overlap", t->path),
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

static bool is_same_box(const cover_box *a, const cover_box *b) {
    return memcmp(&a->box, &b->box, sizeof a->box) == 0;
}

static int order_by_box(const void *a, const void *b) {
    const cover_box *x = a, *y = b;
    int order = memcmp(&x->box, &y->box, sizeof x->box);
    return order ? order : (x->rank > y->rank) - (x->rank < y->rank);
}

/* Makes a set of n equal boxes, which are ordered by rank, and gives each holder its turn. */
static void add_set(arbiter *a, const cover_box *boxes, size_t n) {
    uint64_t holders = n < PLAN_MAX_HOLDERS ? n : PLAN_MAX_HOLDERS;
    a->n_sets++;
    for (size_t k = 0; k < n; k++) {
        uint64_t turn = k < holders ? k : TURN_MASK;
        a->sets[boxes[k].tag] = a->n_sets;
        a->answers[boxes[k].tag] |=
            turn << ANSWER_TURN | holders << ANSWER_HOLDERS | (uint64_t)REPLICATED;
    }
}

/* Numbers the sets of equal boxes of a tensor that is covered. Returns true if there are any. */
static bool find_replicas(arbiter *a, cover_box *boxes, size_t n) {
    size_t kept = 0;
    for (size_t k = 0; k < n; k++) kept += boxes[k].keeper != 0;
    if (kept == n) return false;
    qsort(boxes, n, sizeof *boxes, order_by_box);
    for (size_t k = 0, end; k < n; k = end) {
        for (end = k + 1; end < n && is_same_box(&boxes[k], &boxes[end]);) end++;
        if (end > k + 1) add_set(a, boxes + k, end - k);
    }
    return true;
}

/* Fills in the answers. Sets exact[i] to 1 for each tensor i of this arbiter that the ranks' boxes
 * cover exactly. If `strict`, returns DCP_ERR_MISMATCH for a tensor that they don't cover exactly.
 * Not collective. */
static int judge_tensors(const dcp_comm *comm, state_tensor *const *sorted, size_t n, arbiter *a,
                         bool strict, unsigned char *exact, dcp_error *err) {
    cover_box *boxes = core_array(a->most + 1, sizeof *boxes);
    int status = boxes ? DCP_OK : core_fail_memory(err, a->most * sizeof *boxes);
    const size_t rank = (size_t)comm->rank, step = a->homes ? 1 : (size_t)comm->size;
    for (size_t i = a->homes ? 0 : rank; i < n && !status; i += step) {
        if (arbiter_of(a->homes, i, comm->size) != rank) continue;
        const size_t *start = a->starts + slot_of(a, i, comm->size);
        size_t count = start[1] - start[0], first = 0, second = 0;
        const dcp_tensor *t = &sorted[i]->tensor;
        for (size_t k = 0; k < count; k++)
            boxes[k] = unpack_box(&a->boxes[start[0] + k], core_box_dims(t->ndim));
        cover_result result =
            sorted[i]->bytes ? core_cover_check(t->ndim, t->shape, boxes, count, &first, &second)
                             : COVER_EXACT;
        exact[i] = result == COVER_EXACT;
        if (!exact[i]) a->all_exact = false;
        if (strict && result == COVER_MISSING) status = explain_hole(t, boxes, count, err);
        if (strict && result == COVER_OVERLAP)
            status = explain_overlap(t, &boxes[first], &boxes[second], err);
        if (exact[i] && find_replicas(a, boxes, count)) a->has_replicas = true;
        for (size_t k = 0; k < count; k++)
            a->answers[boxes[k].tag] |=
                (uint64_t)boxes[k].keeper_rank << ANSWER_RANK | (boxes[k].keeper ? KEPT : 0);
    }
    free(boxes);
    return status;
}

static void free_arbiter(arbiter *a) {
    free(a->boxes);
    free(a->starts);
    free(a->answers);
    free(a->sets);
}

/* Each rank calls the following functions as a holder of boxes. This one lists the boxes. Returns
 * false if memory is short. */
static bool list_boxes(const dcp_comm *comm, state_tensor *const *sorted, size_t n, size_t total,
                       plan_boxes *plan) {
    plan->boxes = calloc(total + 1, sizeof *plan->boxes);
    plan->exact = calloc(n + 8, 1);
    if (!plan->boxes || !plan->exact) return false;
    for (size_t i = 0; i < n; i++) {
        core_state_prefetch(sorted, n, i);
        for (size_t k = 0; k < sorted[i]->n_boxes; k++) {
            const state_box *box = &sorted[i]->boxes[k];
            int rank = box->rank < 0 ? comm->rank : box->rank;
            plan->boxes[plan->n++] = (plan_box){.tensor = i, .box = box, .rank = rank};
        }
    }
    return true;
}

/* Returns the boxes' numbers sorted by arbiter, with a counting sort. */
static size_t *order_by_arbiter(const plan_boxes *plan, const plan_homes *homes, int size) {
    size_t n = (size_t)size, *order = core_array(plan->n + 1, sizeof *order);
    size_t *next = calloc(n + 1, sizeof *next);
    for (size_t i = 0; i < plan->n && next; i++)
        next[arbiter_of(homes, plan->boxes[i].tensor, size) + 1]++;
    for (size_t r = 0; r < n && next; r++) next[r + 1] += next[r];
    for (size_t i = 0; i < plan->n && order && next; i++)
        order[next[arbiter_of(homes, plan->boxes[i].tensor, size)]++] = i;
    if (!next) {
        free(order);
        order = NULL;
    }
    free(next);
    return order;
}

static void read_verdict(plan_box *b, uint64_t answer) {
    b->keeper = answer & KEPT;
    b->replicated = (answer & REPLICATED) != 0;
    b->turn = answer >> ANSWER_TURN & TURN_MASK;
    b->holders = answer >> ANSWER_HOLDERS & TURN_MASK;
    b->keeper_rank = (int)(answer >> ANSWER_RANK);
}

typedef struct question {
    comm_buffer send, receive;
    uint64_t *bytes, *received; /* number of bytes of boxes to and from each rank */
    size_t *order;              /* the boxes' numbers in the order in which they are sent */
    uint64_t *answers;          /* the answers to the boxes, in the memory of `send` */
    uint64_t *answer_bytes;     /* size of the answers from each rank */
    uint64_t *exact;            /* scratch memory to join plan->exact over ranks, in whole words */
    plan_homes *homes;          /* NULL: the tensors have no homes */
    uint64_t *spare; /* 2 words per rank, for the answers of a failed arbiter if they are few */
    arbiter arbiter;
} question;

/* Reads the answers, which arrive in the order in which the boxes were sent. */
static void read_answers(plan_boxes *plan, const question *t, int size) {
    const size_t beside = words_of_homes(t->homes);
    const uint64_t *answer = t->answers;
    const size_t *number = t->order;
    for (int r = 0; r < size; r++) {
        for (size_t k = t->answer_bytes[r] / sizeof *answer - beside; k > 0; k--)
            read_verdict(&plan->boxes[*number++], *answer++);
        if (beside) t->homes->in_bytes[r] = *answer++;
    }
}

static unsigned char *pack_box(const state_tensor *t, const plan_box *b, unsigned char *at) {
    uint32_t dims = core_box_dims(t->tensor.ndim);
    uint64_t head[2] = {b->tensor, (uint64_t)b->rank | (uint64_t)dims << 32};
    memcpy(at, head, sizeof head);
    memcpy(at + 16, b->box->box.start, 8ULL * dims);
    memcpy(at + 16 + 8ULL * dims, b->box->box.count, 8ULL * dims);
    return at + wire_bytes(dims);
}

/* Returns the number of this rank's boxes. Computes how many bytes this rank sends to each arbiter,
 * and the size of that arbiter's answers. */
static size_t count_out(state_tensor *const *sorted, size_t n, int size, question *t) {
    size_t total = 0;
    for (int r = 0; r < size; r++)
        t->answer_bytes[r] = words_of_homes(t->homes) * sizeof *t->answers;
    for (size_t i = 0; i < n; i++) {
        core_state_prefetch(sorted, n, i);
        size_t to = arbiter_of(t->homes, i, size), boxes = sorted[i]->n_boxes;
        t->bytes[to] += boxes * wire_bytes(core_box_dims(sorted[i]->tensor.ndim));
        t->answer_bytes[to] += boxes * sizeof *t->answers;
        total += boxes;
    }
    return total;
}

/* Makes the message to the arbiters. Returns false if memory is short. */
static bool pack_boxes(state_tensor *const *sorted, const plan_boxes *plan, int size, question *t) {
    uint64_t total = 0;
    for (int r = 0; r < size; r++) total += t->bytes[r];
    const uint64_t beside = words_of_homes(t->homes) * (uint64_t)size * sizeof *t->answers;
    t->order = order_by_arbiter(plan, t->homes, size);
    unsigned char *at = comm_buffer_append(&t->send, total + beside); /* has room for answers */
    t->send.bytes -= at ? beside : 0;
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
    const size_t lists = 4 + 2 * words_of_homes(t->homes);
    t->bytes = calloc(lists * size, sizeof *t->bytes);
    if (!t->bytes) return core_fail_memory(err, lists * size * sizeof *t->bytes);
    t->received = t->bytes + size;
    t->answer_bytes = t->received + size;
    t->arbiter.answer_bytes = t->answer_bytes + size;
    t->spare = t->arbiter.answer_bytes + size;
    t->arbiter.homes = t->homes;
    if (!list_boxes(comm, sorted, n, count_out(sorted, n, comm->size, t), plan))
        return core_fail_memory(err, n);
    t->exact = calloc((n + 7) / 8 + 1, sizeof *t->exact);
    if (!t->exact || !pack_boxes(sorted, plan, comm->size, t))
        return core_fail_memory(err, plan->n);
    if (t->homes && !comm_buffer_append(&t->homes->in, READY_BESIDE))
        return core_fail_memory(err, READY_BESIDE);
    return DCP_OK;
}

/* Called on each home. Makes the additional messages, and writes their lengths after the
 * answers. */
static int answer_with_homes(question *t, int size, dcp_error *err) {
    plan_homes *homes = t->homes;
    if (!homes) return DCP_OK;
    int status = homes->answer(homes->ctx, &t->receive, t->received, homes, err);
    uint64_t *end = t->arbiter.answers, mark = 0;
    for (int r = 0; r < size && !status; r++)
        if (homes->out_bytes[r] > READY_BESIDE / (uint64_t)size) mark = IS_LONG;
    for (int r = 0; r < size && !status; r++) {
        end += t->arbiter.answer_bytes[r] / sizeof *end;
        end[-1] = homes->out_bytes[r] | mark;
    }
    return status;
}

/* Called on each arbiter. Judges the boxes that it has received. */
static int answer_boxes(const dcp_comm *comm, state_tensor *const *sorted, size_t n, bool strict,
                        plan_boxes *plan, question *t, dcp_error *err) {
    t->arbiter.all_exact = true;
    if (!unpack_boxes(n, &t->receive, comm->size, &t->arbiter))
        return core_fail_memory(err, t->receive.bytes);
    int status = judge_tensors(comm, sorted, n, &t->arbiter, strict, plan->exact, err);
    return status ? status : answer_with_homes(t, comm->size, err);
}

/* When the boxes have been sent, keeps as much of their memory as the answers to them require, and
 * releases the rest. Boxes are larger than answers. */
static void keep_for_answers(question *t, int size) {
    uint64_t bytes = 0;
    for (int r = 0; r < size; r++) bytes += t->answer_bytes[r];
    unsigned char *less = realloc(t->send.data, bytes + 1);
    if (less) t->send.data = less;
    t->answers = (uint64_t *)(void *)t->send.data;
}

/* Returns the answers of an arbiter that has failed, which are zeros. They are written over the
 * received boxes or, if there are too few of these for the answers to fit, into t->spare. */
static const void *no_answers(const question *t, int size) {
    uint64_t bytes = 0;
    for (int r = 0; r < size; r++) bytes += t->arbiter.answer_bytes[r];
    uint64_t *zeros = bytes <= t->receive.bytes ? (uint64_t *)(void *)t->receive.data : t->spare;
    uint64_t *end = memset(zeros, 0, bytes);
    for (int r = 0; r < size && t->homes; r++) {
        end += t->arbiter.answer_bytes[r] / sizeof *end;
        end[-1] = HAS_FAILED;
    }
    return zeros;
}

/* Collective. Exchanges the additional messages of homes. `own` is this rank's status so far. */
static int exchange_with_homes(dcp_comm *comm, plan_homes *homes, int own, dcp_error *err) {
    uint64_t total = 0;
    bool is_long = false;
    for (int r = 0; r < comm->size; r++) {
        if (homes->in_bytes[r] == HAS_FAILED) return comm_agree(comm, own, err);
        is_long |= (homes->in_bytes[r] & IS_LONG) != 0;
        homes->in_bytes[r] &= ~IS_LONG;
        total += homes->in_bytes[r];
    }
    unsigned char *fits = realloc(homes->in.data, total + 1);
    if (fits) homes->in.data = fits;
    homes->in.bytes = total;
    if (is_long) own = comm_agree(comm, fits ? DCP_OK : core_fail_memory(err, total), err);
    if (own) return own;
    return comm_alltoall(comm, homes->out.data, homes->out_bytes, homes->in.data, homes->in_bytes,
                         err);
}

/* Collective. Sends the boxes to their arbiters, and receives the answers. *own becomes the status
 * of this rank as an arbiter. */
static int query_arbiters(dcp_comm *comm, int status, state_tensor *const *sorted, size_t n,
                          bool strict, plan_boxes *plan, question *t, int *own, dcp_error *err) {
    status = comm_buffer_agree_exchange(comm, status, READY_BYTES, &t->send, t->bytes, &t->receive,
                                        t->received, err);
    if (status) return status;
    keep_for_answers(t, comm->size);
    count_boxes(&t->receive, t->received, comm->size, &t->arbiter);
    *own = answer_boxes(comm, sorted, n, strict, plan, t, err);
    const void *answers = *own ? no_answers(t, comm->size) : t->arbiter.answers;
    status =
        comm_alltoall(comm, answers, t->arbiter.answer_bytes, t->answers, t->answer_bytes, err);
    if (status) return status;
    read_answers(plan, t, comm->size);
    return t->homes ? exchange_with_homes(comm, t->homes, *own, err) : DCP_OK;
}

/* Lists the boxes that have replicas, both those that this rank holds and those that it has
 * received as an arbiter, for the comparison of replicas. Returns false if memory is short. */
static bool list_replicas(const question *t, int size, plan_boxes *plan) {
    plan_replicas *r = &plan->replicas;
    size_t ranks = (size_t)size, sent = 0, received = 0;
    for (size_t i = 0; i < plan->n; i++) sent += plan->boxes[i].replicated;
    for (size_t i = 0; i < t->arbiter.n; i++) received += t->arbiter.sets[i] != 0;
    r->sent = core_array(sent + 1, sizeof *r->sent);
    r->sets = core_array(received + 1, sizeof *r->sets);
    r->to_arbiters = calloc(2 * ranks, sizeof *r->to_arbiters);
    if (!r->sent || !r->sets || !r->to_arbiters) return false;
    r->from_holders = r->to_arbiters + ranks;
    for (size_t i = 0; i < plan->n; i++) {
        const plan_box *b = &plan->boxes[t->order[i]];
        if (!b->replicated) continue;
        r->sent[r->n_sent++] = t->order[i];
        r->to_arbiters[b->tensor % ranks] += sizeof(uint64_t);
    }
    for (size_t rank = 0, k = 0; rank < ranks; rank++)
        for (size_t end = k + t->arbiter.answer_bytes[rank] / sizeof *t->answers; k < end; k++) {
            if (!t->arbiter.sets[k]) continue;
            r->sets[r->n_received++] = t->arbiter.sets[k] - 1;
            r->from_holders[rank] += sizeof(uint64_t);
        }
    r->n_sets = t->arbiter.n_sets;
    return true;
}

static void free_question(question *t) {
    free(t->order);
    free(t->exact);
    free(t->receive.data);
    free(t->send.data);
    free(t->bytes);
    free_arbiter(&t->arbiter);
}

static void free_replicas(plan_boxes *plan) {
    free(plan->replicas.sent);
    free(plan->replicas.sets);
    free(plan->replicas.to_arbiters);
    plan->replicas = (plan_replicas){0};
}

/* Collective. Shares the findings of all arbiters. `own` is this rank's status. */
static int share_verdicts(dcp_comm *comm, int own, plan_boxes *plan, size_t n, question *t,
                          comm_vote *v, dcp_error *err) {
    comm_vote_all(v, &t->arbiter.all_exact);
    comm_vote_any(v, &t->arbiter.has_replicas);
    int status = comm_vote_run(comm, v, own, err);
    if (status) return status;
    plan->has_replicas = t->arbiter.has_replicas;
    if (t->arbiter.all_exact) {
        memset(plan->exact, 1, n);
        return DCP_OK;
    }
    memcpy(t->exact, plan->exact, n); /* each arbiter knows only its own tensors */
    status = comm_allreduce(comm, t->exact, (n + 7) / 8, DCP_REDUCE_XOR, err);
    memcpy(plan->exact, t->exact, n);
    return status;
}

int plan_exchange_vote(dcp_comm *comm, int status, state_tensor *const *sorted, size_t n,
                       bool strict, plan_homes *homes, comm_vote *v, plan_boxes *out,
                       dcp_error *err) {
    plan_boxes plan = {0};
    question t = {.homes = homes};
    int own = DCP_OK;
    assert(!strict || !homes);
    if (!status) status = prepare_question(comm, sorted, n, &plan, &t, err);
    status = query_arbiters(comm, status, sorted, n, strict, &plan, &t, &own, err);
    if (!status) {
        if (!own && strict && !list_replicas(&t, comm->size, &plan))
            own = core_fail_memory(err, plan.n);
        if (!own && homes) own = homes->receive(homes->ctx, homes, err);
        status = share_verdicts(comm, own, &plan, n, &t, v, err);
    }
    free_question(&t);
    if (!status && !plan.has_replicas) free_replicas(&plan);
    if (status)
        plan_boxes_free(&plan);
    else
        *out = plan;
    return status;
}

void plan_boxes_free(plan_boxes *plan) {
    free(plan->boxes);
    free(plan->exact);
    free_replicas(plan);
    *plan = (plan_boxes){0};
}
