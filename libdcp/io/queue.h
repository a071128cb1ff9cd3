/* A queue of positioned reads and writes in flight, over io_uring, or by a few threads where the
 * kernel refuses io_uring. Each request belongs to one of a few slots, and each slot has a
 * page-aligned buffer; waiting is by slot. */
#pragma once

#include "io/descriptors.h"

#define IO_SLOTS 4u
#define IO_SLOT_BYTES (4u << 20)

typedef struct io_queue io_queue;

int io_queue_create(io_queue **out, dcp_error *err);
/* The same without io_uring, whatever the kernel says. */
int io_queue_create_threads(io_queue **out, dcp_error *err);
/* Waits for what is in flight first. NULL is ignored. */
void io_queue_destroy(io_queue *queue);

/* The next slot in turn, with nothing in flight any more. */
unsigned io_queue_next(io_queue *queue);
/* Between two saves: turns begin with the first slot again, so that a small save touches the same
 * buffer each time, and not all of them one after the other. Nothing may be in flight. */
void io_queue_rewind(io_queue *queue);
unsigned char *io_queue_buffer(const io_queue *queue, unsigned slot);

/* Queues a request; `buffer` stays the caller's until the slot was waited for. A file that is
 * opened on use (use.h) is in use until the request is done. Failures show in io_queue_status;
 * after one, further requests are dropped. Where the kernel does not take requests for some
 * seconds, or tells no more what became of those in flight, they have failed with its errno.
 * Requests are sent by io_queue_send, io_queue_next and whatever waits, so those of a slot go to
 * the disk together. */
void io_queue_write(io_queue *queue, unsigned slot, io_file *file, const void *buffer,
                    uint64_t bytes, uint64_t offset);
void io_queue_read(io_queue *queue, unsigned slot, io_file *file, void *buffer, uint64_t bytes,
                   uint64_t offset);

void io_queue_send(io_queue *queue);
void io_queue_wait(io_queue *queue, unsigned slot);
void io_queue_drain(io_queue *queue);

/* Seconds spent waiting for requests so far. */
double io_queue_waited(const io_queue *queue);
/* Bytes of all requests to write since this was asked last. */
uint64_t io_queue_take_written(io_queue *queue);

/* Calls `waited` after each wait, with its begin and end by core_clock_now; NULL: no more. */
void io_queue_tell(io_queue *queue, void (*waited)(void *ctx, double begin, double end), void *ctx);

/* The first failure of any request so far. */
int io_queue_status(const io_queue *queue, dcp_error *err);
