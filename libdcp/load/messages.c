/* Fragments of a load by messages, window by window, in two stages: ranks ask the owners of the
 * regions, which start to read; then owners answer and askers place what arrives. The next window's
 * reading runs while this window is answered. The sizes of all questions and answers are known
 * before the first one. A rank that failed goes on exchanging. On the wire a question is offset in
 * the region and length (u32 each); the answer is the bytes, in the questions' order. */
#include <stdlib.h>
#include <string.h>

#include "comm/rounds.h"
#include "core/bytes.h"
#include "core/fail.h"
#include "load/regions.h"

#define QUESTION_BYTES 8

enum { COUNT, ASK, TAKE };

typedef struct window_state {
    size_t round;
    uint64_t window;
    unsigned slot;
    unsigned char *questions; /* from all ranks */
} window_state;

typedef struct loader {
    regions *r;
    dcp_comm *comm;
    io_queue *queue;
    window_state states[2];
    comm_rounds questions, answers; /* sizes of both as the askers know them */
    unsigned char *out, *in, *at;   /* questions or answers; where the walk stands in them */
    uint64_t asking_start;
} loader;

static int count(void *ctx, const fragment *f) {
    uint64_t **sizes = ctx; /* of question and answer */
    *sizes[0] += QUESTION_BYTES;
    *sizes[1] += f->bytes;
    return 0;
}

static int agree_on_sizes(loader *l, const uint64_t *list, size_t n, dcp_error *err) {
    int status = comm_rounds_make(&l->questions, l->comm, n, err);
    if (!status) status = comm_rounds_make(&l->answers, l->comm, n, err);
    if (status) return status;
    size_t ranks = (size_t)l->comm->size;
    for (size_t i = 0; i < n; i++)
        for (size_t r = 0; r < ranks; r++) {
            uint64_t *sizes[2] = {&l->questions.send[i * ranks + r],
                                  &l->answers.send[i * ranks + r]};
            regions_walk(l->r, COUNT, list[i], (int)r, count, sizes);
        }
    status = comm_rounds_agree(&l->questions, err);
    return status ? status : comm_rounds_agree(&l->answers, err);
}

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

static int make_messages(loader *l, dcp_error *err) {
    uint64_t out = larger(l->questions.most_out, l->answers.most_in), in = l->answers.most_out;
    uint64_t questions = l->questions.most_in;
    l->out = malloc(out + 1);
    l->in = malloc(in + 1);
    l->states[0].questions = malloc(questions + 1);
    l->states[1].questions = malloc(questions + 1);
    int ok = l->out && l->in && l->states[0].questions && l->states[1].questions;
    return comm_agree(l->comm, ok ? DCP_OK : core_fail_memory(err, out + in + 2 * questions), err);
}

static void free_messages(loader *l) {
    comm_rounds_free(&l->questions);
    comm_rounds_free(&l->answers);
    free(l->out);
    free(l->in);
    free(l->states[0].questions);
    free(l->states[1].questions);
    l->out = l->in = l->states[0].questions = l->states[1].questions = NULL;
}

static int ask(void *ctx, const fragment *f) {
    loader *l = ctx;
    core_put_u32(l->at, (uint32_t)(f->file_offset - l->asking_start));
    core_put_u32(l->at + 4, (uint32_t)f->bytes);
    l->at += QUESTION_BYTES;
    return 0;
}

/* Bytes of the questions that `rank` asks in the round. */
static uint64_t question_bytes(const loader *l, size_t round, int rank) {
    return l->questions.receive[round * (size_t)l->comm->size + (size_t)rank];
}

static void mark_wanted(const loader *l, const window_state *s, unsigned char *wanted) {
    uint64_t total = 0;
    for (int r = 0; r < l->comm->size; r++) total += question_bytes(l, s->round, r);
    for (uint64_t at = 0; at < total; at += QUESTION_BYTES) {
        uint32_t offset = core_get_u32(s->questions + at),
                 bytes = core_get_u32(s->questions + at + 4);
        for (uint32_t page = offset / PAGE_BYTES; page <= (offset + bytes - 1) / PAGE_BYTES; page++)
            wanted[page] = 1;
    }
}

static int ask_window(loader *l, window_state *s, size_t round, uint64_t window, dcp_error *err) {
    unsigned char wanted[REGION_PAGES] = {0};
    s->round = round;
    s->window = window;
    l->at = l->out;
    for (int r = 0; r < l->comm->size; r++) {
        l->asking_start = windows_region(&l->r->windows, window, r);
        regions_walk(l->r, ASK, window, r, ask, l);
    }
    int status = comm_rounds_run(&l->questions, round, l->out, s->questions, err);
    if (status) return status;
    mark_wanted(l, s, wanted);
    s->slot = io_queue_next(l->queue);
    regions_read(l->r, window, wanted, s->slot, io_queue_buffer(l->queue, s->slot));
    return DCP_OK;
}

static void answer(loader *l, const window_state *s) {
    const unsigned char *at = s->questions, *region = io_queue_buffer(l->queue, s->slot);
    unsigned char *to = l->out;
    for (int r = 0; r < l->comm->size; r++)
        for (const unsigned char *end = at + question_bytes(l, s->round, r); at < end;
             at += QUESTION_BYTES) {
            uint32_t bytes = core_get_u32(at + 4);
            memcpy(to, region + core_get_u32(at), bytes);
            to += bytes;
        }
}

static int take(void *ctx, const fragment *f) {
    loader *l = ctx;
    regions_take(l->r, f, l->at);
    l->at += f->bytes;
    return 0;
}

static int place_window(loader *l, const window_state *s, dcp_error *err) {
    regions_wait(l->r, s->slot);
    answer(l, s);
    int status = comm_rounds_answer(&l->answers, s->round, l->out, l->in, err);
    if (status) return status;
    l->at = l->in;
    for (int r = 0; r < l->comm->size; r++) regions_walk(l->r, TAKE, s->window, r, take, l);
    return DCP_OK;
}

/* n windows whose sizes are agreed on together. */
static int move_some(loader *l, const uint64_t *list, size_t n, dcp_error *err) {
    int status = agree_on_sizes(l, list, n, err);
    if (!status) status = make_messages(l, err);
    if (!status) status = ask_window(l, &l->states[0], 0, list[0], err);
    for (size_t i = 0; i < n && !status; i++) {
        if (i + 1 < n) status = ask_window(l, &l->states[(i + 1) % 2], i + 1, list[i + 1], err);
        if (!status) status = place_window(l, &l->states[i % 2], err);
    }
    free_messages(l);
    return status;
}

int bring_by_messages(regions *r, dcp_error *err) {
    const windows *w = &r->windows;
    loader l = {.r = r, .comm = r->comm, .queue = r->queue};
    int status = DCP_OK;
    for (size_t done = 0, n; done < w->n && !status; done += n) {
        n = w->n - done;
        if (n > COMM_ROUNDS_AT_ONCE) n = COMM_ROUNDS_AT_ONCE;
        status = move_some(&l, w->list + done, n, err);
    }
    return status;
}
