#include "tiers/notes.h"

#include "comm/comm.h"
#include "core/crc64.h"
#include "core/fail.h"
#include "step/list.h"
#include "store/publication.h"
#include "store/retention.h"

int tiers_is_abandoned(const dcp_tiers *tiers, uint64_t step) {
    return tiers->goes_back && step > tiers->back_to;
}

int tiers_has_step(const dcp_tiers *tiers, const tier *t, uint64_t step) {
    return t->has_step && t->step == step && !tiers_is_abandoned(tiers, step);
}

int tiers_is_owed(const dcp_tiers *tiers, const tier *t) {
    if (t->asked) return 1;
    if (!t->has_missed || tiers_is_abandoned(tiers, t->missed)) return 0;
    return !t->is_made_good || tiers_is_abandoned(tiers, t->made_good);
}

void tiers_note_missed(tier *t, uint64_t step) {
    if (t->has_missed && !t->is_made_good) return; /* an earlier one */
    t->missed = step;
    t->has_missed = 1;
    t->is_made_good = 0;
}

void tiers_note(tier *t, uint64_t step, int status) {
    t->failed = status != DCP_OK;
    if (status) {
        tiers_note_missed(t, step);
        return;
    }
    if (t->has_missed && !t->is_made_good) {
        t->made_good = step;
        t->is_made_good = 1;
    }
    t->step = step;
    t->has_step = 1;
}

void tiers_tell_store(const dcp_tiers *tiers, tier *t) {
    if (t->drain || (tiers->flight && tiers->flight_tier == t)) return;
    if (t->tells_intact && !t->is_marked) {
        dcp_store_mark_intact(t->store, t->intact, NULL);
        store_unpin(t->store, t->intact);
    }
    if (t->tells_unread) store_allow_replacement(t->store, t->unread);
    t->tells_intact &= t->is_marked;
    t->tells_unread = 0;
}

static void note_intact(const dcp_tiers *tiers, tier *t, uint64_t step, int is_marked) {
    t->step = step;
    t->has_step = 1;
    store_pin(t->store, step);
    if (t->tells_intact) store_unpin(t->store, t->intact);
    t->intact = step;
    t->tells_intact = 1;
    t->is_marked = is_marked;
    tiers_tell_store(tiers, t);
}

void tiers_note_intact(const dcp_tiers *tiers, tier *t, uint64_t step) {
    note_intact(tiers, t, step, 0);
}

uint64_t tiers_marks(const dcp_tiers *tiers) {
    uint64_t raw = ~0ULL;
    for (size_t i = 0; i < tiers->n; i++) {
        const tier *t = &tiers->list[i];
        const uint64_t mark[] = {t->is_marked != 0, t->is_marked ? t->intact : 0};
        raw = core_crc64_raw(raw, mark, sizeof mark);
    }
    return raw;
}

uint64_t tiers_asks(const dcp_tiers *tiers) {
    uint64_t asks = 0;
    for (size_t i = 0; i < tiers->n; i++) asks |= (uint64_t)tiers->list[i].asked << i;
    return asks;
}

/* Of a private store, nodes that have joined since the step was saved have nothing of it. What
 * could not be looked for is there. */
static int check_mark(dcp_tiers *tiers, tier *t, dcp_error *err) {
    char name[64];
    int found = 0;
    step_name_write(name, "", t->intact);
    if (store_leads(t->store) && store_has(t->store, name, &found, NULL)) found = 1;
    uint64_t is_there = (uint64_t)found;
    const int status = comm_allreduce(tiers->comm, &is_there, 1, DCP_REDUCE_MAX, err);
    if (status) return status;
    t->is_marked = 0;
    if (!is_there) {
        tiers_log(tiers, DCP_LOG_WARNING,
                  "step %llu of %s was marked as intact (dcp_tiers_mark_intact) and is not there",
                  (unsigned long long)t->intact, t->store->dir);
        store_unpin(t->store, t->intact);
        t->tells_intact = 0;
        tiers_note_lost(t, t->intact);
    }
    tiers_tell_store(tiers, t);
    return DCP_OK;
}

int tiers_check_marks(dcp_tiers *tiers, dcp_error *err) {
    int status = DCP_OK;
    for (size_t i = 0; i < tiers->n && !status; i++)
        if (tiers->list[i].is_marked) status = check_mark(tiers, &tiers->list[i], err);
    return status;
}

void tiers_note_lost(tier *t, uint64_t step) {
    if (t->step == step) t->has_step = 0;
}

void tiers_note_unread(const dcp_tiers *tiers, tier *t, uint64_t step) {
    if (tiers_has_step(tiers, t, step)) return;
    t->unread = step;
    t->tells_unread = 1;
    tiers_tell_store(tiers, t);
}

/* Which stores have the step that the run went back to may be forgotten: a save writes it anew. */
void tiers_forget_abandoned(const dcp_tiers *tiers, tier *t) {
    if (tiers_is_abandoned(tiers, t->step)) t->has_step = 0;
    if (tiers_is_abandoned(tiers, t->made_good)) t->is_made_good = 0;
    if (tiers_is_abandoned(tiers, t->missed)) t->has_missed = t->failed = 0;
    tiers_note_unread(tiers, t, tiers->back_to);
}

int dcp_tiers_mark_intact(dcp_tiers *tiers, size_t i, uint64_t step, dcp_error *err) {
    if (!tiers || i >= tiers->n)
        return core_fail(err, DCP_ERR_ARG, "dcp_tiers_mark_intact: no such store");
    note_intact(tiers, &tiers->list[i], step, 1);
    return DCP_OK;
}

int dcp_tiers_ask(dcp_tiers *tiers, size_t i, dcp_error *err) {
    if (!tiers || i >= tiers->n) return core_fail(err, DCP_ERR_ARG, "dcp_tiers_ask: no such store");
    tiers->list[i].asked = 1;
    return DCP_OK;
}

int dcp_tiers_has(const dcp_tiers *tiers, size_t i, uint64_t step) {
    return tiers && i < tiers->n && tiers_has_step(tiers, &tiers->list[i], step);
}
