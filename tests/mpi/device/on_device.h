/* What a rank holds (given.h) in the memory of a stand-in device. */
#ifndef TESTS_MPI_ON_DEVICE_H
#define TESTS_MPI_ON_DEVICE_H

#include "stand_in.h"
#include "support/scratch.h"
#include "support/view.h"

typedef struct on_device {
    held h; /* its data: what the boxes are filled with, or for a load what they held after it */
    dcp_state *state;
    void **at;   /* a box's memory on the device */
    view *views; /* a box's memory with strides */
    stand_in *device;
} on_device;

static inline uint64_t box_bytes(const given *g, const held_box *b) {
    const dcp_tensor *t = &g->tensors[b->tensor];
    return dcp_box_elems(&b->box, t->ndim) * dcp_dtype_bytes(t->dtype);
}

static inline void on_device_add_view(on_device *o, const dcp_tensor *t, const held_box *b,
                                      view *v) {
    view_make(v, VIEW_COLUMNS, t->ndim, dcp_dtype_bytes(t->dtype), b->box.count);
    view_fill(v, b->data);
    SUCCEEDS(dcp_state_add_strided(o->state, t, &b->box, v->data, v->strides, err));
}

/* in_memory: every such box is in the host's memory instead of the device's, every second of them
 * with strides; 0: none is. */
static inline void on_device_make(on_device *o, stand_in *d, const given *g, scheme how, int rank,
                                  int size, int filled, size_t in_memory) {
    held_make(&o->h, g, how, rank, size, filled);
    stand_in_clear(d);
    o->device = d;
    o->at = calloc(o->h.n + 1, sizeof *o->at);
    o->views = calloc(o->h.n + 1, sizeof *o->views);
    CHECK(o->at && o->views);
    SUCCEEDS(dcp_state_create(&o->state, err));
    for (size_t i = 0; i < o->h.n; i++) {
        const held_box *b = &o->h.boxes[i];
        const dcp_tensor *t = &g->tensors[b->tensor];
        uint64_t bytes = box_bytes(g, b);
        if (in_memory && bytes && i % in_memory == 0 && i / in_memory % 2) {
            on_device_add_view(o, t, b, &o->views[i]);
            continue;
        }
        if (in_memory && i % in_memory == 0) {
            SUCCEEDS(dcp_state_add(o->state, t, &b->box, b->data, err));
            continue;
        }
        o->at[i] = stand_in_alloc(d, bytes, (unsigned)(i % 11));
        if (bytes) memcpy(stand_in_see(d, o->at[i]), b->data, bytes);
        SUCCEEDS(dcp_state_add_device(o->state, t, &b->box, &d->device, o->at[i], err));
    }
}

static inline void on_device_free(on_device *o) {
    dcp_state_destroy(o->state);
    for (size_t i = 0; i < o->h.n; i++) view_free(&o->views[i]);
    held_free(&o->h);
    free(o->at);
    free(o->views);
}

/* Returns 1 if all boxes have the given state's content. */
static inline int on_device_is_given(on_device *o, const given *g) {
    for (size_t i = 0; i < o->h.n; i++) {
        uint64_t bytes = box_bytes(g, &o->h.boxes[i]);
        if (o->views[i].memory) view_take(&o->views[i], o->h.boxes[i].data);
        if (o->at[i] && bytes) memcpy(o->h.boxes[i].data, stand_in_see(o->device, o->at[i]), bytes);
    }
    return held_is_given(&o->h, g);
}

#endif
