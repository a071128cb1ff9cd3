/* Fragments of a save by messages, window by window: packed for the owners of their regions,
 * exchanged, placed in the owner's region buffer, written. The sizes of all messages are known
 * before the first one, so a window costs one collective. A rank that failed goes on exchanging, so
 * that nobody waits for it; what it sends then is never published. A fragment on the wire: its
 * offset in the region and its length (u32 each), then its bytes. */
#include <stdlib.h>
#include <string.h>

#include "comm/rounds.h"
#include "core/bytes.h"
#include "core/fail.h"
#include "save/region.h"

#define HEAD_BYTES 8 /* of a fragment on the wire */

typedef struct sender {
    region *own;
    unsigned char *to;     /* where the next fragment for another rank goes */
    uint64_t region_start; /* of the region being packed */
    int to_self;
    fragments *f;
} sender;

/* Pages get their zeros when the first fragment meets them. */
static unsigned char *touch(region *own, uint64_t offset, uint64_t bytes) {
    for (uint64_t page = offset / PAGE_BYTES; page <= (offset + bytes - 1) / PAGE_BYTES; page++)
        if (!own->touched[page]) {
            own->touched[page] = 1;
            memset(own->buffer + page * PAGE_BYTES, 0, PAGE_BYTES);
        }
    return own->buffer + offset;
}

/* Where the fragment goes: into the own region, or behind its head in the message. */
static unsigned char *room_for(sender *s, const fragment *f) {
    uint64_t offset = f->file_offset - s->region_start;
    if (s->to_self) return touch(s->own, offset, f->bytes);
    unsigned char *head = s->to;
    core_put_u32(head, (uint32_t)offset);
    core_put_u32(head + 4, (uint32_t)f->bytes);
    s->to += HEAD_BYTES + f->bytes;
    return head + HEAD_BYTES;
}

static int pack(void *ctx, const fragment *f) {
    sender *s = ctx;
    fragments_pack(s->f, f, room_for(s, f));
    return 0;
}

static int count(void *ctx, const fragment *f) {
    *(uint64_t *)ctx += HEAD_BYTES + f->bytes;
    return 0;
}

static void place(region *own, const unsigned char *at, uint64_t message_bytes) {
    const unsigned char *end = at + message_bytes;
    while (at < end) {
        uint32_t offset = core_get_u32(at), bytes = core_get_u32(at + 4);
        memcpy(touch(own, offset, bytes), at + HEAD_BYTES, bytes);
        at += HEAD_BYTES + (uint64_t)bytes;
    }
}

typedef struct transfer {
    const fragments *f;
    dcp_comm *comm;
    size_t first; /* where the walk stands */
    region own;
    sender sender;
    comm_rounds rounds;
    unsigned char *out, *in; /* messages of a round */
} transfer;

/* Walks this rank's fragments in rank's region of the window. */
static void walk_region(const transfer *t, uint64_t window, int rank, size_t *first, fragment_fn fn,
                        void *ctx) {
    uint64_t start = windows_region(&t->f->windows, window, rank);
    piece_fragments(t->f->pieces, t->f->n, first, start, start + t->f->windows.region_bytes, fn,
                    ctx);
}

static int agree_on_sizes(transfer *t, const uint64_t *list, size_t n, dcp_error *err) {
    int status = comm_rounds_make(&t->rounds, t->comm, n, err);
    if (status) return status;
    size_t first = t->first, ranks = (size_t)t->comm->size;
    for (size_t i = 0; i < n; i++)
        for (int r = 0; r < t->comm->size; r++)
            if (r != t->comm->rank)
                walk_region(t, list[i], r, &first, count, &t->rounds.send[i * ranks + (size_t)r]);
    status = comm_rounds_agree(&t->rounds, err);
    if (status) return status;
    t->out = malloc(t->rounds.most_out + 1);
    t->in = malloc(t->rounds.most_in + 1);
    int ok = t->out && t->in;
    return comm_agree(
        t->comm, ok ? DCP_OK : core_fail_memory(err, t->rounds.most_out + t->rounds.most_in), err);
}

static int move_window(transfer *t, size_t round, uint64_t window, dcp_error *err) {
    unsigned slot = io_queue_next(t->f->queue);
    size_t ranks = (size_t)t->comm->size;
    t->own.buffer = io_queue_buffer(t->f->queue, slot);
    t->own.start = windows_region(&t->f->windows, window, t->comm->rank);
    memset(t->own.touched, 0, sizeof t->own.touched);
    t->sender.to = t->out;
    for (int r = 0; r < t->comm->size; r++) {
        t->sender.region_start = windows_region(&t->f->windows, window, r);
        t->sender.to_self = r == t->comm->rank;
        walk_region(t, window, r, &t->first, pack, &t->sender);
    }
    int status = comm_rounds_run(&t->rounds, round, t->out, t->in, err);
    if (status) return status;
    uint64_t bytes = 0;
    for (size_t r = 0; r < ranks; r++) bytes += t->rounds.receive[round * ranks + r];
    place(&t->own, t->in, bytes);
    if (!t->f->status) region_write(&t->own, t->f->queue, slot, t->f->file);
    return DCP_OK;
}

static int move_windows(transfer *t, dcp_error *err) {
    const size_t most = COMM_ROUNDS_AT_ONCE;
    int status = DCP_OK;
    for (size_t done = 0, n; done < t->f->windows.n && !status; done += n) {
        const uint64_t *list = t->f->windows.list + done;
        n = t->f->windows.n - done < most ? t->f->windows.n - done : most;
        status = agree_on_sizes(t, list, n, err);
        for (size_t i = 0; i < n && !status; i++) status = move_window(t, i, list[i], err);
        comm_rounds_free(&t->rounds);
        free(t->out);
        free(t->in);
        t->out = t->in = NULL;
    }
    return status;
}

int send_by_messages(fragments *f, dcp_error *err) {
    transfer t = {.f = f, .comm = f->comm, .sender = {.f = f}};
    t.sender.own = &t.own;
    return move_windows(&t, err);
}
