/* The given state: its bytes come from a counter, so every rank can make any part of it. */
#include "support/given.h"

#include <stdlib.h>
#include <string.h>

#include "support/check.h"

const char *const scheme_names[] = {"rows",  "columns", "blocks",    "copies",
                                    "pairs", "owners",  "stripes",   "mesh",
                                    "halo",  "corners", "one of two"};

static const dcp_tensor special[] = {
    {"/files/notes.txt", DCP_U8, 1, {777}},
    {"/model/blocks", DCP_F32, 2, {1050, 1000}},
    {"/model/columns", DCP_BF16, 2, {48, 3001}},
    {"/model/empty.0", DCP_F32, 2, {0, 4}},
    {"/model/empty.1", DCP_F32, 3, {3, 0, 2}},
    {"/model/four", DCP_I16, 4, {5, 3, 2, 7}},
    {"/model/one", DCP_F32, 1, {1}},
    {"/model/page", DCP_U8, 2, {3, 4096}},
    {"/model/rows", DCP_F32, 2, {3, 400001}},
    {"/model/scalar", DCP_F32, 0, {0}},
    {"/model/three", DCP_F64, 3, {7, 1, 9}},
    {"/model/uneven", DCP_F32, 2, {13, 7}},
    {"/model/vector", DCP_BF16, 1, {600011}},
    {"/optimizer/step", DCP_I64, 0, {0}},
    {"/model/eight", DCP_U16, 8, {3, 1, 2, 5, 2, 1, 3, 4}},
};
#define SPECIAL (sizeof special / sizeof *special)

static uint64_t mix(uint64_t z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ULL;
    return z ^ z >> 27;
}

static void name_tensor(given *g, size_t t) {
    dcp_dtype dtype = (dcp_dtype)(1 + t % (DCP_DTYPE_COUNT - 1));
    snprintf(g->paths[t], sizeof g->paths[t], "/small/%zu.%s", t, dcp_dtype_name(dtype));
    g->tensors[t] = (dcp_tensor){g->paths[t], dtype, 2, {t % 19 + 1, t % 5 + 1}};
    if (t < SPECIAL) g->tensors[t] = special[t];
}

static void fill(given *g, size_t t, uint64_t salt) {
    uint64_t bytes = dcp_tensor_bytes(&g->tensors[t]);
    g->data[t] = malloc(bytes + 8);
    CHECK(g->data[t]);
    for (uint64_t at = 0; at < bytes; at += 8) {
        uint64_t word = mix((salt << 56) + (t << 40) + at + 1);
        memcpy(g->data[t] + at, &word, 8);
    }
}

void given_make(given *g, uint64_t salt) {
    for (size_t t = 0; t < GIVEN_TENSORS; t++) {
        name_tensor(g, t);
        fill(g, t, salt);
    }
}

/* The special tensors, except the two that only make saves larger. */
static int is_of_few(const given *g, size_t t) {
    const char *path = g->tensors[t].path;
    return t < SPECIAL && strcmp(path, "/model/rows") != 0 && strcmp(path, "/model/vector") != 0;
}

void given_make_few(given *g, uint64_t salt) {
    for (size_t t = 0; t < GIVEN_TENSORS; t++) {
        name_tensor(g, t);
        g->data[t] = NULL;
        if (is_of_few(g, t)) fill(g, t, salt);
    }
}

void given_free(given *g) {
    for (size_t t = 0; t < GIVEN_TENSORS; t++) free(g->data[t]);
}

const dcp_tensor *given_find(const given *g, const char *path) {
    for (size_t t = 0; t < GIVEN_TENSORS; t++)
        if (strcmp(g->tensors[t].path, path) == 0) return &g->tensors[t];
    CHECK(!"a given tensor");
    return NULL;
}

/* Row by row of the last dimension. */
unsigned char *given_cut(const given *g, size_t t, const dcp_box *box, uint64_t *bytes) {
    const dcp_tensor *tensor = &g->tensors[t];
    uint32_t n = tensor->ndim;
    uint64_t size = dcp_dtype_bytes(tensor->dtype), row = n ? box->count[n - 1] * size : size;
    *bytes = dcp_box_elems(box, n) * size;
    unsigned char *out = malloc(*bytes + 1);
    CHECK(out);
    for (uint64_t i = 0; i * row < *bytes; i++) {
        uint64_t from = n ? box->start[n - 1] : 0, stride = 1, rest = i;
        for (uint32_t d = n; d-- > 0; stride *= tensor->shape[d]) {
            if (d == n - 1) continue;
            from += (box->start[d] + rest % box->count[d]) * stride;
            rest /= box->count[d];
        }
        memcpy(out + i * row, g->data[t] + from * size, row);
    }
    return out;
}

static void hold(held *h, const given *g, size_t t, dcp_box box, int filled) {
    uint64_t bytes;
    held_box *b = &h->boxes[h->n];
    *b = (held_box){t, box, given_cut(g, t, &box, &bytes)};
    if (!filled) memset(b->data, 0xee, bytes);
    CHECK(dcp_state_add(h->state, &g->tensors[t], &box, b->data, NULL) == DCP_OK);
    h->n++;
}

/* Part `rank` of `size` on dimension d. Rank 0 gets all of a scalar. */
static void cut(dcp_box *box, const dcp_tensor *t, uint32_t d, int rank, int size) {
    dcp_tensor line = {"/model/line", DCP_U8, t->ndim ? 1 : 0, {t->ndim ? t->shape[d] : 0}};
    dcp_box part = dcp_box_chunk(&line, rank, size);
    box->start[d] = part.start[0];
    box->count[d] = part.count[0];
}

static dcp_box blocks(const dcp_tensor *t, int rank, int size) {
    dcp_box box = dcp_box_whole(t);
    int across = size % 3 == 0 ? 3 : size % 2 == 0 ? 2 : 1;
    if (t->ndim < 2) return dcp_box_chunk(t, rank, size);
    cut(&box, t, 0, rank / across, size / across);
    cut(&box, t, 1, rank % across, across);
    return box;
}

/* Cuts a part of the box; the ranks of a row of the mesh hold one tensor in parallel. */
static void cut_again(dcp_box *box, uint32_t d, int rank, int size) {
    dcp_tensor line = {"/model/line", DCP_U8, 1, {box->count[d]}};
    dcp_box part = dcp_box_chunk(&line, rank, size);
    box->start[d] += part.start[0];
    box->count[d] = part.count[0];
}

/* Hybrid sharding: 8 ranks are 2 replicas of 2 x 2. Tensor parallelism cuts the last dimension of
 * some tensors and the first of others, and leaves vectors whole; FSDP cuts the first dimension of
 * the result. */
static dcp_box mesh(const dcp_tensor *t, size_t number, int rank, int size) {
    dcp_box box = dcp_box_whole(t);
    int parallel = size % 2 ? 1 : 2, rest = size / parallel;
    int shards = rest % 2 ? rest : 2;
    if (t->ndim >= 2) cut_again(&box, number % 2 ? t->ndim - 1 : 0, rank % parallel, parallel);
    if (t->ndim >= 1) cut_again(&box, 0, rank / parallel % shards, shards);
    return box;
}

static dcp_box halo(const dcp_tensor *t, int rank, int size) {
    dcp_box box = dcp_box_chunk(t, rank, size);
    if (!box.count[0] || !t->ndim) return box;
    if (box.start[0]) box.start[0]--, box.count[0]++;
    if (box.start[0] + box.count[0] < t->shape[0]) box.count[0]++;
    return box;
}

static dcp_box corner(const dcp_tensor *t, size_t number, int rank) {
    dcp_box box = dcp_box_whole(t);
    if (number % 3 == 0) box.count[0] = 0;
    for (uint32_t d = 0; d < t->ndim && box.count[d] > 2; d++) {
        box.start[d] = (number + (uint64_t)rank) % (t->shape[d] - 1);
        box.count[d] = (t->shape[d] - box.start[d] + 1) / 2;
    }
    return box;
}

static void stripes(held *h, const given *g, size_t t, int rank, int size, int filled) {
    const dcp_tensor *tensor = &g->tensors[t];
    dcp_box box = dcp_box_whole(tensor);
    uint64_t rows = box.count[0], thickness = rows > 40 ? rows / 30 : 1;
    box.count[0] = 0;
    hold(h, g, t, box, filled);
    for (uint64_t at = (uint64_t)rank * thickness; at < rows; at += (uint64_t)size * thickness) {
        box.start[0] = at;
        box.count[0] = rows - at < thickness ? rows - at : thickness;
        hold(h, g, t, box, filled);
    }
}

dcp_box given_box(const given *g, size_t t, scheme how, int rank, int size) {
    const dcp_tensor *tensor = &g->tensors[t];
    dcp_box box = dcp_box_whole(tensor);
    int half = size > 1 ? size / 2 : 1;
    switch (how) {
    case COLUMNS:
    case FEW_COLUMNS:
        cut(&box, tensor, tensor->ndim ? tensor->ndim - 1 : 0, rank, size);
        return box;
    case BLOCKS:
        return blocks(tensor, rank, size);
    case COPIES:
        return box;
    case PAIRS:
        return dcp_box_chunk(tensor, rank % half, half);
    case OWNERS:
        if (t % (size_t)size != (size_t)rank) box.count[0] = 0;
        return box;
    case MESH:
        return mesh(tensor, t, rank, size);
    case HALO:
        return halo(tensor, rank, size);
    case CORNERS:
        return corner(tensor, t, rank);
    default:
        return dcp_box_chunk(tensor, rank, size);
    }
}

void held_make(held *h, const given *g, scheme how, int rank, int size, int filled) {
    CHECK(dcp_state_create(&h->state, NULL) == DCP_OK);
    h->boxes = calloc(GIVEN_TENSORS * 64, sizeof *h->boxes);
    CHECK(h->boxes);
    h->n = 0;
    for (size_t k = 0; k < GIVEN_TENSORS; k++) {
        size_t t = k * 37 % GIVEN_TENSORS; /* the order of adding must not matter */
        if (how == ONE_OF_TWO && t % 2) continue;
        if (how >= FEW_ROWS && !is_of_few(g, t)) continue;
        if (how == STRIPES)
            stripes(h, g, t, rank, size, filled);
        else
            hold(h, g, t, given_box(g, t, how, rank, size), filled);
    }
}

void held_free(held *h) {
    for (size_t i = 0; i < h->n; i++) free(h->boxes[i].data);
    free(h->boxes);
    dcp_state_destroy(h->state);
}

int held_is_given(const held *h, const given *g) {
    for (size_t i = 0; i < h->n; i++) {
        uint64_t bytes;
        const held_box *b = &h->boxes[i];
        unsigned char *want = given_cut(g, b->tensor, &b->box, &bytes);
        int same = memcmp(want, b->data, bytes) == 0;
        free(want);
        if (!same) {
            fprintf(stderr, "tensor %s differs\n", g->tensors[b->tensor].path);
            return 0;
        }
    }
    return 1;
}
