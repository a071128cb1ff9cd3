#include "load/cast.h"

#include <stdlib.h>

#include "core/box.h"
#include "core/fail.h"
#include "load/loading.h"

/* Without the option all types are the same. */
static int needs_cast(const load_job *l, size_t i) {
    return l->options.cast &&
           l->chosen.wanted[i]->tensor.dtype != l->chosen.stored[i]->tensor.dtype;
}

static uint64_t stored_size(const load_job *l, size_t i) {
    return dcp_dtype_bytes(l->chosen.stored[i]->tensor.dtype);
}

static uint64_t wanted_size(const load_job *l, size_t i) {
    return dcp_dtype_bytes(l->chosen.wanted[i]->tensor.dtype);
}

int load_cast_is_narrow(const load_job *l, size_t i) {
    return stored_size(l, i) > wanted_size(l, i) || (l->cast.on_the_way && needs_cast(l, i));
}

/* The tensor with the stored type, its boxes at the ends of their memory. */
static void make_shadow(const load_job *l, size_t i, state_tensor *shadow, state_box *boxes) {
    const state_tensor *t = l->chosen.wanted[i];
    uint64_t surplus = wanted_size(l, i) - stored_size(l, i);
    *shadow = *t;
    shadow->tensor.dtype = l->chosen.stored[i]->tensor.dtype;
    shadow->bytes = l->chosen.stored[i]->bytes;
    shadow->boxes = boxes;
    for (size_t k = 0; k < t->n_boxes; k++) {
        boxes[k] = t->boxes[k];
        boxes[k].data = (unsigned char *)t->boxes[k].data +
                        dcp_box_elems(&t->boxes[k].box, t->tensor.ndim) * surplus;
    }
}

int load_cast_prepare(load_job *l, dcp_error *err) {
    load_casting *cast = &l->cast;
    size_t n = l->chosen.n, tensors = 0, boxes = 0;
    for (size_t i = 0; i < n; i++) {
        if (!needs_cast(l, i)) continue;
        if (load_cast_is_narrow(l, i)) {
            cast->narrows = 1;
            continue;
        }
        tensors++;
        boxes += l->chosen.wanted[i]->n_boxes;
    }
    cast->tensors = calloc(n + 1, sizeof *cast->tensors);
    cast->shadows = calloc(tensors + 1, sizeof *cast->shadows);
    cast->boxes = calloc(boxes + 1, sizeof *cast->boxes);
    if (!cast->tensors || !cast->shadows || !cast->boxes)
        return core_fail_memory(err, n * 8 + tensors * sizeof *cast->shadows);
    state_tensor *shadow = cast->shadows;
    state_box *box = cast->boxes;
    for (size_t i = 0; i < n; i++) {
        cast->tensors[i] = l->chosen.wanted[i];
        if (!needs_cast(l, i) || load_cast_is_narrow(l, i)) continue;
        make_shadow(l, i, shadow, box);
        box += shadow->n_boxes;
        cast->tensors[i] = shadow++;
    }
    return DCP_OK;
}

void load_cast_free(load_casting *cast) {
    free(cast->tensors);
    free(cast->shadows);
    free(cast->boxes);
    *cast = (load_casting){0};
}

void load_cast_in_place(const load_job *l) {
    for (size_t i = 0; i < l->chosen.n; i++) {
        const state_tensor *want = l->chosen.wanted[i], *shadow = l->cast.tensors[i];
        for (size_t k = 0; k < want->n_boxes && shadow != want; k++)
            dcp_convert(shadow->tensor.dtype, shadow->boxes[k].data, want->tensor.dtype,
                        want->boxes[k].data, dcp_box_elems(&want->boxes[k].box, want->tensor.ndim));
    }
}
