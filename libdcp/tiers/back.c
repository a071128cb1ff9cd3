/* A run that goes back says so at a time of its own on each rank, while stores are being filled and
 * a save may be in flight. So that is only recorded, and from then on counts in all that is asked
 * of the list's memory (tiers/notes.h). The next save is where all ranks are together: it ends the
 * fillings, those of abandoned steps before they have all their bytes, sets later steps aside in
 * every store before it saves into any, and forgets them for good. Every store then holds what it
 * would hold if the abandoned steps had never been. */
#include "tiers/back.h"

#include "core/fail.h"
#include "store/retention.h"
#include "store/returned.h"
#include "tiers/drain.h"
#include "tiers/notes.h"

/* Whatever is saved from now on, into whichever store, has a higher number than all that went
 * before, in all of them: so a store that is away, and comes back, can tell what is past. */
static void number_alike(dcp_tiers *tiers) {
    uint64_t next = 0;
    for (size_t i = 0; i < tiers->n; i++)
        if (tiers->list[i].store->save_number > next) next = tiers->list[i].store->save_number;
    for (size_t i = 0; i < tiers->n; i++) tiers->list[i].store->save_number = next;
}

int tiers_go_back(dcp_tiers *tiers, dcp_error *err) {
    int status = DCP_OK;
    if (!tiers->goes_back) return DCP_OK;
    for (size_t i = 0; i < tiers->n; i++) tiers_drain_stop(tiers, &tiers->list[i]);
    for (size_t i = 0; i < tiers->n; i++) tiers_drain_finish(tiers, &tiers->list[i]);
    for (size_t i = 0; i < tiers->n; i++) tiers_forget_abandoned(tiers, &tiers->list[i]);
    number_alike(tiers);
    for (size_t i = 0; i < tiers->n && !status; i++) {
        status = dcp_store_continue_from(tiers->list[i].store, tiers->back_to, err);
        if (!status) status = store_set_aside(tiers->list[i].store, err);
    }
    if (status) return status;
    for (size_t i = 0; i < tiers->n; i++) store_returned_go_back(tiers->list[i].store);
    tiers->goes_back = 0;
    return DCP_OK;
}

int dcp_tiers_continue_from(dcp_tiers *tiers, uint64_t step, dcp_error *err) {
    if (!tiers) return core_fail(err, DCP_ERR_ARG, "dcp_tiers_continue_from: tiers is NULL");
    tiers->goes_back = 1;
    tiers->back_to = step;
    return DCP_OK;
}
