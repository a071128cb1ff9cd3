/* At home boxes become what step/view.h wants to be asked. */
#include "load/ask.h"

#include <stdlib.h>
#include <string.h>

#include "core/fail.h"
#include "load/loading.h"
#include "load/pieces.h"

/* A box as it came. */
typedef struct asked_box {
    size_t number; /* of the tensor, in the checkpoint */
    const unsigned char *start;
    uint64_t bytes; /* from there on: start and count */
} asked_box;

static int by_number(const void *a, const void *b) {
    const asked_box *x = a, *y = b;
    return (x->number > y->number) - (x->number < y->number);
}

static size_t count_most(const comm_message *boxes, const uint64_t *bytes, int ranks) {
    const unsigned char *at = boxes->data, *start;
    size_t most = 0, tensor;
    uint32_t dims;
    for (int r = 0; r < ranks; r++) {
        size_t n = 0;
        for (const unsigned char *end = at + bytes[r]; at < end; n++)
            at = plan_box_next(at, &tensor, &dims, &start);
        if (n > most) most = n;
    }
    return most;
}

/* One rank's boxes from *at on, which moves behind them, by the tensors' numbers. */
static int put_asked(const load_asking *a, const unsigned char **at, uint64_t bytes,
                     asked_box *list, comm_message *asked, dcp_error *err) {
    size_t n = 0, is_sorted = 1;
    for (const unsigned char *end = *at + bytes; *at < end; n++) {
        size_t tensor;
        uint32_t dims;
        *at = plan_box_next(*at, &tensor, &dims, &list[n].start);
        list[n].number = a->numbers[tensor];
        list[n].bytes = 16ULL * dims;
        is_sorted &= !n || list[n - 1].number <= list[n].number;
    }
    if (!is_sorted) qsort(list, n, sizeof *list, by_number); /* as renames may have it */
    for (size_t i = 0; i < n; i++) {
        const uint64_t number = list[i].number;
        unsigned char *to = comm_message_append(asked, sizeof number + list[i].bytes);
        if (!to) return core_fail_memory(err, asked->bytes);
        memcpy(to, &number, sizeof number);
        memcpy(to + sizeof number, list[i].start, list[i].bytes);
    }
    return DCP_OK;
}

static int answer_boxes(void *ctx, const comm_message *boxes, const uint64_t *bytes,
                        plan_homes *homes, dcp_error *err) {
    const load_asking *a = ctx;
    const int ranks = a->job->comm->size;
    const size_t most = count_most(boxes, bytes, ranks);
    const unsigned char *at = boxes->data;
    comm_message asked = {0};
    asked_box *list = malloc((most + 1) * sizeof *list);
    uint64_t *asked_bytes = calloc((unsigned)ranks, sizeof *asked_bytes);
    int status = list && asked_bytes ? DCP_OK : core_fail_memory(err, most * sizeof *list);
    for (int r = 0; r < ranks && !status; r++) {
        const uint64_t before = asked.bytes;
        status = put_asked(a, &at, bytes[r], list, &asked, err);
        asked_bytes[r] = asked.bytes - before;
    }
    free(list);
    if (!status)
        status = step_view_answer(a->job->ckpt, (const uint64_t *)(const void *)asked.data,
                                  asked_bytes, &homes->out, homes->out_bytes, err);
    free(asked_bytes);
    free(asked.data);
    return status;
}

static int take_rows(void *ctx, plan_homes *homes, uint64_t *values, dcp_error *err) {
    load_job *l = ((load_asking *)ctx)->job;
    free(homes->out.data); /* is sent */
    homes->out = (comm_message){0};
    int status = step_view_take(l->ckpt, &homes->in, &l->view, err);
    if (!status) status = load_pieces_prepare(l, err);
    if (!status) status = load_pieces_measure(l, &values[0], err);
    return status;
}

int load_ask_prepare(load_asking *a, load_job *l, dcp_error *err) {
    const size_t ranks = (size_t)l->comm->size, n = l->chosen.n;
    a->job = l;
    a->numbers = malloc((n + 1) * sizeof *a->numbers);
    a->bytes = calloc(2 * ranks, sizeof *a->bytes);
    if (!a->numbers || !a->bytes) return core_fail_memory(err, (n + 2 * ranks) * 8);
    for (size_t i = 0; i < n; i++) a->numbers[i] = (size_t)(l->chosen.stored[i] - l->ckpt->tensors);
    a->homes = (plan_homes){.numbers = a->numbers,
                            .answer = answer_boxes,
                            .take = take_rows,
                            .ctx = a,
                            .out_bytes = a->bytes,
                            .in_bytes = a->bytes + ranks};
    return DCP_OK;
}

void load_ask_free(load_asking *a) {
    free(a->numbers);
    free(a->bytes);
    free(a->homes.out.data);
    free(a->homes.in.data);
    *a = (load_asking){0};
}
