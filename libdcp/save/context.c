/* The context is made on first use and freed with its store. */
#include "save/context.h"

#include <stdlib.h>

#include "core/fail.h"
#include "device/staging.h"
#include "io/queue.h"
#include "save/history.h"
#include "save/plan.h"

static void free_context(store_attachment *attachment) {
    save_context *c = (save_context *)attachment;
    dcp_comm_destroy(c->comm);
    io_queue_destroy(c->queue);
    device_staging_close(c->staging);
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

void save_context_swap_staging(dcp_store *store, struct staging **other) {
    if (save_context_make(store, NULL)) return;
    save_context *c = save_context_of(store);
    struct staging *own = c->staging;
    c->staging = *other;
    *other = own;
}

int save_context_open_staging(dcp_store *store, const dcp_state *state, uint64_t bytes,
                              dcp_error *err) {
    uint64_t slot = STAGING_SLOT_BYTES;
    if (!state->device) return DCP_OK;
    if (bytes > state->device_bytes) bytes = (state->device_bytes + slot - 1) / slot * slot;
    unsigned slots = (unsigned)(bytes / slot < STAGING_MOST ? bytes / slot : STAGING_MOST);
    save_context *c = save_context_of(store);
    if (c->staging && (c->staging->of != state->device || c->staging->slots < slots)) {
        device_staging_close(c->staging);
        c->staging = NULL;
    }
    return c->staging ? DCP_OK : device_staging_open(state->device, bytes, &c->staging, err);
}

int save_context_follow(dcp_store *store, const dcp_state *state, uint64_t bytes, dcp_error *err) {
    int status = save_context_open_staging(store, state, bytes, err);
    if (status || !state->device) return status;
    return device_staging_follow(save_context_of(store)->staging, err);
}

int save_context_open_queue(save_context *c, dcp_error *err) {
    if (!c->queue) return io_queue_create(&c->queue, err);
    io_queue_rewind(c->queue);
    return DCP_OK;
}

void save_context_reset(save_context *c, int status) {
    io_queue_destroy(c->queue); /* it remembers its first failure */
    c->queue = NULL;
    if (status == DCP_ERR_DEVICE) {
        device_staging_close(c->staging);
        c->staging = NULL;
    } else if (c->staging) {
        device_staging_cut(c->staging, STAGING_LEAST);
    }
}
