/* A load reads each byte from the file system once, however many ranks need it: with plain data
 * parallelism, with two replicas of shards, with and without a narrowing cast, and from many
 * shards. For tensors that the boxes do not cover exactly (halos, some columns and parts), it reads
 * each block of which any rank needs something once, and detects damage in all of these. */
#include "support/requests.h"
#include "support/scratch.h"

#define ROW_BYTES (64u << 10)
#define BLOCK_BYTES ((uint64_t)4 << 20)

enum { TENSORS = 3, ROWS_OF_ONE = 241, COLUMNS_OF_ONE = ROW_BYTES / 4 };

typedef enum way {
    DATA_PARALLEL,
    SHARDS_TWICE,
    WITH_HALO,
    ALL_COLUMNS,
    SOME_COLUMNS,
    ONE_PART
} way;

static dcp_tensor tensor_of(int i, char *path, dcp_dtype dtype) {
    snprintf(path, 40, "/model/t%d", i);
    return (dcp_tensor){path, dtype, 2, {ROWS_OF_ONE, COLUMNS_OF_ONE}};
}

static void cut(dcp_box *box, int dimension, uint64_t of, uint64_t part, uint64_t parts) {
    box->start[dimension] = part * of / parts;
    box->count[dimension] = (part + 1) * of / parts - box->start[dimension];
}

static dcp_box box_of(const scratch *s, way how) {
    const uint64_t rank = (uint64_t)s->rank, size = (uint64_t)s->size;
    dcp_box box = {{0}, {ROWS_OF_ONE, COLUMNS_OF_ONE}};
    if (how == SHARDS_TWICE) cut(&box, 0, ROWS_OF_ONE, rank % (size / 2), size / 2);
    if (how == WITH_HALO) {
        cut(&box, 0, ROWS_OF_ONE, rank, size);
        if (box.start[0]) box.start[0]--, box.count[0]++;
        if (rank + 1 < size) box.count[0]++;
    }
    if (how == ALL_COLUMNS) cut(&box, 1, COLUMNS_OF_ONE, rank, size);
    if (how == SOME_COLUMNS) cut(&box, 1, COLUMNS_OF_ONE / 2, rank, size);
    if (how == ONE_PART) { /* of some blocks in the middle */
        box.start[0] = 70 + rank;
        box.count[0] = 30;
    }
    return box;
}

static float element(int tensor, uint64_t row, uint64_t column) {
    return (float)((row * 31 + column * 7 + (uint64_t)tensor) % 2039);
}

static float *make_data(int tensor, const dcp_box *box) {
    float *data = malloc(dcp_box_elems(box, 2) * sizeof *data), *at = data;
    CHECK(data);
    for (uint64_t r = 0; r < box->count[0]; r++)
        for (uint64_t c = 0; c < box->count[1]; c++)
            *at++ = element(tensor, box->start[0] + r, box->start[1] + c);
    return data;
}

static void save(const scratch *s, const char *name, dcp_layout layout) {
    const dcp_save_options options = {.size = sizeof options, .layout = layout};
    dcp_store *store = scratch_store(s, s->comm, name);
    dcp_state *state;
    dcp_box box = {{0}, {0, COLUMNS_OF_ONE}};
    float *data[TENSORS];
    char path[40];
    cut(&box, 0, ROWS_OF_ONE, (uint64_t)s->rank, (uint64_t)s->size);
    SUCCEEDS(dcp_state_create(&state, err));
    for (int i = 0; i < TENSORS; i++) {
        const dcp_tensor t = tensor_of(i, path, DCP_F32);
        data[i] = make_data(i, &box);
        SUCCEEDS(dcp_state_add(state, &t, &box, data[i], err));
    }
    SUCCEEDS(dcp_save(store, 1, state, NULL, &options, NULL, err));
    dcp_state_destroy(state);
    for (int i = 0; i < TENSORS; i++) free(data[i]);
    dcp_store_close(store);
}

/* All numbers are small, so F16 can represent them, too. */
static void check_content(int tensor, const dcp_box *box, dcp_dtype dtype, const void *loaded) {
    const uint64_t n = dcp_box_elems(box, 2);
    float *want = make_data(tensor, box), *have = malloc(n * sizeof *have);
    CHECK(have && dcp_convert(dtype, loaded, DCP_F32, have, n) == DCP_OK);
    CHECK(memcmp(want, have, n * sizeof *have) == 0);
    free(want);
    free(have);
}

/* Loads, and records in requests_read what was read. Returns the status. */
static int load(const scratch *s, const char *name, way how, dcp_dtype dtype, dcp_error *failure) {
    const dcp_load_options options = {.size = sizeof options, .cast = dtype != DCP_F32};
    const dcp_box box = box_of(s, how);
    dcp_checkpoint *ckpt = scratch_open(s, s->comm, name);
    dcp_state *state;
    void *data[TENSORS];
    char path[40];
    SUCCEEDS(dcp_state_create(&state, err));
    for (int i = 0; i < TENSORS; i++) {
        const dcp_tensor t = tensor_of(i, path, dtype);
        data[i] = calloc(dcp_box_elems(&box, 2), dcp_dtype_bytes(dtype));
        CHECK(data[i]);
        SUCCEEDS(dcp_state_add(state, &t, &box, data[i], err));
    }
    requests_clear(&requests_read);
    int status = dcp_load_with(ckpt, state, &options, NULL, failure);
    dcp_checkpoint_close(ckpt);
    dcp_state_destroy(state);
    for (int i = 0; i < TENSORS; i++) {
        if (!status) check_content(i, &box, dtype, data[i]);
        free(data[i]);
    }
    return status;
}

/* The blocks of one tensor in layout global of which ranks need something. */
static uint64_t wanted_bytes(const scratch *s, way how) {
    const uint64_t all = (uint64_t)ROWS_OF_ONE * ROW_BYTES;
    uint64_t first = 70 * ROW_BYTES / BLOCK_BYTES * BLOCK_BYTES,
             end = (uint64_t)(100 + s->size - 1) * ROW_BYTES;
    if (how != ONE_PART) return all;
    end = (end + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
    return (end < all ? end : all) - first;
}

static void loads_once(const scratch *s, const char *name, way how, dcp_dtype dtype) {
    dcp_error failure = {0};
    if (load(s, name, how, dtype, &failure)) check_failed(__FILE__, __LINE__, failure.message);
    request_list all = requests_gather(&requests_read);
    const uint64_t least = TENSORS * wanted_bytes(s, how);
    if (s->rank == 0 &&
        (requests_repeated(&all) || all.bytes < least || all.bytes > least + least / 50))
        fprintf(stderr, "%s, way %d, dtype %d: %llu bytes, %llu wanted, %llu repeated\n", name, how,
                dtype, (unsigned long long)all.bytes, (unsigned long long)least,
                (unsigned long long)requests_repeated(&all));
    if (s->rank == 0) {
        CHECK(requests_repeated(&all) == 0);
        CHECK(all.bytes >= least && all.bytes <= least + least / 50);
    }
    requests_clear(&all);
}

/* A changed byte in the last block, which no rank needs completely. */
static void finds_damage(const scratch *s) {
    dcp_error failure = {0};
    char path[PATH_MAX];
    unsigned char byte;
    const off_t near_end = -(off_t)(2 << 20);
    snprintf(path, sizeof path, "%s/global/step-00000001/state.h5", s->root);
    if (s->rank == 0) {
        int fd = open(path, O_RDWR);
        off_t at = lseek(fd, near_end, SEEK_END);
        CHECK(fd >= 0 && pread(fd, &byte, 1, at) == 1);
        byte ^= 4;
        CHECK(pwrite(fd, &byte, 1, at) == 1);
        close(fd);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    int status = load(s, "global", SOME_COLUMNS, DCP_F32, &failure);
    check_same_failure(status, DCP_ERR_CORRUPT, &failure, "what was read differs");
    status = load(s, "global", WITH_HALO, DCP_F16, &failure);
    check_same_failure(status, DCP_ERR_CORRUPT, &failure, "what was read differs");
    loads_once(s, "global", ONE_PART, DCP_F32); /* it is not needed here */
}

int main(int argc, char **argv) {
    scratch s;
    scratch_begin(&s, &argc, &argv);
    save(&s, "global", DCP_LAYOUT_GLOBAL);
    for (way how = DATA_PARALLEL; how <= ONE_PART; how++)
        for (int narrow = 0; narrow < 2; narrow++)
            loads_once(&s, "global", how, narrow ? DCP_F16 : DCP_F32);
    save(&s, "sharded", DCP_LAYOUT_SHARDED);
    for (way how = DATA_PARALLEL; how < ONE_PART; how++) loads_once(&s, "sharded", how, DCP_F32);
    finds_damage(&s);
    requests_clear(&requests_read);
    return scratch_end(&s);
}
