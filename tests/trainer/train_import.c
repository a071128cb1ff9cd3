/* A state with bf16 weights, no moments and files, as an import makes it, and a name without its
 * family's prefix: a run starts from it with zero moments and its own names, and carries the files
 * on; on any number of ranks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "dcp/dcp.h"
#include "dcp/mpi.h"
#include "state/state_load.h"
#include "support/check.h"

enum { ROWS = 7, COLS = 9, FILE_BYTES = 29 };
static const model_param params[] = {
    {.name = "embed.weight", .ndim = 2, .shape = {ROWS, COLS}},
    {.name = "model.norm.weight", .base = 6, .ndim = 1, .shape = {3}},
};
static const size_t n_params[] = {2};
static const char vocabulary[FILE_BYTES + 1] = "{\"a\": 0, \"b\": 1, \"c\": 2}     ";

static uint16_t half(size_t i) { return (uint16_t)(0x3f80 + i); } /* bf16 from 1 upwards */

/* Rank 0 alone writes what an import would. */
static void import(const char *dir) {
    uint16_t embed[ROWS * COLS], norm[3];
    for (size_t i = 0; i < ROWS * COLS; i++) embed[i] = half(i);
    for (size_t i = 0; i < 3; i++) norm[i] = half(100 + i);
    const dcp_tensor tensors[] = {
        {.path = "/model/embed.weight", .dtype = DCP_BF16, .ndim = 2, .shape = {ROWS, COLS}},
        {.path = "/model/norm.weight", .dtype = DCP_BF16, .ndim = 1, .shape = {3}},
        {.path = "/files/vocab.json", .dtype = DCP_U8, .ndim = 1, .shape = {FILE_BYTES}},
    };
    void *const data[] = {embed, norm, (void *)vocabulary};
    dcp_comm *self;
    dcp_store *store;
    dcp_state *state;
    CHECK(dcp_comm_self(&self, NULL) == DCP_OK);
    CHECK(dcp_store_open(self, dir, NULL, &store, NULL) == DCP_OK);
    CHECK(dcp_state_create(&state, NULL) == DCP_OK);
    for (size_t i = 0; i < 3; i++)
        CHECK(dcp_state_add(state, &tensors[i], NULL, data[i], NULL) == DCP_OK);
    CHECK(dcp_save(store, 0, state, NULL, NULL, NULL, NULL) == DCP_OK);
    dcp_state_destroy(state);
    dcp_store_close(store);
    dcp_comm_destroy(self);
}

static void check_loaded(const train_state *s) {
    for (size_t p = 0; p < 2; p++) {
        const fsdp_param *param = &s->layout->units[0].params[p];
        const uint64_t first = param->box.start[0] * param->row_elems + 100 * p;
        for (uint64_t i = 0; i < param->elems; i++) {
            const uint32_t bits = (uint32_t)half(first + i) << 16;
            CHECK(memcmp(&bits, &s->params[param->param_at + i], sizeof bits) == 0);
            for (size_t slot = 0; slot < s->optimizer->n_slots; slot++)
                CHECK(((const float *)s->slots[slot])[param->grad_at + i] == 0);
        }
    }
}

/* Saves the state as step 1 and looks into it. */
static void check_carried(const train_state *s, dcp_comm *comm, const char *dir) {
    dcp_store *store;
    dcp_state *state;
    dcp_checkpoint *ckpt;
    char found[FILE_BYTES];
    CHECK(dcp_store_open(comm, dir, NULL, &store, NULL) == DCP_OK);
    CHECK(state_register(s, STATE_ALL, &state, NULL) == DCP_OK);
    CHECK(dcp_save(store, 1, state, NULL, NULL, NULL, NULL) == DCP_OK);
    CHECK(dcp_checkpoint_open(comm, dir, &ckpt, NULL) == DCP_OK);
    CHECK(dcp_checkpoint_step(ckpt) == 1 && dcp_checkpoint_tensors(ckpt) == 7);
    const dcp_box all = dcp_box_whole(dcp_checkpoint_find(ckpt, "/files/vocab.json"));
    CHECK(dcp_checkpoint_read(ckpt, "/files/vocab.json", &all, found, NULL) == DCP_OK);
    CHECK(memcmp(found, vocabulary, FILE_BYTES) == 0);
    CHECK(dcp_checkpoint_find(ckpt, "/model/model.norm.weight")->dtype == DCP_F32);
    dcp_checkpoint_close(ckpt);
    dcp_state_destroy(state);
    dcp_store_close(store);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, world, with_slots = -1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &world);
    char dir[64];
    snprintf(dir, sizeof dir, "train_import.%d", world);
    if (rank == 0) import(dir);
    MPI_Barrier(MPI_COMM_WORLD);
    kernels *k;
    fsdp_layout *layout;
    train_state *s;
    dcp_comm *comm;
    dcp_checkpoint *ckpt;
    CHECK(kernels_open("cpu", &k) == KERNELS_OK);
    CHECK(fsdp_layout_create(params, n_params, 1, rank, world, 1, 0, &layout, NULL) == DCP_OK);
    CHECK(state_create(layout, optim_type_find("AdamW"), k, NULL, NULL, world > 1, ".", &s, NULL) ==
          DCP_OK);
    CHECK(dcp_comm_from_mpi(MPI_COMM_WORLD, &comm, NULL) == DCP_OK);
    CHECK(dcp_checkpoint_open(comm, dir, &ckpt, NULL) == DCP_OK);
    CHECK(state_load(s, MPI_COMM_WORLD, ckpt, STATE_ALL, DCP_ENGINE_AUTO, &with_slots, NULL) ==
          DCP_OK);
    dcp_checkpoint_close(ckpt);
    CHECK(with_slots == 0 && s->n_files == 1);
    check_loaded(s);
    check_carried(s, comm, dir);
    dcp_comm_destroy(comm);
    state_destroy(s);
    fsdp_layout_destroy(layout);
    kernels_close(k);
    char command[96];
    snprintf(command, sizeof command, "rm -r %s", dir);
    MPI_Barrier(MPI_COMM_WORLD); /* others still read it */
    CHECK(rank != 0 || system(command) == 0);
    MPI_Finalize();
    return 0;
}
