/* Each leader looks through its own directory; the lowest of what they find goes on all nodes. */
#include "store/room.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "core/fail.h"
#include "step/hold.h"
#include "store/retention.h"

#define STANDS ((uint64_t)1 << 63) /* in a turn: a step of its own name, which go last */
#define NO_TURN UINT64_MAX

/* When it is the step's turn to go; NO_TURN: it stays. `newest`: the newest that all nodes have of
 * those that are not set aside. */
static uint64_t turn_of(const dcp_store *store, const dcp_step *step, uint64_t newest) {
    int goes_aside = store->abandon_pending && step->step > store->continue_from;
    int is_intact = store->has_intact && step->step == store->newest_intact;
    if (step->kind == DCP_STEP_ABANDONED) return step->step;
    if (step->kind == DCP_STEP_PARTIAL || is_intact || store_is_pinned(store, step->step))
        return NO_TURN;
    if (goes_aside) return step->step;
    return step->step < newest ? STANDS | step->step : NO_TURN;
}

static uint64_t find_turn(const dcp_store *store, const dcp_step *steps, size_t n, uint64_t newest,
                          uint64_t from) {
    uint64_t first = NO_TURN;
    for (size_t i = 0; i < n; i++) {
        uint64_t turn = turn_of(store, &steps[i], newest);
        if (turn >= from && turn < first && !step_hold_is_held(store->dir_fd, steps[i].name))
            first = turn;
    }
    return first;
}

/* Whether any is gone. Those that are held on this node stay. */
static int give_up(dcp_store *store, const dcp_step *steps, size_t n, uint64_t newest,
                   uint64_t turn) {
    dcp_error why;
    int given_up = 0;
    for (size_t i = 0; i < n; i++) {
        int kept;
        if (turn_of(store, &steps[i], newest) != turn) continue;
        if (store_discard_unheld(store, steps[i].name, &kept, &why)) {
            store_log(store, DCP_LOG_WARNING, "an old step stays: %s", why.message);
            continue;
        }
        if (kept) continue;
        store_log(store, DCP_LOG_WARNING, "%s/%s is given up to make room", store->dir,
                  steps[i].name);
        given_up = 1;
    }
    return given_up;
}

/* Collective: gives up what has the next turn, from *from on; *from: where to go on, NO_TURN where
 * none was left. *made: whether any node has made room. */
static int give_up_next(dcp_store *store, const dcp_step *steps, size_t n, uint64_t newest,
                        uint64_t *from, uint64_t *made, dcp_error *err) {
    int leads = store_leads(store);
    uint64_t turn = leads ? find_turn(store, steps, n, newest, *from) : NO_TURN;
    int status = comm_allreduce(store->comm, &turn, 1, DCP_REDUCE_MIN, err);
    if (status) return status;
    *from = turn == NO_TURN ? NO_TURN : turn + 1;
    if (turn == NO_TURN) return DCP_OK;
    *made = leads && give_up(store, steps, n, newest, turn);
    return comm_allreduce(store->comm, made, 1, DCP_REDUCE_MAX, err);
}

int store_room_make(dcp_store *store, uint64_t *from, int *made, dcp_error *err) {
    dcp_step *steps = NULL;
    size_t n = 0;
    uint64_t newest = store_newest_limit(store), gone = 0;
    int found;
    int status = store_newest(store, &steps, &n, &newest, &found, err);
    status = comm_agree(store->comm, status, err);
    if (!found) newest = 0;
    while (!status && !gone && *from != NO_TURN)
        status = give_up_next(store, steps, n, newest, from, &gone, err);
    *made = !status && gone;
    free(steps);
    return status;
}

/* ", step-... and step-..." of this node; "" where none is held. */
static void list_held(const dcp_store *store, char *text, size_t size) {
    dcp_step *steps = NULL;
    size_t n = 0, at = 0;
    text[0] = '\0';
    if (!store_leads(store) || dcp_steps_list(store->dir, &steps, &n, NULL)) return;
    for (size_t i = 0; i < n && at < size; i++)
        if (step_hold_is_held(store->dir_fd, steps[i].name))
            at += (size_t)snprintf(text + at, size - at, "%s%s", at ? ", " : "", steps[i].name);
    free(steps);
}

void store_room_explain(dcp_store *store, dcp_error *err) {
    char held[256];
    dcp_error longer = *err;
    list_held(store, held, sizeof held);
    if (held[0])
        core_fail_again(&longer, err->status, err, "%s; readers hold %s, which can't be given up",
                        err->message, held);
    longer.rank = err->rank;
    if (comm_agree(store->comm, held[0] ? longer.status : DCP_OK, &longer)) *err = longer;
}
