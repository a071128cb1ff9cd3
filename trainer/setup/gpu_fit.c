#include "setup/gpu_fit.h"

#include <inttypes.h>
#include <stdio.h>

#include "config/config.h"
#include "fsdp/fsdp_plan.h"
#include "setup/planned.h"
#include "setup/rank_memory.h"

/* GB, of 10^9 bytes: what a GPU that is sold as one of that size leaves at least. */
static const uint64_t sizes[] = {8, 16, 24, 40, 80};
static const uint64_t bytes_of_gb = 1000000000;

/* What no plan knows of: CUDA's context, of 300 to 500 MiB, code that it loads later
 * (LOADED_LATER) and the workspace of products (CUDA_WORKSPACE). */
static const uint64_t cuda_bytes = (uint64_t)800 << 20;
/* NCCL's buffers for each rank that a rank sends to directly, on a host of 8 H100s, where they are
 * largest (3.3 GB for the 7 others: github.com/NVIDIA/nccl/issues/1685). */
static const uint64_t peer_bytes = (uint64_t)448 << 20;
enum { MOST_PEERS = 7 }; /* the other GPUs of a host; those beyond share their buffers */

/* Each of them is added to the configuration's own. */
static const struct {
    int checkpointing, offloads;
    const char *name;
} ways[] = {{0, 0, "as configured"},
            {1, 0, "with activation checkpointing"},
            {1, 1, "with activation checkpointing and cpu_offload"}};
enum { WAYS = sizeof ways / sizeof *ways };

static uint64_t peers_of(int ranks) {
    return ranks > MOST_PEERS ? MOST_PEERS : (uint64_t)ranks - 1;
}

/* Of each communicator that NCCL makes. */
static uint64_t library_bytes(const fsdp_layout *layout) {
    uint64_t peers = peers_of(layout->world);
    if (layout->shards > 1 && layout->shards < layout->world)
        peers += peers_of(layout->shards) + peers_of(layout->world / layout->shards);
    return cuda_bytes + peers * peer_bytes;
}

/* *libraries: the part of *bytes that they take. */
static int measure(const config *c, const model *m, int ranks, uint64_t sequence, uint64_t *bytes,
                   uint64_t *libraries, dcp_error *err) {
    fsdp_plan plan;
    fsdp_layout *layout = NULL;
    setup_memory needs;
    int status = setup_planned(c, m, ranks, 1, &plan, &layout, err);
    if (status == DCP_OK) status = setup_memory_predict(c, m, &plan, sequence, 0, &needs, err);
    if (status == DCP_OK) {
        *libraries = library_bytes(layout);
        *bytes = setup_memory_on_device(&needs, layout) + *libraries;
    }
    fsdp_layout_destroy(layout);
    return status;
}

static int measure_all(const config *c, model *m, int ranks, uint64_t sequence, uint64_t *bytes,
                       uint64_t *libraries, dcp_error *err) {
    int status = DCP_OK;
    for (size_t i = 0; i < WAYS && status == DCP_OK; i++) {
        config with = *c;
        with.checkpointing |= ways[i].checkpointing;
        with.offloads |= ways[i].offloads;
        model_set_checkpointing(m, with.checkpointing);
        status = measure(&with, m, ranks, sequence, &bytes[i], libraries, err);
    }
    model_set_checkpointing(m, c->checkpointing);
    return status;
}

static void print_fit(int ranks, uint64_t gb, const uint64_t *bytes) {
    size_t way = 0;
    while (way < WAYS && bytes[way] > gb * bytes_of_gb) way++;
    printf("%d %s of %" PRIu64 " GB: %s%s%s\n", ranks, ranks == 1 ? "GPU" : "GPUs", gb,
           way < WAYS ? "fits" : "does not fit", way > 0 && way < WAYS ? " " : "",
           way > 0 && way < WAYS ? ways[way].name : "");
}

int setup_gpu_fit_print(const config *c, model *m, int ranks, uint64_t sequence, dcp_error *err) {
    uint64_t bytes[WAYS], libraries;
    const int status = measure_all(c, m, ranks, sequence, bytes, &libraries, err);
    if (status != DCP_OK) return status;
    printf("\nmemory of a rank on a GPU of its own, MiB\n");
    printf("  %-46s %12.2f\n", "of CUDA and NCCL, in each of these", setup_mib(libraries));
    for (size_t i = 0; i < WAYS; i++)
        if (i == 0 || bytes[i] != bytes[i - 1])
            printf("  %-46s %12.2f\n", ways[i].name, setup_mib(bytes[i]));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) print_fit(ranks, sizes[i], bytes);
    return DCP_OK;
}
