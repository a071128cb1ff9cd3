/* What the last save of a store wrote, kept in memory for the next one: to tell what changed
 * between them. */
#ifndef DCP_SAVE_HISTORY_H
#define DCP_SAVE_HISTORY_H

#include "save/plan.h"

/* A file of the last step, for save/reuse.c. */
typedef struct file_record {
    int refused;   /* its file system shares nothing: the rest is not kept */
    uint64_t rows; /* fingerprint of the rows' paths, sizes and places */
    size_t n;
    unsigned char *age;    /* a row: for how many saves its bytes have been shared */
    unsigned char *steady; /* a row: whether any block stayed the same from the save before */
    uint64_t *sums;        /* the raw checksum of each block */
    uint64_t identity[4];  /* on the rank that wrote the tables: device, inode, time of change */
} file_record;

struct save_history {
    uint64_t step;
    uint64_t tensors; /* fingerprint of their paths, types and shapes */
    size_t n;
    uint64_t *prints; /* a tensor: a checksum of its blocks' */
    dcp_layout layout;
    int shards;
    file_record *files; /* those that this rank writes, or writes with others */
    size_t n_files;
};

/* Not collective. */
int history_make(const dcp_store *store, const save_request *r, const struct save_layout *plan,
                 struct save_history **out, dcp_error *err);
/* Collective. Where this store has not saved yet but a step of it was loaded
 * (dcp_store_mark_intact), store->history is made of that step's files. */
int history_recall(dcp_store *store, const save_request *r, const struct save_layout *plan,
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
