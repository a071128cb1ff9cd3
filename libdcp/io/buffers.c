#include "io/buffers.h"

#include <stdint.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

/* Takes a huge page more, and gives back what lies before and behind. */
void *io_buffers_create(size_t bytes) {
    if (bytes > SIZE_MAX - HUGE_PAGE) return NULL;
    unsigned char *taken =
        mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (taken == MAP_FAILED) return NULL;
    const size_t before = (HUGE_PAGE - (uintptr_t)taken % HUGE_PAGE) % HUGE_PAGE;
    unsigned char *memory = taken + before;
    if (before) munmap(taken, before);
    munmap(memory + bytes, HUGE_PAGE - before);
    madvise(memory, bytes, MADV_HUGEPAGE); /* any answer will do */
    return memory;
}

void io_buffers_free(void *memory, size_t bytes) {
    if (memory) munmap(memory, bytes);
}
