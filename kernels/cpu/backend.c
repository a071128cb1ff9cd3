/* The CPU backend: the reference that others are compared with, and fast enough to train on. All
 * its state is whether a product failed, and what products of bf16 need. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "cpu/cpu.h"

#define HUGE_PAGE ((size_t)2 << 20)

static int cpu_open(kernels *k, unsigned number) {
    (void)number;
    cpu_state *state = calloc(1, sizeof *state);
    if (!state) return KERNELS_NO_MEMORY;
    cpu_describe_products(state->description, sizeof state->description);
    state->bf16 = cpu_bf16_open();
    k->state = state;
    return KERNELS_OK;
}

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

/* On pages of 2 MiB, where the system has them, but for the end: fewer misses in address
 * translation, and a disk reads them in fewer pieces. */
static void *alloc_huge(size_t bytes) {
    void *memory;
    if (posix_memalign(&memory, HUGE_PAGE, (bytes + 511) / 512 * 512) != 0) return NULL;
    madvise(memory, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE); /* if it can */
    return memory;
}

static void *cpu_alloc(kernels *k, size_t bytes) {
    (void)k;
    const size_t unit = 512; /* cache lines, and what disks want of memory they read */
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

extern const kernels kernels_cpu;
const kernels kernels_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .describe = cpu_describe,
    .place = cpu_place,
    .allow_tf32 = cpu_allow_tf32,
    .device = cpu_device,
    .room = cpu_room,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .alloc_host = cpu_alloc,
    .free_host = cpu_free,
    .upload = cpu_upload,
    .download = cpu_download,
    .sync = cpu_sync,
    .copy = cpu_copy,
    .zero = cpu_zero,
    .scale = cpu_scale,
    .add = cpu_add,
    .copy_rows = cpu_copy_rows,
    .sum_rows = cpu_sum_rows,
    .matmul = cpu_matmul,
    .narrow = cpu_narrow,
    .narrow_on = cpu_narrow_on,
    .widen = cpu_widen,
    .widen_upper = cpu_widen_upper,
    .matmul_bf16 = cpu_matmul_bf16,
    .matmul_bf16_keeps = cpu_matmul_bf16_keeps,
    .linear = kernels_linear_apart,
    .embedding_forward = cpu_embedding_forward,
    .embedding_backward = cpu_embedding_backward,
    .patches = cpu_patches,
    .rmsnorm_forward = cpu_rmsnorm_forward,
    .rmsnorm_backward = cpu_rmsnorm_backward,
    .layernorm_forward = cpu_layernorm_forward,
    .layernorm_backward = cpu_layernorm_backward,
    .heads_forward = cpu_heads_forward,
    .heads_backward = cpu_heads_backward,
    .attention_scratch = cpu_attention_scratch,
    .attention_forward = cpu_attention_forward,
    .attention_backward = cpu_attention_backward,
    .activation_forward = cpu_activation_forward,
    .activation_backward = cpu_activation_backward,
    .gated_forward = cpu_gated_forward,
    .gated_backward = cpu_gated_backward,
    .cross_entropy_forward = cpu_cross_entropy_forward,
    .cross_entropy_backward = cpu_cross_entropy_backward,
    .update = cpu_update,
    .row_sumsq = cpu_row_sumsq,
    .exact_add = cpu_exact_add,
};
