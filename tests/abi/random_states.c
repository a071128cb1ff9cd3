/* random_states DIR SEED HOSTS save|load: a state of random tensors, held by the ranks at random:
 * cut by rows, by columns and into blocks, replicated among all and in groups, whole on one rank.
 * `save` saves it into DIR/global and DIR/sharded three times, with other values each time; `load`
 * loads each of them and compares. The state depends on SEED alone, its values and boxes on the
 * number of ranks as well. HOSTS: on so many hosts the ranks say that they are.
 *
 * Compiled with the headers of 1.0, so that any later library runs it: same_files.sh compares the
 * files of two. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dcp/dcp.h"
#include "dcp/mpi.h"

enum { TENSORS = 60, MOST_DIM = 1500, STEPS = 3, WAYS = 6 };

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not true: %s: %s\n", __FILE__, __LINE__, #condition,           \
                    err.message);                                                                  \
            MPI_Abort(MPI_COMM_WORLD, 1);                                                          \
        }                                                                                          \
    } while (0)

static dcp_error err;
static uint64_t seed;
static int rank, ranks;

typedef struct held {
    dcp_tensor tensor;
    dcp_box box;
    char path[64];
    unsigned char *data; /* of the box, dense */
    uint64_t elems;
} held;

static uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* A number below n that follows from the seed and two others. */
static uint64_t draw(uint64_t a, uint64_t b, uint64_t n) { return mix(mix(mix(seed) + a) + b) % n; }

static void draw_tensor(held *h, uint64_t i) {
    static const dcp_dtype types[] = {DCP_F32, DCP_BF16, DCP_F32, DCP_U8, DCP_F64, DCP_F32};
    const char *section = draw(i, 0, 2) ? "model" : "optimizer/exp_avg";
    snprintf(h->path, sizeof h->path, "/%s/%" PRIu64 ".t%" PRIu64, section, draw(i, 1, 5), i);
    h->tensor = (dcp_tensor){.path = h->path,
                             .dtype = types[draw(i, 2, sizeof types / sizeof *types)],
                             .ndim = (uint32_t)draw(i, 3, 4)};
    for (uint32_t d = 0; d < h->tensor.ndim; d++) {
        const uint64_t most = d < 2 && draw(i, 10 + d, 3) ? MOST_DIM : 9;
        h->tensor.shape[d] = draw(i, 20 + d, 40) ? 1 + draw(i, 30 + d, most) : 0;
    }
}

/* Cuts one dimension of the box into n even parts, and takes number k of them. */
static void cut(dcp_box *box, uint32_t d, uint64_t n, uint64_t k) {
    const uint64_t all = box->count[d], from = all * k / n;
    box->start[d] += from;
    box->count[d] = all * (k + 1) / n - from;
}

/* The largest number up to the square root of n that divides it. */
static uint64_t divisor(uint64_t n) {
    uint64_t of = 1;
    for (uint64_t k = 1; k * k <= n; k++)
        if (n % k == 0) of = k;
    return of;
}

static void draw_box(held *h, uint64_t i) {
    const uint64_t n = (uint64_t)ranks, r = (uint64_t)rank, part = divisor(n);
    uint64_t way = draw(i, 40, WAYS);
    h->box = dcp_box_whole(&h->tensor);
    if (!h->tensor.ndim) way = 3;
    if (h->tensor.ndim == 1 && (way == 1 || way == 2)) way = 0;
    if (way == 0) h->box = dcp_box_chunk(&h->tensor, rank, ranks); /* as FSDP does it */
    if (way == 1) cut(&h->box, 1, n, r);                           /* columns */
    if (way == 2) {                                                /* blocks */
        cut(&h->box, 0, part, r % part);
        cut(&h->box, 1, n / part, r / part);
    }
    if (way == 4) cut(&h->box, 0, n / part, r % (n / part));  /* as HSDP: `part` replicas */
    if (way == 5 && r != draw(i, 41, n)) h->box.count[0] = 0; /* on one rank; 3: on all */
}

static void make_tensors(held *all, dcp_state *state) {
    for (uint64_t i = 0; i < TENSORS; i++) {
        held *h = &all[i];
        draw_tensor(h, i);
        draw_box(h, i);
        h->elems = dcp_box_elems(&h->box, h->tensor.ndim);
        h->data = malloc(h->elems * dcp_dtype_bytes(h->tensor.dtype) + 1);
        CHECK(h->data);
        CHECK(!dcp_state_add(state, &h->tensor, &h->box, h->data, &err));
    }
}

/* The value of an element of the box: where it lies in the tensor decides. */
static uint64_t value_of(const held *h, uint64_t i, uint64_t elem, uint64_t step) {
    uint64_t at = 0, place = 1, left = elem;
    for (uint32_t d = h->tensor.ndim; d-- > 0;) {
        at += (h->box.start[d] + left % h->box.count[d]) * place;
        left /= h->box.count[d];
        place *= h->tensor.shape[d];
    }
    return (at + i * 131) * 0x9e3779b97f4a7c15u * (2 * step + 1);
}

/* Fills the boxes with a step's values, or with others; whether they have had them. */
static int set_values(held *all, uint64_t step) {
    int same = 1;
    for (uint64_t i = 0; i < TENSORS; i++) {
        const uint64_t bytes = dcp_dtype_bytes(all[i].tensor.dtype);
        for (uint64_t e = 0; e < all[i].elems; e++) {
            const uint64_t value = value_of(&all[i], i, e, step);
            const unsigned char *from = (const unsigned char *)&value + (bytes < 8 ? 8 - bytes : 0);
            unsigned char *to = all[i].data + e * bytes;
            same = same && !memcmp(to, from, bytes);
            memcpy(to, from, bytes);
        }
    }
    return same;
}

static void save(dcp_comm *comm, const char *dir, dcp_layout layout, held *all, dcp_state *state) {
    const dcp_save_options options = {.size = sizeof options, .layout = layout};
    dcp_store *store;
    CHECK(!dcp_store_open(comm, dir, NULL, &store, &err));
    for (uint64_t step = 1; step <= STEPS; step++) {
        dcp_saving *saving;
        set_values(all, step);
        CHECK(!dcp_save_async(store, step, state, "{\"a\": 1}", &options, &saving, &err));
        CHECK(!dcp_save_wait(saving, NULL, &err));
    }
    dcp_store_close(store);
}

static void load(dcp_comm *comm, const char *dir, held *all, dcp_state *state) {
    for (uint64_t step = 1; step <= STEPS; step++) {
        char path[4096];
        dcp_checkpoint *ckpt;
        snprintf(path, sizeof path, "%s/step-%08" PRIu64, dir, step);
        set_values(all, STEPS + 1);
        CHECK(!dcp_checkpoint_open(comm, path, &ckpt, &err));
        CHECK(!dcp_load(ckpt, state, NULL, &err));
        dcp_checkpoint_close(ckpt);
        CHECK(set_values(all, step));
    }
}

int main(int argc, char **argv) {
    static held all[TENSORS];
    static const char *const layouts[] = {"global", "sharded"};
    char host[32];
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK(argc == 5 && atoi(argv[3]) > 0);
    seed = strtoull(argv[2], NULL, 10);
    if (atoi(argv[3]) > 1) {
        snprintf(host, sizeof host, "host%d", rank * atoi(argv[3]) / ranks);
        setenv("DCP_HOST", host, 1);
    }
    dcp_comm *comm;
    dcp_state *state;
    CHECK(!dcp_comm_from_mpi(MPI_COMM_WORLD, &comm, &err));
    CHECK(!dcp_state_create(&state, &err));
    make_tensors(all, state);
    for (int k = 0; k < 2; k++) {
        char dir[2048];
        snprintf(dir, sizeof dir, "%s/%s", argv[1], layouts[k]);
        if (!strcmp(argv[4], "save"))
            save(comm, dir, k ? DCP_LAYOUT_SHARDED : DCP_LAYOUT_GLOBAL, all, state);
        else
            load(comm, dir, all, state);
    }
    dcp_state_destroy(state);
    dcp_comm_destroy(comm);
    for (int i = 0; i < TENSORS; i++) free(all[i].data);
    MPI_Finalize();
    return 0;
}
