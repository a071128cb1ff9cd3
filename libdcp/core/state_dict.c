/* Building a state dict. Errors that a single rank can recognize are found here. Errors that depend
 * on other ranks are found when a save or load starts (libdcp/plan). */
#include "core/state_dict.h"

#include <assert.h>
#include <search.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/box.h"
#include "core/bytes.h"
#include "core/checks.h"
#include "core/fail.h"
#include "core/json.h"
#include "core/strides.h"
#include "core/system.h"
#include "dcp/device.h"

int core_state_compare(const void *a, const void *b) {
    const state_tensor *x = a, *y = b;
    return strcmp(x->tensor.path, y->tensor.path);
}

int dcp_state_create(dcp_state **out, dcp_error *err) {
    if (!out) return core_fail(err, DCP_ERR_ARG, "dcp_state_create: out is NULL");
    dcp_state *state = calloc(1, sizeof *state);
    if (!state) return core_fail_memory(err, sizeof *state);
    state->changed = core_clock_now();
    *out = state;
    return DCP_OK;
}

void core_state_free_tensor(state_tensor *t) {
    state_entry *kept = (state_entry *)t;
    for (size_t k = 0; k < t->n_boxes; k++) free((void *)t->boxes[k].strides);
    if (t->boxes != &kept->box) free(t->boxes);
    if (!kept->is_part) free(kept);
}

void core_state_free_blocks(state_block *blocks) {
    while (blocks) {
        state_block *next = blocks->next;
        free(blocks);
        blocks = next;
    }
}

static void keep_tensor(void *tensor) { (void)tensor; }

void dcp_state_destroy(dcp_state *state) {
    if (!state) return;
    tdestroy(state->by_path, keep_tensor);
    for (size_t i = 0; i < state->n; i++) core_state_free_tensor(state->tensors[i]);
    core_state_free_blocks(state->blocks);
    free(state->sorted);
    free(state->tensors);
    free(state);
}

static bool component_valid(const char *s, size_t n) {
    return n && !(n == 1 && s[0] == '.') && !(n == 2 && s[0] == '.' && s[1] == '.');
}

bool core_path_valid(const char *path, const char **what) {
    *what = "it must begin with '/'";
    if (!path || path[0] != '/') return false;
    *what = "it is longer than 1,024 bytes";
    const size_t length = strnlen(path, DCP_MAX_PATH + 1);
    if (length > DCP_MAX_PATH) return false;
    *what = "it is not UTF-8";
    if (!core_utf8_is_valid(path, length)) return false;
    *what = "it has an empty, '.' or '..' component";
    size_t components = 0;
    for (const char *c = path; *c; components++) {
        const char *end = strchrnul(c + 1, '/');
        if (!component_valid(c + 1, (size_t)(end - c - 1))) return false;
        c = end;
    }
    *what = "it needs a section: /section/name";
    if (components < 2) return false;
    *what = "/dcp is reserved";
    return strncmp(path, "/dcp/", 5) != 0;
}

typedef int order_by(const void *key, const void *tensor);

/* Returns a tensor of the state that compares equal to the key; NULL if there is none. */
static state_tensor *find_by(const dcp_state *state, const void *key, order_by *order) {
    for (size_t low = 0, high = state->n_sorted; low < high;) {
        const size_t middle = low + (high - low) / 2;
        const int side = order(key, state->sorted[middle]);
        if (!side) return state->sorted[middle];
        if (side < 0)
            high = middle;
        else
            low = middle + 1;
    }
    void *node = tfind(key, (void *const *)&state->by_path, order);
    return node ? *(state_tensor **)node : NULL;
}

state_tensor *core_state_find(const dcp_state *state, const char *path) {
    const state_tensor key = {.tensor = {.path = path}};
    return find_by(state, &key, core_state_compare);
}

/* `key` is the path of a folder, with a '/' at the end. All tensors in the folder compare equal to
 * it; they are contiguous in the order by path. */
static int by_folder(const void *key, const void *tensor) {
    const char *folder = key;
    return strncmp(folder, ((const state_tensor *)tensor)->tensor.path, strlen(folder));
}

core_section core_section_of(const char *path) {
    static const char *const names[CORE_SECTION_OTHER] = {
        [CORE_SECTION_MODEL] = "/model/",
        [CORE_SECTION_OPTIMIZER] = "/optimizer/",
        [CORE_SECTION_FILES] = "/files/",
    };
    for (core_section s = 0; s < CORE_SECTION_OTHER; s++)
        if (!strncmp(path, names[s], strlen(names[s]))) return s;
    return CORE_SECTION_OTHER;
}

/* Returns true if the sections from `first` to `last`, except /files, have tensors, and none of
 * these has changed. */
static bool are_unchanged(const core_section_changes *c, core_section first, core_section last) {
    size_t changed = 0, unchanged = 0;
    for (core_section s = first; s <= last; s++) {
        if (s == CORE_SECTION_FILES) continue;
        changed += c->changed[s];
        unchanged += c->unchanged[s];
    }
    return unchanged && !changed;
}

void core_section_diagnose(const core_section_changes *c, uint64_t step, uint64_t before,
                           char *text, size_t size) {
    const unsigned long long now = step, then = before;
    text[0] = 0;
    if (are_unchanged(c, 0, CORE_SECTION_OTHER))
        snprintf(text, size,
                 "step %llu: no byte of any tensor differs from step %llu: the optimizer's update "
                 "did not reach what is saved, or it was zero, as with a learning rate of 0",
                 now, then);
    else if (c->changed[CORE_SECTION_OPTIMIZER] &&
             are_unchanged(c, CORE_SECTION_MODEL, CORE_SECTION_MODEL))
        snprintf(text, size,
                 "step %llu: tensors under /optimizer changed since step %llu, but no byte under "
                 "/model did: the update did not reach the parameters that are saved, or it was "
                 "zero, as with a learning rate of 0",
                 now, then);
    else if (c->changed[CORE_SECTION_MODEL] &&
             are_unchanged(c, CORE_SECTION_OPTIMIZER, CORE_SECTION_OPTIMIZER))
        snprintf(text, size,
                 "step %llu: tensors under /model changed since step %llu, but no byte under "
                 "/optimizer did: the optimizer's state that is saved is not the one in use",
                 now, then);
}

int core_state_check_folders(const dcp_state *state, const char *path, dcp_error *err) {
    char folder[DCP_MAX_PATH + 2];
    for (const char *c = strchr(path + 1, '/'); c; c = strchr(c + 1, '/')) {
        memcpy(folder, path, (size_t)(c - path));
        folder[c - path] = 0;
        if (core_state_find(state, folder))
            return core_fail_tensor(core_fail(err, DCP_ERR_ARG,
                                              "tensor %s: %s is a tensor, not a folder", path,
                                              folder),
                                    path, err);
    }
    snprintf(folder, sizeof folder, "%s/", path);
    const state_tensor *inside = find_by(state, folder, by_folder);
    if (inside)
        return core_fail_tensor(core_fail(err, DCP_ERR_ARG,
                                          "tensor %s: it is the folder of tensor %s", path,
                                          inside->tensor.path),
                                path, err);
    return DCP_OK;
}

static int tensor_check(const dcp_tensor *t, uint64_t *bytes, dcp_error *err) {
    const char *what;
    if (!core_path_valid(t->path, &what))
        return core_fail_tensor(core_fail(err, DCP_ERR_ARG, "tensor path \"%.80s\" is refused: %s",
                                          t->path ? t->path : "(null)", what),
                                t->path ? t->path : "", err);
    if (t->dtype == DCP_DTYPE_NONE)
        return core_fail_tensor(
            core_fail(err, DCP_ERR_ARG, "tensor %s: dtype 0 is not a dtype; was tensor->dtype set?",
                      t->path),
            t->path, err);
    if (!core_tensor_size(t->dtype, t->ndim, t->shape, bytes))
        return core_fail_tensor(
            core_fail(err, DCP_ERR_ARG,
                      "tensor %s: needs a known dtype, at most %d dimensions and less than 2^62 "
                      "bytes (dtype %d, %u dimensions)",
                      t->path, DCP_MAX_DIMS, (int)t->dtype, t->ndim),
            t->path, err);
    return DCP_OK;
}

static int box_check(const dcp_tensor *t, const dcp_box *box, dcp_error *err) {
    for (uint32_t d = 0; d < core_box_dims(t->ndim); d++) {
        uint64_t size = t->ndim ? t->shape[d] : 1;
        if (box->start[d] > size || box->count[d] > size - box->start[d]) {
            char text[256], shape[256];
            core_box_print(core_box_dims(t->ndim), box, text, sizeof text);
            core_shape_print(t->ndim, t->shape, shape, sizeof shape);
            return core_fail_tensor(core_fail(err, DCP_ERR_ARG,
                                              "tensor %s of shape %s: box %s lies outside", t->path,
                                              shape, text),
                                    t->path, err);
        }
    }
    return DCP_OK;
}

bool core_state_reserve(dcp_state *state, size_t more) {
    if (more <= state->capacity - state->n) return true;
    size_t capacity = state->capacity ? 2 * state->capacity : 64;
    if (capacity < state->n + more) capacity = state->n + more;
    void *tensors = core_array_grow(state->tensors, capacity, sizeof *state->tensors);
    if (!tensors) return false;
    state->tensors = tensors;
    state->capacity = capacity;
    return true;
}

size_t core_state_tensor_bytes(size_t path_length) { return sizeof(state_entry) + path_length + 1; }

state_tensor *core_state_init_tensor(void *memory, const dcp_tensor *tensor, size_t path_length) {
    state_entry *kept = memory;
    state_tensor *t = &kept->tensor;
    kept->is_part = false;
    *t = (state_tensor){.tensor = *tensor, .boxes = &kept->box};
    core_tensor_size(tensor->dtype, tensor->ndim, tensor->shape, &t->bytes);
    t->tensor.path = memcpy(kept->path, tensor->path, path_length + 1);
    if (!tensor->ndim) t->tensor.shape[0] = 1;
    return t;
}

static int tensor_insert(dcp_state *state, const dcp_tensor *tensor, state_tensor **out,
                         dcp_error *err) {
    int status = core_state_check_folders(state, tensor->path, err);
    if (status) return status;
    const size_t length = strlen(tensor->path);
    void *memory = malloc(core_state_tensor_bytes(length));
    state_tensor *t = memory ? core_state_init_tensor(memory, tensor, length) : NULL;
    if (!t || !core_state_reserve(state, 1) || !tsearch(t, &state->by_path, core_state_compare)) {
        free(memory);
        return core_fail_memory(err, core_state_tensor_bytes(length));
    }
    assert(state->n < state->capacity);
    state->tensors[state->n++] = t;
    *out = t;
    return DCP_OK;
}

/* Makes room for one more box. */
static bool more_boxes(state_tensor *t) {
    state_box *single = &((state_entry *)t)->box, *old = t->boxes == single ? NULL : t->boxes;
    if (!t->n_boxes) return true;
    state_box *boxes = core_array_grow(old, t->n_boxes + 1, sizeof *boxes);
    if (!boxes) return false;
    if (!old) boxes[0] = *single;
    t->boxes = boxes;
    return true;
}

int core_state_check(const dcp_tensor *tensor, const dcp_box *at, state_box *box, uint64_t *bytes,
                     bool *empty, dcp_error *err) {
    int status = tensor_check(tensor, bytes, err);
    if (!status) box->box = at ? *at : dcp_box_whole(tensor);
    if (!status) status = box_check(tensor, &box->box, err);
    if (status) return status;
    *empty = !*bytes || !dcp_box_elems(&box->box, tensor->ndim);
    if (*empty || box->data || box->source || box->device_data) return DCP_OK;
    return core_fail_tensor(
        core_fail(err, DCP_ERR_ARG, "tensor %s: a box with elements needs memory", tensor->path),
        tensor->path, err);
}

int core_state_check_same(const dcp_tensor *tensor, const dcp_tensor *as, dcp_error *err) {
    if (core_tensor_same(as, tensor)) return DCP_OK;
    return core_fail_tensor(core_fail(err, DCP_ERR_MISMATCH,
                                      "tensor %s was added before with another dtype or shape",
                                      tensor->path),
                            tensor->path, err);
}

/* Adds `box`, which is the part `at` of the tensor. If `at` is NULL, it is the whole tensor. */
static int add_box(dcp_state *state, const dcp_tensor *tensor, const dcp_box *at, state_box *box,
                   dcp_error *err) {
    uint64_t bytes;
    bool empty;
    int status = core_state_check(tensor, at, box, &bytes, &empty, err);
    if (status) return status;
    state_tensor *t = core_state_find(state, tensor->path);
    if (t && (status = core_state_check_same(tensor, &t->tensor, err))) return status;
    if (!t && (status = tensor_insert(state, tensor, &t, err))) return status;
    if (empty) return DCP_OK;
    if (!more_boxes(t)) return core_fail_memory(err, (t->n_boxes + 1) * sizeof *box);
    t->boxes[t->n_boxes++] = *box;
    state->changed = core_clock_now();
    if (!box->device) return DCP_OK;
    state->device = box->device;
    state->device_bytes += dcp_box_elems(&box->box, tensor->ndim) * dcp_dtype_bytes(tensor->dtype);
    return DCP_OK;
}

int dcp_state_add(dcp_state *state, const dcp_tensor *tensor, const dcp_box *box, void *data,
                  dcp_error *err) {
    if (!state || !tensor)
        return core_fail(err, DCP_ERR_ARG, "dcp_state_add: a state and a tensor are needed");
    state_box b = {.data = data, .rank = -1};
    return add_box(state, tensor, box, &b, err);
}

/* Sets the strides of a box with elements; leaves them NULL if the box is dense. */
static int set_strides(const dcp_tensor *t, const int64_t *strides, state_box *box,
                       dcp_error *err) {
    box_strides merged;
    if (!core_strides_merge(t->ndim, dcp_dtype_bytes(t->dtype), box->box.count, strides, box->data,
                            &merged)) {
        char text[256];
        core_box_print(core_box_dims(t->ndim), &box->box, text, sizeof text);
        return core_fail_tensor(
            core_fail(err, DCP_ERR_ARG,
                      "tensor %s, box %s: the strides lead from data to addresses that do not "
                      "exist; strides are in bytes, one per dimension",
                      t->path, text),
            t->path, err);
    }
    if (!merged.dims) return DCP_OK;
    box_strides *kept = malloc(sizeof *kept);
    if (!kept) return core_fail_memory(err, sizeof *kept);
    *kept = merged;
    box->strides = kept;
    return DCP_OK;
}

int dcp_state_add_strided(dcp_state *state, const dcp_tensor *tensor, const dcp_box *box,
                          void *data, const int64_t *strides, dcp_error *err) {
    if (!state || !tensor)
        return core_fail(err, DCP_ERR_ARG,
                         "dcp_state_add_strided: a state and a tensor are needed");
    state_box b = {.data = data, .rank = -1};
    uint64_t bytes;
    int status = tensor_check(tensor, &bytes, err);
    if (!status) b.box = box ? *box : dcp_box_whole(tensor);
    if (!status) status = box_check(tensor, &b.box, err);
    if (!status && data && strides && dcp_box_elems(&b.box, tensor->ndim))
        status = set_strides(tensor, strides, &b, err);
    if (!status) status = add_box(state, tensor, box, &b, err);
    if (status)
        free((void *)b.strides);
    else
        state->has_strides |= b.strides != NULL;
    return status;
}

int dcp_state_add_source(dcp_state *state, const dcp_tensor *tensor, const dcp_box *box,
                         dcp_source_fn source, void *ctx, int rank, dcp_error *err) {
    if (!state || !tensor || !source)
        return core_fail(err, DCP_ERR_ARG,
                         "dcp_state_add_source: a state, a tensor and a source are needed");
    state_box b = {.source = source, .ctx = ctx, .rank = rank < 0 ? -1 : rank};
    return add_box(state, tensor, box, &b, err);
}

/* The caller's dcp_device may come from older headers, and then has fewer members than the
 * library's. */
static int check_device(const dcp_device *device, dcp_error *err) {
    dcp_device d;
    int status = core_sized_copy_in(&d, sizeof d, device, "DCP_DEVICE_INIT", err);
    if (!status && !(d.name && d.alloc_pinned && d.free_pinned && d.open && d.close && d.follow &&
                     d.to_host && d.to_device && d.checksum && d.record && d.wait && d.error_text))
        status = core_fail(err, DCP_ERR_ARG, "device %s: its name and all functions are required",
                           d.name ? d.name : "(null)");
    return status;
}

int dcp_state_add_device(dcp_state *state, const dcp_tensor *tensor, const dcp_box *box,
                         const dcp_device *device, void *data, dcp_error *err) {
    if (!state || !tensor || !device)
        return core_fail(err, DCP_ERR_ARG,
                         "dcp_state_add_device: a state, a tensor and a device are needed");
    int status = check_device(device, err);
    if (status) return status;
    if (state->device && state->device != device)
        return core_fail(err, DCP_ERR_UNSUPPORTED,
                         "tensor %s: its box is on device %s, but other boxes of the state are on "
                         "%s: all of a rank's boxes must be on one device",
                         tensor->path ? tensor->path : "(null)", device->name, state->device->name);
    state_box b = {.rank = -1, .device = device, .device_data = data};
    return add_box(state, tensor, box, &b, err);
}

size_t dcp_state_tensors(const dcp_state *state) { return state ? state->n : 0; }

uint64_t dcp_state_local_bytes(const dcp_state *state) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < dcp_state_tensors(state); i++)
        for (size_t k = 0; k < state->tensors[i]->n_boxes; k++)
            bytes +=
                dcp_box_elems(&state->tensors[i]->boxes[k].box, state->tensors[i]->tensor.ndim) *
                dcp_dtype_bytes(state->tensors[i]->tensor.dtype);
    return bytes;
}

static void put_next(const void *node, VISIT visit, void *next) {
    state_tensor ***at = next;
    if (visit == postorder || visit == leaf) *(*at)++ = *(state_tensor *const *)node;
}

void core_state_merge(state_tensor *const *a, size_t n, state_tensor *const *b, size_t m,
                      state_tensor **out) {
    while (n && m)
        if (core_state_compare(*a, *b) < 0)
            *out++ = *a++, n--;
        else
            *out++ = *b++, m--;
    if (n) memcpy(out, a, n * sizeof *out);
    if (m) memmove(out, b, m * sizeof *out);
}

/* The tree is sorted already, so no paths are compared if all tensors were added one at a time. */
state_tensor **core_state_sorted(const dcp_state *state) {
    state_tensor **sorted = core_array(state->n + 1, sizeof *sorted);
    if (!sorted) return NULL;
    state_tensor **from_tree = sorted + state->n_sorted, **next = from_tree;
    twalk_r(state->by_path, put_next, &next);
    core_state_merge(state->sorted, state->n_sorted, from_tree, state->n - state->n_sorted, sorted);
    return sorted;
}
