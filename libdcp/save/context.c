/* The context is made on first use and freed with its store. */
#include "save/context.h"

#include <stdlib.h>

#include "core/fail.h"
#include "device/staging.h"
#include "io/queue.h"
#include "save/copy.h"
#include "save/history.h"
#include "save/plan.h"

void save_memory_free(save_memory *memory) {
    device_staging_close(memory->staging); /* first: ends transfers into memory->copy */
    save_copy_free(memory->copy);
    *memory = (save_memory){0};
}

static void free_context(store_attachment *attachment) {
    save_context *c = (save_context *)attachment;
    dcp_comm_destroy(c->comm);
    io_queue_destroy(c->queue);
    save_memory_free(&c->memory);
    save_plan_free(c->plan);
    save_history_free(c->history);
    free(c);
}

int save_context_make(dcp_store *store, dcp_error *err) {
    if (store->attachment) return DCP_OK;
    save_context *c = calloc(1, sizeof *c);
    if (!c) return core_fail_memory(err, sizeof *c);
    c->attachment.free = free_context;
    store->attachment = &c->attachment;
    return DCP_OK;
}

save_context *save_context_of(const dcp_store *store) { return (save_context *)store->attachment; }

void save_context_swap_memory(dcp_store *store, save_memory *other) {
    if (save_context_make(store, NULL)) return;
    save_context *c = save_context_of(store);
    const save_memory own = c->memory;
    c->memory = *other;
    c->ahead = NULL;
    *other = own;
}

int save_context_open_staging(dcp_store *store, const dcp_state *state, uint64_t bytes,
                              dcp_error *err) {
    uint64_t slot = STAGING_SLOT_BYTES;
    if (!state->device) return DCP_OK;
    if (bytes > state->device_bytes) bytes = (state->device_bytes + slot - 1) / slot * slot;
    unsigned slots = (unsigned)(bytes / slot < STAGING_MOST ? bytes / slot : STAGING_MOST);
    save_context *c = save_context_of(store);
    if (c->memory.staging &&
        (c->memory.staging->of != state->device || c->memory.staging->slots < slots)) {
        device_staging_close(c->memory.staging);
        c->memory.staging = NULL;
    }
    return c->memory.staging ? DCP_OK
                             : device_staging_open(state->device, bytes, &c->memory.staging, err);
}

int save_context_prepare_staging(dcp_store *store, const dcp_state *state, uint64_t bytes,
                                 dcp_error *err) {
    int status = save_context_open_staging(store, state, bytes, err);
    if (status || !state->device) return status;
    return device_staging_order_after(save_context_of(store)->memory.staging, err);
}

int save_context_open_queue(save_context *c, dcp_error *err) {
    if (!c->queue) return io_queue_create(&c->queue, err);
    io_queue_rewind(c->queue);
    return DCP_OK;
}

void save_context_reset(save_context *c, int status) {
    io_queue_destroy(c->queue); /* a queue would return its first failure again */
    c->queue = NULL;
    if (status == DCP_ERR_DEVICE) {
        save_memory_free(&c->memory);
        c->ahead = NULL;
    } else if (c->memory.staging) {
        device_staging_cut(c->memory.staging, STAGING_LEAST);
    }
}
