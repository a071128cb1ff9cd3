/* A queue of positioned reads and writes. io_uring executes them, or a few threads if the kernel
 * refuses io_uring. Each request belongs to one of a few slots, each of which has a page-aligned
 * buffer; callers wait for slots. */
#pragma once

#include "io/descriptors.h"

#define IO_SLOTS 4u
#define IO_SLOT_BYTES (4u << 20)

typedef struct io_queue io_queue;

int io_queue_create(io_queue **out, dcp_error *err);
/* Like io_queue_create, but never uses io_uring. */
int io_queue_create_threads(io_queue **out, dcp_error *err);
/* First waits for requests in flight. NULL is ignored. */
void io_queue_destroy(io_queue *queue);

/* Returns the next slot in turn, after waiting until none of its requests is in flight. */
unsigned io_queue_next_slot(io_queue *queue);
/* Called between two saves: turns begin with the first slot again, so a small save uses the same
 * buffer each time instead of all of them in turn. Nothing may be in flight. */
void io_queue_rewind(io_queue *queue);
unsigned char *io_queue_buffer(const io_queue *queue, unsigned slot);

/* Queue a request. `buffer` must remain valid until the slot has been waited for. A file that is
 * opened on use (descriptors.h) is in use until the request is complete. Failures are reported by
 * io_queue_status; after a failure, further requests are dropped. If the kernel accepts no requests
 * for a few seconds, or can no longer report the results of requests in flight, these requests fail
 * with the kernel's errno. Requests are sent by io_queue_send, io_queue_next_slot and all functions
 * that wait, so all requests of a slot go to the disk together. */
void io_queue_write(io_queue *queue, unsigned slot, io_file *file, const void *buffer,
                    uint64_t bytes, uint64_t offset);
void io_queue_read(io_queue *queue, unsigned slot, io_file *file, void *buffer, uint64_t bytes,
                   uint64_t offset);

void io_queue_send(io_queue *queue);
void io_queue_wait(io_queue *queue, unsigned slot);
void io_queue_drain(io_queue *queue);

/* Returns the number of seconds spent waiting for requests so far. */
double io_queue_waited(const io_queue *queue);
/* Returns the number of bytes of all write requests since the last call. */
uint64_t io_queue_reset_written(io_queue *queue);

/* From now on, `waited` is called after each wait, with the times at which the wait began and ended
 * (core_clock_now). NULL: nothing is called. */
void io_queue_on_wait(io_queue *queue, void (*waited)(void *ctx, double begin, double end),
                      void *ctx);

/* Returns the first failure of any request so far. */
int io_queue_status(const io_queue *queue, dcp_error *err);
