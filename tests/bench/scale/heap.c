/* What calls inside the C library and HDF5 take is not seen here. */
#include "heap.h"

#include <limits.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>

#define LARGE_BYTES (32 << 10)

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void __real_free(void *memory);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void __wrap_free(void *memory);
char *__wrap_strdup(const char *text);

static heap at_first, *used = &at_first;

heap *heap_use(heap *to) {
    heap *before = used;
    used = to ? to : &at_first;
    return before;
}

void heap_keep_untouched(void) {
    mallopt(M_MMAP_THRESHOLD, LARGE_BYTES);
    mallopt(M_MMAP_MAX, INT_MAX);
}

void heap_start(void) { *used = (heap){0}; }
size_t heap_now(void) { return used->now > 0 ? (size_t)used->now : 0; }
size_t heap_peak(void) { return (size_t)used->peak; }

void heap_add(ptrdiff_t bytes) {
    used->now += bytes;
    if (used->now > used->peak) used->peak = used->now;
}

static void *taken(void *memory) {
    heap_add((ptrdiff_t)malloc_usable_size(memory));
    return memory;
}

void *__wrap_malloc(size_t bytes) { return taken(__real_malloc(bytes)); }

void *__wrap_calloc(size_t n, size_t bytes) { return taken(__real_calloc(n, bytes)); }

void *__wrap_realloc(void *old, size_t bytes) {
    ptrdiff_t before = (ptrdiff_t)malloc_usable_size(old);
    void *memory = __real_realloc(old, bytes);
    if (memory || !bytes) used->now -= before;
    return taken(memory);
}

void __wrap_free(void *memory) {
    used->now -= (ptrdiff_t)malloc_usable_size(memory);
    __real_free(memory);
}

char *__wrap_strdup(const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = __wrap_malloc(bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}
