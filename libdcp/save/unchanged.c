/* What changed from save to save. Fingerprints are of whole tensors and known to all ranks, so each
 * rank judges alone and all judge the same; rank 0 says it. */
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "save/history.h"
#include "store/folder.h"

/* Files of a step that this rank has a part in. */
static size_t count_files(const dcp_comm *comm, const save_request *r) {
    if (r->layout == DCP_LAYOUT_GLOBAL) return 1;
    return (size_t)(r->shards / comm->size + (comm->rank < r->shards % comm->size));
}

int history_make(const dcp_store *store, const save_request *r, const struct save_layout *plan,
                 struct save_history **out, dcp_error *err) {
    struct save_history *h = calloc(1, sizeof *h);
    if (!h) return core_fail_memory(err, sizeof *h);
    *h = (struct save_history){.step = r->step,
                               .tensors = plan->tensors,
                               .n = r->n,
                               .layout = r->layout,
                               .shards = r->shards,
                               .n_files = count_files(store->comm, r)};
    h->prints = calloc(r->n + 1, sizeof *h->prints);
    h->files = calloc(h->n_files + 1, sizeof *h->files);
    if (!h->prints || !h->files) {
        history_free(h);
        return core_fail_memory(err, r->n * sizeof *h->prints);
    }
    *out = h;
    return DCP_OK;
}

void history_free(struct save_history *history) {
    if (!history) return;
    for (size_t i = 0; history->files && i < history->n_files; i++) {
        free(history->files[i].age);
        free(history->files[i].steady);
        free(history->files[i].sums);
    }
    free(history->files);
    free(history->prints);
    free(history);
}

void history_take(struct save_history *now, const save_request *r, const uint64_t *sums) {
    for (size_t i = 0; i < r->n; i++) {
        uint64_t blocks = step_index_blocks(r->sorted[i]->bytes);
        now->prints[i] = core_crc64_raw(~0ULL, sums, blocks * sizeof *sums);
        sums += blocks;
    }
}

/* Tensors with bytes, all of them and those of the two sections that an update writes. */
typedef struct changes {
    size_t unchanged, changed;
} changes;

static void count(changes *c, int unchanged) { *(unchanged ? &c->unchanged : &c->changed) += 1; }

static int is_below(const char *path, const char *section) {
    return strncmp(path, section, strlen(section)) == 0;
}

static int is_still(const changes *c) { return c->unchanged && !c->changed; }

static void warn(const dcp_store *store, const struct save_history *last, uint64_t step,
                 const changes *state, const changes *model, const changes *optimizer) {
    unsigned long long from = last->step, to = step;
    if (is_still(state))
        store_log(store, DCP_LOG_WARNING,
                  "step %llu: no byte of any tensor differs from step %llu: the optimizer's update "
                  "did not reach what is saved, or it was zero",
                  to, from);
    else if (optimizer->changed && is_still(model))
        store_log(store, DCP_LOG_WARNING,
                  "step %llu: tensors under /optimizer changed since step %llu, but no byte under "
                  "/model did: the update did not reach the parameters that are saved, or it was "
                  "zero",
                  to, from);
    else if (model->changed && is_still(optimizer))
        store_log(store, DCP_LOG_WARNING,
                  "step %llu: tensors under /model changed since step %llu, but no byte under "
                  "/optimizer did: the optimizer's state that is saved is not the one in use",
                  to, from);
}

static void compare(const dcp_store *store, const struct save_history *last,
                    const struct save_history *now, const save_request *r, dcp_report *report) {
    changes state = {0}, model = {0}, optimizer = {0};
    for (size_t i = 0; i < r->n; i++) {
        const char *path = r->sorted[i]->tensor.path;
        int unchanged = last->prints[i] == now->prints[i];
        if (!r->sorted[i]->bytes) continue;
        report->unchanged += (uint64_t)unchanged;
        if (is_below(path, "/files/")) continue;
        count(&state, unchanged);
        if (is_below(path, "/model/")) count(&model, unchanged);
        if (is_below(path, "/optimizer/")) count(&optimizer, unchanged);
    }
    if (store->comm->rank == 0 && last->step < now->step)
        warn(store, last, now->step, &state, &model, &optimizer);
}

void history_keep(dcp_store *store, int status, const save_request *r, dcp_report *report) {
    struct save_history *last = store->history, *now = store->noted;
    store->noted = NULL;
    if (status) {
        history_free(now);
        return;
    }
    if (last && last->tensors == now->tensors && last->n == now->n)
        compare(store, last, now, r, report);
    history_free(last);
    store->history = now;
    store->history_free = history_free;
}
