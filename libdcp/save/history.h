/* What the last save of a store wrote, and whether a rank was slow in it. */
#pragma once

#include "comm/comm.h"
#include "comm/vote.h"
#include "dcp/save.h"
#include "format/index.h"

/* What the last save of a store wrote. It is kept in memory, to tell what changed in the next one.
 * */

struct save_plan;
struct save_request;

/* A file of the last step, for save/image.c. */
typedef struct save_file_record {
    int refused;   /* its file system shares nothing: the rest is not kept */
    uint64_t rows; /* fingerprint of the rows' paths, sizes and places */
    size_t n;
    unsigned char *age;    /* a row: for how many saves its bytes have been shared */
    unsigned char *steady; /* a row: whether any block stayed the same from the save before */
    uint64_t *sums;        /* the raw checksum of each block */
    uint64_t identity[4];  /* on the rank that wrote the tables: device, inode, time of change */
} save_file_record;

struct save_history {
    uint64_t step;
    uint64_t tensors; /* fingerprint of their paths, types and shapes */
    size_t n;
    uint64_t *prints; /* a tensor: a checksum of its blocks' */
    dcp_layout layout;
    int shards;
    save_file_record *files; /* those that this rank writes, or writes with others */
    size_t n_files;
};

/* Not collective. */
int save_history_make(const dcp_store *store, const struct save_request *r,
                      const struct save_plan *plan, struct save_history **out, dcp_error *err);
/* Collective, where this store has not saved yet. Where a step of it was loaded
 * (dcp_store_mark_intact) on all ranks, *out is made of that step's files; else it stays as it is,
 * which costs nothing. */
int save_history_recall(const dcp_store *store, const struct save_request *r,
                        const struct save_plan *plan, struct save_history **out, dcp_error *err);
void save_history_free(struct save_history *history);

/* Notes the tensors' fingerprints: `sums` are the raw checksums of the blocks of all tensors, in
 * their order, as all ranks have them. */
void save_history_note(struct save_history *now, const struct save_request *r,
                       const uint64_t *sums);

/* Not collective; at the end of a save that was published: counts the tensors that did not change
 * from `last` (NULL: none) to `now`, and warns where an update seems not to have reached what is
 * saved. */
void save_history_compare(const dcp_store *store, const struct save_history *last,
                          const struct save_history *now, const struct save_request *r,
                          dcp_report *report);

/* A fingerprint of the rows' paths, sizes and places. */
uint64_t save_history_rows(const format_row *rows, size_t n);

/* Whether a rank was slow in a save: its host, or the disk of its private store. What counts is a
 * rank's own work, not what it waited for others: seconds for each byte that it wrote. */

#define SAVE_SLOW_WORDS 61

/* Adds to a vote that this rank worked own_s seconds and wrote `bytes` of the `total` of all ranks;
 * `words` is for save_slow_find. Ranks that wrote much less than their share don't take part. */
void save_slow_vote(comm_vote *v, const dcp_comm *comm, double own_s, uint64_t bytes,
                    uint64_t total, uint64_t words[SAVE_SLOW_WORDS]);

/* After the vote: fills in slow_ratio, slow_s, median_s and slow_rank of the
 * report, where a rank was slow. Not collective; the same on all ranks. Of more than 60 ranks, the
 * median is that of 60 groups' slowest. */
void save_slow_find(const uint64_t words[SAVE_SLOW_WORDS], dcp_report *report);
