/* The save context: the objects that a store keeps from one save to the next. The first save makes
 * it; the store does not know its contents. While a save runs in a thread, other threads access
 * only `in_flight`. */
#pragma once

#include "core/state_dict.h"
#include "store/store.h"

struct dcp_saving;
struct io_queue;
struct save_copy;
struct save_history;
struct save_plan;
struct staging;

/* The memory that several stores can use in turn. */
typedef struct save_memory {
    struct staging *staging; /* for boxes on a device; NULL at first, and after a failure */
    struct save_copy *copy;  /* the copy that a save in flight reads; NULL before the first copy */
} save_memory;

typedef struct save_context {
    store_attachment attachment;  /* the part that the store knows; must be first */
    struct dcp_saving *in_flight; /* NULL: none */
    dcp_comm *comm; /* for the saving thread: a duplicate of the store's communicator; NULL until it
                       is needed */
    struct io_queue *queue; /* NULL before the first save, and after a failure */
    save_memory memory;
    const dcp_state *ahead; /* the state from which memory.copy was made ahead of the save; NULL:
                               none was made */
    double ahead_changed;   /* this state's `changed` (core/state_dict.h) at that time */
    struct save_plan *plan; /* the plan of the last save; NULL: none yet */
    struct save_history *history; /* from the save that was published last; NULL: none yet */
    struct save_history *noted;   /* the history of the current save */
} save_context;

/* Makes the store's context if it has none. Not collective. */
int save_context_make(dcp_store *store, dcp_error *err);

/* Returns the store's context; NULL before save_context_make. */
save_context *save_context_of(const dcp_store *store);

/* Swaps the store's memory with *other, so several stores can use the same memory in turn. No save
 * of the store may be in flight. Does nothing if the context cannot be allocated. */
void save_context_swap_memory(dcp_store *store, save_memory *other);
void save_memory_free(save_memory *memory);

/* Makes staging buffers of about `bytes` if the state has boxes on a device. Not collective; no
 * save of the store may be in flight. */
int save_context_open_staging(dcp_store *store, const dcp_state *state, uint64_t bytes,
                              dcp_error *err);
/* Makes staging buffers like save_context_open_staging. Called on the program's thread: copies from
 * the device then wait for the work that the program has queued on the device so far. */
int save_context_prepare_staging(dcp_store *store, const dcp_state *state, uint64_t bytes,
                                 dcp_error *err);

/* Makes the context's queue if it has none. The queue is made once per store: allocating 16 MiB of
 * fresh memory for each save would take longer than computing the checksums. */
int save_context_open_queue(save_context *context, dcp_error *err);

/* Called after a failed save: frees objects that the failure may have left unusable. Page-locked
 * memory is kept unless the device failed, since allocating it again would delay the training. */
void save_context_reset(save_context *context, int status);
