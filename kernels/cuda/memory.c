/* Allocates memory on the device, and memory of the host that the device can access. Counts the
 * allocated bytes of the device, both the current number and the peak, because CUDA reports only
 * how much is in use by all processes. */
#include <stdlib.h>

#include "cuda/common/cuda_state.h"

/* The bytes that CUDA may allocate later for kernels. CUDA loads a kernel's code at the kernel's
 * first call, and then also allocates memory for registers that the kernel's threads spill. Loading
 * all kernels at the start would need more memory, although most kernels of cuBLAS are never
 * called. */
enum { LOADED_LATER = 256 << 20 };

typedef struct cuda_piece {
    void *at;
    size_t bytes;
} cuda_piece;

struct cuda_memory {
    cuda_piece *pieces; /* in no particular order */
    size_t n, room;
    uint64_t held, peak;
};

struct cuda_memory *cuda_memory_open(void) {
    struct cuda_memory *m = calloc(1, sizeof *m);
    if (m) m->held = m->peak = CUDA_WORKSPACE;
    return m;
}

void cuda_memory_close(struct cuda_memory *m) {
    if (m) free(m->pieces);
    free(m);
}

/* Adds a piece to the list. Returns nonzero if the host has no memory for the list. */
static int note_piece(struct cuda_memory *m, void *at, size_t bytes) {
    if (m->n == m->room) {
        const size_t room = m->room ? 2 * m->room : 64;
        cuda_piece *more = realloc(m->pieces, room * sizeof *more);
        if (!more) return 1;
        m->pieces = more;
        m->room = room;
    }
    m->pieces[m->n++] = (cuda_piece){at, bytes};
    m->held += bytes;
    if (m->held > m->peak) m->peak = m->held;
    return 0;
}

static void forget_piece(struct cuda_memory *m, const void *at) {
    for (size_t i = m->n; i-- > 0;) {
        if (m->pieces[i].at != at) continue;
        m->held -= m->pieces[i].bytes;
        m->pieces[i] = m->pieces[--m->n];
        return;
    }
}

static void cuda_room(kernels *k, uint64_t *unused, uint64_t *all, uint64_t *later) {
    size_t now = 0, total = 0;
    cuda_check(k, cudaMemGetInfo(&now, &total));
    *unused = now;
    *all = total;
    *later = LOADED_LATER;
}

static uint64_t cuda_peak(const kernels *k) { return ((const cuda_state *)k->state)->memory->peak; }

static void *cuda_alloc(kernels *k, size_t bytes) {
    void *memory = NULL;
    if (cudaMalloc(&memory, bytes ? bytes : 1) != cudaSuccess) {
        (void)cudaGetLastError(); /* clears the error, which the next launch would report again */
        return NULL;
    }
    if (!note_piece(cuda_of(k)->memory, memory, bytes)) return memory;
    cudaFree(memory);
    return NULL;
}

static void cuda_free(kernels *k, void *memory) {
    if (memory) forget_piece(cuda_of(k)->memory, memory);
    cuda_check(k, cudaFree(memory));
}

/* On 64-bit systems, host and device share one address space, so kernels use the host's address. */
static void *cuda_alloc_host(kernels *k, size_t bytes) {
    (void)k;
    void *memory = NULL;
    const unsigned flags = cudaHostAllocPortable | cudaHostAllocMapped;
    if (cudaHostAlloc(&memory, bytes ? bytes : 1, flags) == cudaSuccess) return memory;
    (void)cudaGetLastError();
    return NULL;
}

static void cuda_free_host(kernels *k, void *memory) {
    if (memory) cuda_check(k, cudaFreeHost(memory));
}

void cuda_memory_fill(kernels *k) {
    k->room = cuda_room;
    k->peak = cuda_peak;
    k->alloc = cuda_alloc;
    k->free = cuda_free;
    k->alloc_host = cuda_alloc_host;
    k->free_host = cuda_free_host;
}
