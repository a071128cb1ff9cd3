#define _GNU_SOURCE
#include "fenced_memory.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };
#define ROOM ((size_t)64 << 30) /* of addresses; each is handed out once */

static size_t bytes_of(const char *variable, size_t otherwise) {
    const char *text = getenv(variable);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

/* Returns the duration of a tick on this rank. */
static double tick_seconds(void) {
    const char *tick = getenv("FENCED_TICK"), *slow = getenv("FENCED_SLOW");
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    const int is_slow = slow && rank && strcmp(slow, rank) == 0;
    return (tick ? strtod(tick, NULL) : 0) * (is_slow ? 3 : 1);
}

int fence_map(fence *f) {
    f->tick = tick_seconds();
    f->span = KERNELS_NO_SPAN;
    f->most = bytes_of("FENCED_MEMORY", ROOM);
    f->largest = bytes_of("FENCED_LARGEST", ROOM);
    f->fd = memfd_create("fenced", MFD_CLOEXEC);
    if (f->fd < 0 || ftruncate(f->fd, (off_t)ROOM) != 0) return 1;
    f->outside = mmap(NULL, ROOM, PROT_NONE, MAP_SHARED | MAP_NORESERVE, f->fd, 0);
    f->inside = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, f->fd, 0);
    return f->outside == MAP_FAILED || f->inside == MAP_FAILED;
}

void fence_unmap(fence *f) {
    if (getenv("FENCED_REPORT")) fprintf(stderr, "fenced: at most %zu bytes\n", f->peak);
    munmap(f->outside, ROOM);
    munmap(f->inside, ROOM);
    close(f->fd);
}

void *fence_translate(const fence *f, const void *device) {
    const char *at = device;
    if (!at) return NULL;
    for (int i = 0; i < MOST_PINNED; i++)
        if (f->pinned[i].at && at >= f->pinned[i].at && at < f->pinned[i].at + f->pinned[i].bytes)
            return (void *)device;
    if (at < f->outside || at >= f->outside + f->used) {
        fprintf(stderr, "fenced: %p is not the device's memory\n", device);
        abort();
    }
    return f->inside + (at - f->outside);
}

void fence_tick(fence *f) { f->asked[f->span] += f->tick; }

void fence_wait(fence *f) { memcpy(f->over, f->asked, sizeof f->over); }

void fence_span(kernels *k, unsigned span) { fence_of(k)->span = span; }

int fence_spans(kernels *k, double *seconds) {
    memcpy(seconds, fence_of(k)->over, KERNELS_SPANS * sizeof *seconds);
    return 1;
}

uint64_t fence_peak(const kernels *k) { return fence_of(k)->peak; }

void fence_room(kernels *k, uint64_t *unused, uint64_t *all, uint64_t *later) {
    const fence *f = fence_of(k);
    *later = bytes_of("FENCED_LATER", 0);
    *all = f->most;
    *unused = f->most - f->held;
}

void fence_check_allocation(const fence *f, size_t bytes) {
    if (!f->steps) return;
    fprintf(stderr, "fenced: %zu bytes are allocated in a step\n", bytes);
    abort();
}

/* A page before each piece holds what was asked for, so that its room can be given back. */
void *fence_alloc(kernels *k, size_t bytes) {
    fence *f = fence_of(k);
    const size_t room = (bytes + PAGE - 1) / PAGE * PAGE + 2 * PAGE;
    fence_check_allocation(f, bytes);
    if (bytes > f->most - f->held || bytes > f->largest || room > ROOM - f->used) return NULL;
    const size_t at = f->used + PAGE;
    memcpy(f->inside + f->used, &bytes, sizeof bytes);
    f->used += room;
    f->held += bytes;
    if (f->held > f->peak) f->peak = f->held;
    return f->outside + at;
}

void fence_free(kernels *k, void *memory) {
    fence *f = fence_of(k);
    size_t bytes;
    if (!memory) return;
    const char *head = (char *)fence_translate(f, memory) - PAGE;
    memcpy(&bytes, head, sizeof bytes);
    f->held -= bytes;
    fallocate(f->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(head - f->inside),
              (off_t)(bytes + 2 * PAGE - 1) / PAGE * PAGE);
}

void *fence_alloc_host(kernels *k, size_t bytes) {
    fence *f = fence_of(k);
    int i = 0;
    fence_check_allocation(f, bytes);
    while (i < MOST_PINNED && f->pinned[i].at) i++;
    if (i == MOST_PINNED) return NULL;
    f->pinned[i].at = f->cpu->alloc(f->cpu, bytes);
    f->pinned[i].bytes = bytes + 1;
    return f->pinned[i].at;
}

void fence_free_host(kernels *k, void *memory) {
    fence *f = fence_of(k);
    for (int i = 0; i < MOST_PINNED; i++)
        if (f->pinned[i].at == memory) f->pinned[i].at = NULL;
    f->cpu->free(f->cpu, memory);
}
