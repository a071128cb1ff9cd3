/* What calls inside the C library and HDF5 take is not seen here. */
#include "heap.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void __real_free(void *memory);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void __wrap_free(void *memory);
char *__wrap_strdup(const char *text);

/* Less than nothing where memory is given back that was taken elsewhere or before. */
static ptrdiff_t now, peak;

void heap_start(void) { now = peak = 0; }
size_t heap_now(void) { return now > 0 ? (size_t)now : 0; }
size_t heap_peak(void) { return (size_t)peak; }

static void *taken(void *memory) {
    now += (ptrdiff_t)malloc_usable_size(memory);
    if (now > peak) peak = now;
    return memory;
}

void *__wrap_malloc(size_t bytes) { return taken(__real_malloc(bytes)); }

void *__wrap_calloc(size_t n, size_t bytes) { return taken(__real_calloc(n, bytes)); }

void *__wrap_realloc(void *old, size_t bytes) {
    ptrdiff_t before = (ptrdiff_t)malloc_usable_size(old);
    void *memory = __real_realloc(old, bytes);
    if (memory || !bytes) now -= before;
    return taken(memory);
}

void __wrap_free(void *memory) {
    now -= (ptrdiff_t)malloc_usable_size(memory);
    __real_free(memory);
}

char *__wrap_strdup(const char *text) {
    size_t bytes = strlen(text) + 1;
    char *copy = __wrap_malloc(bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}
