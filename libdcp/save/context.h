/* What a store keeps for its saves, from one save to the next. The first save makes it. The store
 * carries it without knowing what is in it. While a save runs in a thread, other threads touch
 * `in_flight` only. */
#pragma once

#include "core/state_dict.h"
#include "store/store.h"

struct dcp_saving;
struct io_queue;
struct save_copy;
struct save_history;
struct save_plan;
struct staging;

/* What several stores can use in turn. */
typedef struct save_memory {
    struct staging *staging; /* of boxes on a device; NULL before the first, and after a failure */
    struct save_copy *copy;  /* of what a save in flight reads; NULL before the first */
} save_memory;

typedef struct save_context {
    store_attachment attachment;  /* first: the store's view of it */
    struct dcp_saving *in_flight; /* NULL: none */
    dcp_comm *comm; /* a duplicate of the store's, for the saving thread; NULL until it is needed */
    struct io_queue *queue; /* NULL before the first save, and after a failure */
    save_memory memory;
    const dcp_state *ahead;       /* memory.copy has its boxes, ahead of their save; NULL: none */
    double ahead_changed;         /* the state's */
    struct save_plan *plan;       /* of the last save; NULL: none yet */
    struct save_history *history; /* of the save published last; NULL: none yet */
    struct save_history *noted;   /* of the save under way */
} save_context;

/* Sees to it that the store has a context. Not collective. */
int save_context_make(dcp_store *store, dcp_error *err);

/* The store's context; NULL before save_context_make. */
save_context *save_context_of(const dcp_store *store);

/* Exchanges the store's memory for *other, so that several stores can use the same in turn. No save
 * of the store is in flight. Nothing happens where memory for the context is short. */
void save_context_swap_memory(dcp_store *store, save_memory *other);
void save_memory_free(save_memory *memory);

/* Sees to it that there are staging buffers of about `bytes` where the state has boxes on a device.
 * Not collective; no save of the store is in flight. */
int save_context_open_staging(dcp_store *store, const dcp_state *state, uint64_t bytes,
                              dcp_error *err);
/* The same on the thread that asks for the save, whose copies come after what the program has given
 * the device so far. */
int save_context_follow(dcp_store *store, const dcp_state *state, uint64_t bytes, dcp_error *err);

/* An empty queue, which is made once a store: 16 MiB of fresh memory a save
 * would cost more than the checksums do. */
int save_context_open_queue(save_context *context, dcp_error *err);

/* After a failed save: drops what the next save could not rely on. Page-locked memory stays where
 * it was not the device that failed, since taking it again would hold up the training. */
void save_context_reset(save_context *context, int status);
