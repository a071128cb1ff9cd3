/* A record of what the last save of a store wrote, and finding a rank that was slow in a save. */
#pragma once

#include <stdbool.h>

#include "comm/comm.h"
#include "comm/vote.h"
#include "dcp/save.h"
#include "format/index.h"

/* The history: a record of what the last save of a store wrote. It is kept in memory, to find out
 * what the next save changes. */

struct save_plan;
struct save_request;

/* A file of the last step, for save/image.c. */
typedef struct save_file_record {
    bool refused;  /* the file's file system can't share extents; the other members are not set */
    uint64_t rows; /* save_history_rows of the file's rows */
    size_t n;
    unsigned char *age;    /* per row: how many successive saves have shared any of its bytes */
    unsigned char *steady; /* per row: at least one block did not change in that save */
    uint64_t *sums;        /* the raw checksum of each block */
    uint64_t identity[4];  /* on the rank that wrote the tables: device, inode, time of change */
} save_file_record;

struct save_history {
    uint64_t step;
    uint64_t tensors; /* fingerprint of the tensors' paths, types and shapes */
    size_t n;
    uint64_t *prints; /* per tensor: a checksum of its blocks' checksums */
    dcp_layout layout;
    int shards;
    save_file_record *files; /* the files that this rank writes, alone or with others */
    size_t n_files;
};

/* Makes an empty history for a save. Not collective. */
int save_history_make(const dcp_store *store, const struct save_request *r,
                      const struct save_plan *plan, struct save_history **out, dcp_error *err);
/* Collective; called if this store has not saved yet. If all ranks have marked the same step as
 * intact (dcp_store_mark_intact), makes *out from that step's files. Otherwise leaves *out
 * unchanged. */
int save_history_recall(const dcp_store *store, const struct save_request *r,
                        const struct save_plan *plan, struct save_history **out, dcp_error *err);
void save_history_free(struct save_history *history);

/* Records a checksum of each tensor in `now`. `sums` are the raw checksums of the blocks of all
 * tensors, in the tensors' order; they are the same on all ranks. */
void save_history_record(struct save_history *now, const struct save_request *r,
                         const uint64_t *sums);

/* Counts the tensors that did not change from `last` (NULL: none) to `now`. Logs a warning if the
 * training seems to have updated memory other than the memory that is saved. Not collective; called
 * at the end of a save that was published. */
void save_history_compare(const dcp_store *store, const struct save_history *last,
                          const struct save_history *now, const struct save_request *r,
                          dcp_report *report);

/* Returns a fingerprint of the rows' paths, offsets and sizes. */
uint64_t save_history_rows(const format_row *rows, size_t n);

/* Finding a rank that was slow in a save because of its host or the disk of its private store.
 * Ranks are compared by the time that they worked for each byte that they wrote. The time in which
 * they waited for other ranks does not count. */

#define SAVE_SLOW_WORDS 61

/* Adds this rank's figures to a vote: it worked own_s seconds and wrote `bytes` of the `total`
 * tensor bytes of all ranks. `words` receives the outcome, for save_slow_find. Ranks that wrote
 * much less than their share are not compared. */
void save_slow_vote(comm_vote *v, const dcp_comm *comm, double own_s, uint64_t bytes,
                    uint64_t total, uint64_t words[SAVE_SLOW_WORDS]);

/* If a rank was slow, fills in slow_ratio, slow_s, median_s and slow_rank of the report, the same
 * on all ranks. Not collective; called after the vote. With more than 60 ranks, the ranks form 60
 * groups, and the median is taken over the groups' slowest ranks. */
void save_slow_find(const uint64_t words[SAVE_SLOW_WORDS], dcp_report *report);
