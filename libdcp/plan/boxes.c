/* Boxes travel to the home ranks of their tensors, verdicts come back (plan.h). */
#include <stdlib.h>
#include <string.h>

#include "comm/exchange.h"
#include "core/box.h"
#include "core/fail.h"
#include "plan/home.h"
#include "plan/plan.h"

static int collect(const dcp_comm *comm, state_tensor *const *sorted, size_t n, size_t total,
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

/* The boxes' numbers ordered by home: a counting sort. */
static size_t *order_by_home(const plan_boxes *plan, int size) {
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

/* Verdicts come back in the order in which boxes went out. */
static void read_answers(plan_boxes *plan, const size_t *order, const uint32_t *answers) {
    for (size_t i = 0; i < plan->n; i++) {
        plan->boxes[order[i]].keeper = answers[i] & 1;
        plan->boxes[order[i]].keeper_rank = (int)(answers[i] >> 1);
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

typedef struct talk {
    comm_message send, receive;
    uint64_t *bytes, *received; /* a rank */
    size_t *order;              /* the boxes' numbers as they went out */
    uint32_t *answers;          /* to them */
    uint64_t *answer_bytes;     /* from each rank */
    home home;
} talk;

static unsigned char *pack_box(const state_tensor *t, const plan_box *b, unsigned char *at) {
    uint32_t dims = core_box_dims(t->tensor.ndim);
    uint64_t head[2] = {b->tensor, (uint64_t)b->rank | (uint64_t)dims << 32};
    memcpy(at, head, sizeof head);
    memcpy(at + 16, b->box->box.start, 8ULL * dims);
    memcpy(at + 16 + 8ULL * dims, b->box->box.count, 8ULL * dims);
    return at + home_wire_bytes(dims);
}

/* The boxes, how much goes to each home, and how much each will answer. */
static size_t count_out(state_tensor *const *sorted, size_t n, int size, talk *t) {
    size_t total = 0;
    for (size_t i = 0; i < n; i++) {
        core_state_prefetch(sorted, n, i);
        size_t to = i % (size_t)size, boxes = sorted[i]->n_boxes;
        t->bytes[to] += boxes * home_wire_bytes(core_box_dims(sorted[i]->tensor.ndim));
        t->answer_bytes[to] += boxes * sizeof *t->answers;
        total += boxes;
    }
    return total;
}

/* The message to the homes. */
static int pack(state_tensor *const *sorted, const plan_boxes *plan, int size, talk *t) {
    uint64_t total = 0;
    for (int r = 0; r < size; r++) total += t->bytes[r];
    t->order = order_by_home(plan, size);
    unsigned char *at = comm_message_append(&t->send, total);
    for (size_t i = 0; i < plan->n && at && t->order; i++) {
        const plan_box *b = &plan->boxes[t->order[i]];
        if (i + PREFETCH_DISTANCE < plan->n)
            core_state_prefetch_one(sorted[plan->boxes[t->order[i + PREFETCH_DISTANCE]].tensor]);
        at = pack_box(sorted[b->tensor], b, at);
    }
    return at && t->order;
}

static int prepare(dcp_comm *comm, state_tensor *const *sorted, size_t n, plan_boxes *plan, talk *t,
                   dcp_error *err) {
    size_t size = (size_t)comm->size;
    t->bytes = calloc(3 * size, sizeof *t->bytes);
    if (!t->bytes) return core_fail_memory(err, 3 * size * sizeof *t->bytes);
    t->received = t->bytes + size;
    t->answer_bytes = t->received + size;
    if (!collect(comm, sorted, n, count_out(sorted, n, comm->size, t), plan))
        return core_fail_memory(err, n);
    t->answers = malloc((plan->n + 1) * sizeof *t->answers);
    if (!t->answers || !pack(sorted, plan, comm->size, t)) return core_fail_memory(err, plan->n);
    return DCP_OK;
}

/* Boxes to their homes, verdicts back. */
static int ask_homes(dcp_comm *comm, state_tensor *const *sorted, size_t n, int strict,
                     plan_boxes *plan, talk *t, dcp_error *err) {
    int status = comm_exchange(comm, &t->send, t->bytes, &t->receive, t->received, err);
    if (status) return status;
    if (!home_unpack(n, &t->receive, t->received, comm->size, &t->home))
        status = core_fail_memory(err, t->receive.bytes);
    else
        status = home_judge(comm, sorted, n, &t->home, strict, plan->exact, err);
    status = comm_agree(comm, status, err);
    if (status) return status;
    status = comm_alltoall(comm, t->home.answers, t->home.answer_bytes, t->answers, t->answer_bytes,
                           err);
    if (!status) read_answers(plan, t->order, t->answers);
    return status;
}

static void talk_free(talk *t) {
    free(t->order);
    free(t->answers);
    free(t->receive.data);
    free(t->send.data);
    free(t->bytes);
    home_free(&t->home);
}

int plan_exchange(dcp_comm *comm, state_tensor *const *sorted, size_t n, int strict,
                  plan_boxes *out, dcp_error *err) {
    plan_boxes plan = {0};
    talk t = {0};
    int status = comm_agree(comm, prepare(comm, sorted, n, &plan, &t, err), err);
    if (!status) status = ask_homes(comm, sorted, n, strict, &plan, &t, err);
    if (!status) status = share_exact(comm, &plan, n, err);
    talk_free(&t);
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
