/* What the last save of a store wrote, and whether a rank was slow in it. */
#pragma once

#include "comm/comm.h"
#include "comm/vote.h"
#include "dcp/save.h"
#include "format/index.h"

/* What the last save of a store wrote. It is kept in memory, to find out what changed in the next.
 */

struct save_plan;
struct save_request;

/* A file of the last step, for save/image.c. */
typedef struct save_file_record {
    int refused;   /* its file system can't share extents: the rest is not kept */
    uint64_t rows; /* fingerprint of the rows' paths, sizes and places */
    size_t n;
    unsigned char *age;    /* per row: for how many saves its bytes have been shared */
    unsigned char *steady; /* per row: some block has not changed since the save before */
    uint64_t *sums;        /* the raw checksum of each block */
    uint64_t identity[4];  /* on the rank that wrote the tables: device, inode, time of change */
} save_file_record;

struct save_history {
    uint64_t step;
    uint64_t tensors; /* fingerprint of their paths, types and shapes */
    size_t n;
    uint64_t *prints; /* per tensor: a checksum of its blocks' checksums */
    dcp_layout layout;
    int shards;
    save_file_record *files; /* that this rank writes, alone or with others */
    size_t n_files;
};

/* Makes an empty history for a save. Not collective. */
int save_history_make(const dcp_store *store, const struct save_request *r,
                      const struct save_plan *plan, struct save_history **out, dcp_error *err);
/* Collective, if this store has not saved yet. If all ranks have loaded the same step of it
 * (dcp_store_mark_intact), makes *out from that step's files; otherwise leaves it as it is, which
 * costs nothing. */
int save_history_recall(const dcp_store *store, const struct save_request *r,
                        const struct save_plan *plan, struct save_history **out, dcp_error *err);
void save_history_free(struct save_history *history);

/* Notes the tensors' fingerprints: `sums` are the raw checksums of the blocks of all tensors, in
 * their order, as all ranks have them. */
void save_history_note(struct save_history *now, const struct save_request *r,
                       const uint64_t *sums);

/* Not collective, at the end of a save that was published: counts the tensors that did not change
 * from `last` (NULL: none) to `now`, and warns if an update seems not to have reached what is
 * saved. */
void save_history_compare(const dcp_store *store, const struct save_history *last,
                          const struct save_history *now, const struct save_request *r,
                          dcp_report *report);

/* Returns a fingerprint of the rows' paths, sizes and places. */
uint64_t save_history_rows(const format_row *rows, size_t n);

/* Finding a rank that was slow in a save: its host, or the disk of its private store. What counts
 * is a rank's own work without the time that it waited for others: seconds per byte that it wrote.
 */

#define SAVE_SLOW_WORDS 61

/* Adds to a vote that this rank worked own_s seconds and wrote `bytes` of the `total` of all ranks;
 * `words` is for save_slow_find. Ranks that wrote much less than their share don't take part. */
void save_slow_vote(comm_vote *v, const dcp_comm *comm, double own_s, uint64_t bytes,
                    uint64_t total, uint64_t words[SAVE_SLOW_WORDS]);

/* Not collective, after the vote: fills in slow_ratio, slow_s, median_s and slow_rank of the report
 * if a rank was slow. The same on all ranks. With more than 60 ranks, the median is that of the
 * slowest of each of 60 groups. */
void save_slow_find(const uint64_t words[SAVE_SLOW_WORDS], dcp_report *report);
