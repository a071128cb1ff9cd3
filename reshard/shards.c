/* Boxes read on demand.
 *
 * A save asks for any bytes of a box in any order; the checkpoint gives boxes, and checks whole
 * blocks of 4 MiB. So each box is seen as windows of some blocks, and the last few windows are
 * kept: neighbouring requests then read a block once, and memory stays bounded. */
#include "shards.h"

#include <stdlib.h>
#include <string.h>

#include "pieces.h"

enum { WINDOW_BYTES = 8 << 20, WINDOWS = 4 };

typedef struct source {
    shards *owner;
    const dcp_tensor *tensor;
    dcp_box box;
} source;

typedef struct window {
    const source *of; /* NULL: holds nothing */
    uint64_t begin, bytes;
    uint64_t used; /* the clock at its last use */
    char *data;
} window;

struct shards {
    dcp_checkpoint *ckpt;
    dcp_state *state;
    source *sources;
    size_t n;
    window windows[WINDOWS];
    uint64_t clock;
    void (*on_read)(void *ctx, uint64_t bytes);
    void *on_read_ctx;
};

static int fill_window(window *w, const source *src, uint64_t begin, dcp_error *err) {
    uint32_t ndim = src->tensor->ndim;
    uint64_t size = dcp_dtype_bytes(src->tensor->dtype);
    uint64_t elems = dcp_box_elems(&src->box, ndim), first = begin / size;
    uint64_t end = first + WINDOW_BYTES / size < elems ? first + WINDOW_BYTES / size : elems;
    w->of = NULL;
    if (!w->data) w->data = malloc(WINDOW_BYTES);
    if (!w->data) {
        if (err) *err = (dcp_error){DCP_ERR_NO_MEMORY, -1, "out of memory"};
        return DCP_ERR_NO_MEMORY;
    }
    for (uint64_t at = first; at < end;) {
        dcp_box piece;
        uint64_t n = pieces_next(&src->box, ndim, at, end - at, &piece);
        int status = dcp_checkpoint_read(src->owner->ckpt, src->tensor->path, &piece,
                                         w->data + (at - first) * size, err);
        if (status != DCP_OK) return status;
        at += n;
    }
    w->of = src;
    w->begin = begin;
    w->bytes = (end - first) * size;
    return DCP_OK;
}

static int find_window(shards *s, const source *src, uint64_t begin, window **out, dcp_error *err) {
    window *oldest = &s->windows[0];
    for (size_t i = 0; i < WINDOWS; i++) {
        window *w = &s->windows[i];
        if (w->of == src && w->begin == begin) {
            *out = w;
            return DCP_OK;
        }
        if (w->used < oldest->used) oldest = w;
    }
    *out = oldest;
    return fill_window(oldest, src, begin, err);
}

static int read_source(void *ctx, uint64_t offset, uint64_t bytes, void *out, dcp_error *err) {
    const source *src = ctx;
    shards *s = src->owner;
    for (uint64_t done = 0; done < bytes;) {
        uint64_t at = offset + done, skip = at % WINDOW_BYTES;
        window *w;
        int status = find_window(s, src, at - skip, &w, err);
        if (status != DCP_OK) return status;
        uint64_t n = w->bytes - skip < bytes - done ? w->bytes - skip : bytes - done;
        memcpy((char *)out + done, w->data + skip, n);
        w->used = ++s->clock;
        done += n;
    }
    if (s->on_read) s->on_read(s->on_read_ctx, bytes);
    return DCP_OK;
}

/* `as` is the shard's number, -1 in a global file. */
static int add_box(shards *s, const dcp_tensor *tensor, const dcp_box *box, int as,
                   dcp_error *err) {
    source *src = &s->sources[s->n++];
    *src = (source){s, tensor, *box};
    return dcp_state_add_source(s->state, tensor, box, read_source, src, as, err);
}

static int add_boxes(shards *s, int rank, int size, int world, dcp_error *err) {
    int status = DCP_OK;
    for (size_t i = 0; status == DCP_OK && i < dcp_checkpoint_tensors(s->ckpt); i++) {
        const dcp_tensor *tensor = dcp_checkpoint_tensor(s->ckpt, i);
        if (world == 0) {
            dcp_box box = dcp_box_chunk(tensor, rank, size);
            status = add_box(s, tensor, &box, -1, err);
        }
        for (int r = rank; status == DCP_OK && r < world; r += size) {
            dcp_box box = dcp_box_chunk(tensor, r, world);
            status = add_box(s, tensor, &box, r, err);
        }
    }
    return status;
}

int shards_make(dcp_checkpoint *ckpt, int rank, int size, int world, shards **out, dcp_error *err) {
    size_t mine = world == 0 ? 1 : (size_t)(world / size + 1);
    shards *s = calloc(1, sizeof *s);
    source *sources = calloc(dcp_checkpoint_tensors(ckpt) * mine + 1, sizeof *sources);
    int status = DCP_ERR_NO_MEMORY;
    if (err) *err = (dcp_error){DCP_ERR_NO_MEMORY, -1, "out of memory"};
    if (!s || !sources) goto free_memory;
    s->ckpt = ckpt;
    s->sources = sources;
    status = dcp_state_create(&s->state, err);
    if (status != DCP_OK) goto free_memory;
    status = add_boxes(s, rank, size, world, err);
    if (status != DCP_OK) {
        shards_free(s);
        return status;
    }
    *out = s;
    return DCP_OK;
free_memory:
    free(sources);
    free(s);
    return status;
}

const dcp_state *shards_state(const shards *s) { return s->state; }

void shards_on_read(shards *s, void (*on_read)(void *ctx, uint64_t bytes), void *ctx) {
    s->on_read = on_read;
    s->on_read_ctx = ctx;
}

void shards_free(shards *s) {
    dcp_state_destroy(s->state);
    for (size_t i = 0; i < WINDOWS; i++) free(s->windows[i].data);
    free(s->sources);
    free(s);
}
