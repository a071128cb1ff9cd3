/* The requests of ranks to the file system, for tests that are linked with --wrap of io_queue_write
 * and io_queue_read: each request is recorded before it is made. */
#ifndef TESTS_MPI_REQUESTS_H
#define TESTS_MPI_REQUESTS_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "io/queue.h"
#include "support/check.h"

typedef struct request_span {
    uint64_t file, from, to; /* `file`: a hash of its path */
} request_span;

typedef struct request_list {
    request_span *list;
    size_t n, room;
    uint64_t bytes;
} request_list;

/* This rank's requests so far. */
static request_list requests_written, requests_read;
static int requests_are_dropped; /* writes are recorded but not made */

void __real_io_queue_write(io_queue *queue, unsigned slot, io_file *file, const void *buffer,
                           uint64_t bytes, uint64_t offset);
void __real_io_queue_read(io_queue *queue, unsigned slot, io_file *file, void *buffer,
                          uint64_t bytes, uint64_t offset);
void __wrap_io_queue_write(io_queue *queue, unsigned slot, io_file *file, const void *buffer,
                           uint64_t bytes, uint64_t offset);
void __wrap_io_queue_read(io_queue *queue, unsigned slot, io_file *file, void *buffer,
                          uint64_t bytes, uint64_t offset);

static inline void requests_note(request_list *l, const char *path, uint64_t bytes,
                                 uint64_t offset) {
    uint64_t hash = 5381;
    for (; path && *path; path++) hash = hash * 33 + (unsigned char)*path;
    if (l->n == l->room) {
        l->room = 2 * l->room + 64;
        l->list = realloc(l->list, l->room * sizeof *l->list);
        CHECK(l->list);
    }
    l->list[l->n++] = (request_span){hash, offset, offset + bytes};
    l->bytes += bytes;
}

void __wrap_io_queue_write(io_queue *queue, unsigned slot, io_file *file, const void *buffer,
                           uint64_t bytes, uint64_t offset) {
    requests_note(&requests_written, file->path, bytes, offset);
    if (!requests_are_dropped) __real_io_queue_write(queue, slot, file, buffer, bytes, offset);
}

void __wrap_io_queue_read(io_queue *queue, unsigned slot, io_file *file, void *buffer,
                          uint64_t bytes, uint64_t offset) {
    requests_note(&requests_read, file->path, bytes, offset);
    __real_io_queue_read(queue, slot, file, buffer, bytes, offset);
}

static inline void requests_clear(request_list *l) {
    free(l->list);
    *l = (request_list){0};
}

static inline int requests_order(const void *a, const void *b) {
    const request_span *x = a, *y = b;
    if (x->file != y->file) return x->file < y->file ? -1 : 1;
    return (x->from > y->from) - (x->from < y->from);
}

/* Gathers the requests of all ranks on rank 0, ascending; returns none on the others. */
static inline request_list requests_gather(const request_list *own) {
    int rank, size, bytes = (int)(own->n * sizeof *own->list);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int *counts = calloc(2 * (size_t)size, sizeof *counts), *starts = counts + size, total = 0;
    CHECK(counts);
    MPI_Gather(&bytes, 1, MPI_INT, counts, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++) {
        starts[r] = total;
        total += counts[r];
    }
    request_list all = {.list = malloc((size_t)total + 1), .n = (size_t)total / sizeof *all.list};
    CHECK(all.list);
    MPI_Gatherv(own->list, bytes, MPI_BYTE, all.list, counts, starts, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (all.n) qsort(all.list, all.n, sizeof *all.list, requests_order);
    for (size_t i = 0; i < all.n; i++) all.bytes += all.list[i].to - all.list[i].from;
    free(counts);
    return all;
}

/* The number of bytes that are in more than one request. The requests ascend. */
static inline uint64_t requests_repeated(const request_list *all) {
    uint64_t bytes = 0, file = 0, end = 0;
    for (size_t i = 0; i < all->n; i++) {
        const request_span *s = &all->list[i];
        if (s->file != file) end = 0;
        file = s->file;
        if (s->from < end) bytes += (s->to < end ? s->to : end) - s->from;
        if (s->to > end) end = s->to;
    }
    return bytes;
}

/* The largest number of bytes of a rank, relative to the mean. */
static inline double requests_unevenness(uint64_t bytes) {
    uint64_t most, sum;
    int size;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Allreduce(&bytes, &most, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(&bytes, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    return sum ? (double)most * size / (double)sum : 0;
}

#endif
