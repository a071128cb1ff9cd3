/* What the last save of a store wrote, kept in memory for the next one: to tell what changed
 * between them. */
#ifndef DCP_SAVE_HISTORY_H
#define DCP_SAVE_HISTORY_H

#include "save/plan.h"

struct save_history {
    uint64_t step;
    uint64_t tensors; /* fingerprint of their paths, types and shapes */
    size_t n;
    uint64_t *prints; /* a tensor: a checksum of its blocks' */
};

/* Not collective. */
int history_make(const save_request *r, const struct save_layout *plan, struct save_history **out,
                 dcp_error *err);
void history_free(struct save_history *history);

/* Notes the tensors' fingerprints: `sums` are the raw checksums of the blocks of all tensors, in
 * their order, as all ranks have them. */
void history_take(struct save_history *now, const save_request *r, const uint64_t *sums);

/* Not collective; at the end of a save. Where it was published (`status`), counts the tensors that
 * it found unchanged, warns where an update seems not to have reached what is saved, and keeps
 * store->noted for the next one. */
void history_keep(dcp_store *store, int status, const save_request *r, dcp_report *report);

#endif
