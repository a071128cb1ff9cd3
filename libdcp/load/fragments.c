/* Fragments of a load, window by window, in two stages: ranks ask the owners of the regions, which
 * start to read; then owners answer and askers place what arrives. The next window's reading runs
 * while this window is answered. The sizes of all questions and answers are known before the first
 * one. A rank that failed goes on exchanging. On the wire a question is offset in the region and
 * length (u32 each); the answer is the bytes, in the questions' order. */
#include <stdlib.h>
#include <string.h>

#include "comm/rounds.h"
#include "core/bytes.h"
#include "core/fail.h"
#include "load/place.h"
#include "load/transfer.h"

#define PAGES (IO_SLOT_BYTES / PAGE_BYTES)
#define JOIN_PAGES 16 /* gaps up to that are read along */
#define QUESTION_BYTES 8

typedef struct window_state {
    size_t round;
    uint64_t window, region_start;
    unsigned slot;
    unsigned char wanted[PAGES];
    unsigned char *questions; /* from all ranks */
} window_state;

typedef struct loader {
    dcp_checkpoint *ckpt;
    dcp_comm *comm;
    io_queue *queue;
    const piece *pieces;
    size_t n;
    size_t *first_count, *first_ask, *first_place; /* a rank's where there are lanes, else one */
    windows windows;
    window_state states[2];
    comm_rounds questions, answers; /* sizes of both as the askers know them */
    unsigned char *out, *in, *at;   /* questions or answers; where the walk stands in them */
    uint64_t asking_start;
    int status; /* of this rank alone */
    dcp_error *err;
} loader;

/* Where the walk through rank's regions stands. */
static size_t *cursor(const loader *l, size_t *cursors, int rank) {
    return l->windows.lanes ? &cursors[rank] : cursors;
}

/* Walks start where the lanes do. */
static void set_cursors(const loader *l) {
    for (int r = 0; l->windows.lanes && r < l->comm->size; r++)
        l->first_count[r] = l->first_ask[r] = l->first_place[r] =
            piece_find(l->pieces, l->n, l->windows.lanes[r]);
}

/* Walks this rank's fragments in rank's region of the window. */
static void walk_region(const loader *l, uint64_t window, int rank, size_t *cursors, fragment_fn fn,
                        void *ctx) {
    piece_fragments(l->pieces, l->n, cursor(l, cursors, rank),
                    windows_region(&l->windows, window, rank),
                    windows_region_end(&l->windows, window, rank), fn, ctx);
}

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
            walk_region(l, list[i], (int)r, l->first_count, count, sizes);
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
    put_u32(l->at, (uint32_t)(f->file_offset - l->asking_start));
    put_u32(l->at + 4, (uint32_t)f->bytes);
    l->at += QUESTION_BYTES;
    return 0;
}

/* Bytes of the questions that `rank` asks in the round. */
static uint64_t question_bytes(const loader *l, size_t round, int rank) {
    return l->questions.receive[round * (size_t)l->comm->size + (size_t)rank];
}

static void mark_wanted(const loader *l, window_state *s) {
    uint64_t total = 0;
    for (int r = 0; r < l->comm->size; r++) total += question_bytes(l, s->round, r);
    memset(s->wanted, 0, sizeof s->wanted);
    for (uint64_t at = 0; at < total; at += QUESTION_BYTES) {
        uint32_t offset = get_u32(s->questions + at), bytes = get_u32(s->questions + at + 4);
        for (uint32_t page = offset / PAGE_BYTES; page <= (offset + bytes - 1) / PAGE_BYTES; page++)
            s->wanted[page] = 1;
    }
}

/* Reads pages [first, end) of the region; a file may end in between. */
static void read_pages(loader *l, const window_state *s, size_t first, size_t end) {
    uint64_t at = s->region_start + first * PAGE_BYTES, stop = s->region_start + end * PAGE_BYTES;
    while (at < stop) {
        const ckpt_file *file = load_file(l->ckpt, at);
        uint64_t file_end = file->base + file->ub.file_bytes;
        uint64_t to = file_end < stop ? file_end : stop;
        load_read(l->ckpt, l->queue, s->slot,
                  io_queue_buffer(l->queue, s->slot) + (at - s->region_start), to - at, at);
        at = to;
    }
}

static void start_reading(loader *l, window_state *s) {
    s->slot = io_queue_next(l->queue);
    for (size_t page = 0; page < PAGES;) {
        if (!s->wanted[page]) {
            page++;
            continue;
        }
        size_t first = page, last = page;
        for (; page < PAGES && page - last <= JOIN_PAGES; page++)
            if (s->wanted[page]) last = page;
        read_pages(l, s, first, last + 1);
        page = last + 1;
    }
    io_queue_send(l->queue);
}

static int ask_window(loader *l, window_state *s, size_t round, uint64_t window, dcp_error *err) {
    s->round = round;
    s->window = window;
    s->region_start = windows_region(&l->windows, window, l->comm->rank);
    l->at = l->out;
    for (int r = 0; r < l->comm->size; r++) {
        l->asking_start = windows_region(&l->windows, window, r);
        walk_region(l, window, r, l->first_ask, ask, l);
    }
    int status = comm_rounds_run(&l->questions, round, l->out, s->questions, err);
    if (status) return status;
    mark_wanted(l, s);
    start_reading(l, s);
    return DCP_OK;
}

static void answer(loader *l, const window_state *s) {
    const unsigned char *at = s->questions, *region = io_queue_buffer(l->queue, s->slot);
    unsigned char *to = l->out;
    for (int r = 0; r < l->comm->size; r++)
        for (const unsigned char *end = at + question_bytes(l, s->round, r); at < end;
             at += QUESTION_BYTES) {
            uint32_t bytes = get_u32(at + 4);
            memcpy(to, region + get_u32(at), bytes);
            to += bytes;
        }
}

static void place_on_device(loader *l, const fragment *f) {
    piece_sum(f->piece, f->dataset_offset, l->at, f->bytes);
    if (!l->status) l->status = place(f->piece, f->box_offset, l->at, f->bytes, l->err);
}

static int take(void *ctx, const fragment *f) {
    loader *l = ctx;
    unsigned char *to = f->piece->box->data;
    if (to) {
        to += f->box_offset;
        memcpy(to, l->at, f->bytes);
        piece_sum(f->piece, f->dataset_offset, to, f->bytes);
    } else {
        place_on_device(l, f);
    }
    l->at += f->bytes;
    return 0;
}

static int place_window(loader *l, const window_state *s, dcp_error *err) {
    io_queue_wait(l->queue, s->slot);
    if (!l->status) l->status = io_queue_status(l->queue, l->err);
    answer(l, s);
    int status = comm_rounds_answer(&l->answers, s->round, l->out, l->in, err);
    if (status) return status;
    l->at = l->in;
    for (int r = 0; r < l->comm->size; r++) walk_region(l, s->window, r, l->first_place, take, l);
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

static int move_windows(loader *l, dcp_error *err) {
    int status = DCP_OK;
    for (size_t done = 0, n; done < l->windows.n && !status; done += n) {
        n = l->windows.n - done;
        if (n > COMM_ROUNDS_AT_ONCE) n = COMM_ROUNDS_AT_ONCE;
        status = move_some(l, l->windows.list + done, n, err);
    }
    return status;
}

static int find_windows(loader *l, dcp_error *err) {
    const dcp_checkpoint *ckpt = l->ckpt;
    if (ckpt->lanes)
        return windows_find_lanes(l->comm, l->pieces, l->n, ckpt->lanes, &l->windows, err);
    return windows_find(l->comm, l->pieces, l->n, ckpt->address_end, &l->windows, err);
}

int load_fragments(dcp_checkpoint *ckpt, io_queue *queue, const piece *pieces, size_t n,
                   dcp_error *err) {
    dcp_error local = {.rank = -1}; /* apart from the collectives' */
    loader l = {
        .ckpt = ckpt, .comm = ckpt->comm, .queue = queue, .pieces = pieces, .n = n, .err = &local};
    int status = find_windows(&l, err);
    if (status) return status;
    size_t ranks = (size_t)l.comm->size, *cursors = calloc(3 * ranks, sizeof *cursors);
    status = comm_agree(l.comm, cursors ? DCP_OK : core_fail_memory(err, 24 * ranks), err);
    if (!status) {
        l.first_count = cursors;
        l.first_ask = cursors + ranks;
        l.first_place = cursors + 2 * ranks;
        set_cursors(&l);
        status = move_windows(&l, err);
        if (!status) {
            status = comm_agree(l.comm, l.status, &local);
            if (status && err) *err = local;
        }
    }
    io_queue_drain(queue);
    free(cursors);
    windows_free(&l.windows);
    return status;
}
