/* The CPU backend: fast enough for training, and the reference for other backends. Its state
 * (cpu_state) records whether a product has failed, and contains what products of bf16 use:
 * oneDNN's engine and stream, or the memory for widened operands. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cpu/cpu.h"

#define HUGE_PAGE ((size_t)2 << 20)

static void cpu_close(kernels *k) {
    cpu_state *state = k->state;
    cpu_bf16_close(state->bf16);
    free(state->wide);
    free(state);
}

static const char *cpu_describe(const kernels *k) {
    return ((const cpu_state *)k->state)->description;
}

static void cpu_allow_tf32(kernels *k, int allow) { (void)k, (void)allow; }

static int cpu_place(const kernels *k, void **stream) {
    (void)k;
    *stream = NULL;
    return KERNELS_HOST;
}

static const char *cpu_device(const kernels *k) {
    (void)k;
    return "host";
}

static void cpu_room(kernels *k, uint64_t *unused, uint64_t *all, uint64_t *later) {
    (void)k;
    *unused = *all = *later = 0;
}

static uint64_t cpu_peak(const kernels *k) {
    (void)k;
    return 0;
}

static void cpu_span(kernels *k, unsigned span) { (void)k, (void)span; }

static int cpu_spans(kernels *k, double *seconds) {
    (void)k, (void)seconds;
    return 0;
}

/* Allocates memory in pages of 2 MiB if the system has them, except for a last part below 2 MiB.
 * Large pages cause fewer TLB misses, and a disk reads into them in fewer pieces. */
static void *alloc_huge(size_t bytes) {
    void *memory;
    if (posix_memalign(&memory, HUGE_PAGE, (bytes + 511) / 512 * 512) != 0) return NULL;
    madvise(memory, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE); /* best effort */
    return memory;
}

static void *cpu_alloc(kernels *k, size_t bytes) {
    (void)k;
    const size_t unit = 512; /* suits cache lines, and direct I/O */
    if (bytes > SIZE_MAX - HUGE_PAGE) return NULL;
    if (bytes >= HUGE_PAGE) return alloc_huge(bytes);
    return aligned_alloc(unit, bytes ? (bytes + unit - 1) / unit * unit : unit);
}

static void cpu_free(kernels *k, void *memory) {
    (void)k;
    free(memory);
}

static void cpu_upload(kernels *k, void *memory, const void *host, size_t bytes) {
    (void)k;
    memcpy(memory, host, bytes);
}

static void cpu_download(kernels *k, void *host, const void *memory, size_t bytes) {
    (void)k;
    memcpy(host, memory, bytes);
}

static const char *cpu_sync(kernels *k) {
    const cpu_state *state = k->state;
    return state->product_failed ? "oneDNN refused a matrix product (out of memory?)" : NULL;
}

static void set_kernels(kernels *k) {
    k->close = cpu_close;
    k->describe = cpu_describe;
    k->place = cpu_place;
    k->allow_tf32 = cpu_allow_tf32;
    k->device = cpu_device;
    k->room = cpu_room;
    k->peak = cpu_peak;
    k->span = cpu_span;
    k->spans = cpu_spans;
    k->alloc = cpu_alloc;
    k->free = cpu_free;
    k->alloc_host = cpu_alloc;
    k->free_host = cpu_free;
    k->upload = cpu_upload;
    k->download = cpu_download;
    k->sync = cpu_sync;
    k->linear = kernels_linear_unfused;
    cpu_activation_fill(k);
    cpu_attention_fill(k);
    cpu_bf16_fill(k);
    cpu_embedding_fill(k);
    cpu_heads_fill(k);
    cpu_loss_fill(k);
    cpu_matmul_fill(k);
    cpu_norm_fill(k);
    cpu_optimizer_fill(k);
    cpu_vector_fill(k);
}

static int cpu_open(kernels *k, unsigned number) {
    (void)number;
    cpu_state *state = calloc(1, sizeof *state);
    if (!state) return KERNELS_NO_MEMORY;
    cpu_matmul_describe(state->description, sizeof state->description);
    state->bf16 = cpu_bf16_open();
    k->state = state;
    set_kernels(k);
    return KERNELS_OK;
}

extern const kernels kernels_cpu;
const kernels kernels_cpu = {.name = "cpu", .open = cpu_open};
