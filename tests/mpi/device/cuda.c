/* On a GPU; skipped without one: the device's checksum of ranges anywhere, and a state that is
 * saved from its memory into the same file as from the host's, and loaded back. */
#include <cuda_runtime_api.h>

#include "core/crc64.h"
#include "core/state_dict.h"
#include "device/staging.h"
#include "support/scratch.h"

enum { BYTES = 40 << 20 };

static unsigned char *any_bytes(uint64_t bytes) {
    unsigned char *data = malloc(bytes);
    uint64_t z = 7;
    CHECK(data);
    for (uint64_t i = 0; i < bytes; i++) {
        z = z * 6364136223846793005ULL + 1442695040888963407ULL;
        data[i] = (unsigned char)(z >> 56);
    }
    return data;
}

static void checksums(const dcp_device *gpu, unsigned char *memory, const unsigned char *content) {
    static const uint64_t sizes[] = {1, 7, 8, 9, 4095, 65535, 65536, 65537, 4 << 20, BYTES - 16};
    staging *s = NULL;
    SUCCEEDS(device_staging_open(gpu, 0, &s, err));
    SUCCEEDS(device_staging_order_after(s, err));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (uint64_t from = 0; from < 10; from++) {
            uint64_t raw = 0;
            const state_box box = {.device = gpu, .device_data = memory + from};
            SUCCEEDS(device_staging_checksum(s, &box, "/a/b", 0, sizes[i], &raw, err));
            CHECK(raw == core_crc64_raw(0, content + from, sizes[i]));
        }
    device_staging_close(s);
}

static dcp_state *state_of(const scratch *s, const dcp_device *gpu, void *memory) {
    const dcp_tensor t[] = {{"/model/w", DCP_U8, 1, {(uint64_t)(BYTES - 4096) * (uint64_t)s->size}},
                            {"/model/b", DCP_U8, 1, {4096u * (uint64_t)s->size}}};
    dcp_state *state = NULL;
    SUCCEEDS(dcp_state_create(&state, err));
    for (int i = 0; i < 2; i++) {
        const dcp_box box = dcp_box_chunk(&t[i], s->rank, s->size);
        void *at = (unsigned char *)memory + (i ? BYTES - 4096 : 0);
        if (gpu)
            SUCCEEDS(dcp_state_add_device(state, &t[i], &box, gpu, at, err));
        else
            SUCCEEDS(dcp_state_add(state, &t[i], &box, at, err));
    }
    return state;
}

static void save(const scratch *s, const char *name, const dcp_state *state) {
    dcp_saving *saving = NULL;
    dcp_store *store = scratch_store(s, s->comm, name);
    SUCCEEDS(dcp_save_async(store, 5, state, NULL, NULL, &saving, err));
    dcp_save_fence(saving);
    SUCCEEDS(dcp_save_wait(saving, NULL, err));
    dcp_store_close(store);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void there_and_back(const scratch *s, const dcp_device *gpu, void *memory,
                           unsigned char *content) {
    char dir[PATH_MAX];
    dcp_checkpoint *ckpt = NULL;
    dcp_state *on_gpu = state_of(s, gpu, memory), *on_host = state_of(s, NULL, content);
    unsigned char *back = malloc(BYTES);
    save(s, "gpu", on_gpu);
    save(s, "host", on_host);
    CHECK(scratch_same(s, "gpu/step-00000005/state.h5", "host/step-00000005/state.h5"));
    CHECK(back && cudaMemset(memory, 0, BYTES) == cudaSuccess);
    snprintf(dir, sizeof dir, "%s/host", s->root);
    SUCCEEDS(dcp_checkpoint_open(s->comm, dir, &ckpt, err));
    SUCCEEDS(dcp_load(ckpt, on_gpu, NULL, err));
    dcp_checkpoint_close(ckpt);
    CHECK(cudaMemcpy(back, memory, BYTES, cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(memcmp(back, content, BYTES) == 0);
    free(back);
    dcp_state_destroy(on_gpu);
    dcp_state_destroy(on_host);
}

int main(int argc, char **argv) {
    scratch s;
    int devices = 0;
    void *memory = NULL;
    dcp_device *gpu = NULL;
    if (cudaGetDeviceCount(&devices) || !devices) {
        dcp_error err = {0}; /* without a GPU it returns nothing else */
        int status = dcp_device_cuda_create(0, NULL, &gpu, &err);
        if (status != DCP_ERR_DEVICE || strncmp(err.message, "cuda:0: ", 8)) return 1;
        printf("no GPU here\n");
        return 77;
    }
    scratch_begin(&s, &argc, &argv);
    unsigned char *content = any_bytes(BYTES);
    SUCCEEDS(dcp_device_cuda_create(0, NULL, &gpu, err));
    CHECK(cudaMalloc(&memory, BYTES) == cudaSuccess);
    CHECK(cudaMemcpy(memory, content, BYTES, cudaMemcpyHostToDevice) == cudaSuccess);
    checksums(gpu, memory, content);
    there_and_back(&s, gpu, memory, content);
    cudaFree(memory);
    dcp_device_cuda_destroy(gpu);
    free(content);
    scratch_end(&s);
    return 0;
}
