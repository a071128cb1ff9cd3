/* Whether a rank was slow in a save: its host, or the disk of its private store. What counts is a
 * rank's own work, not what it waited for others: seconds for each byte that it wrote. */
#pragma once

#include "comm/comm.h"
#include "dcp/save.h"

#define SAVE_SLOW_WORDS 61

/* What this rank tells the others: it worked own_s seconds and wrote `bytes` of the `total` of all
 * ranks. Ranks that wrote much less than their share don't take part. */
void save_slow_tell(const dcp_comm *comm, double own_s, uint64_t bytes, uint64_t total,
                    uint64_t words[SAVE_SLOW_WORDS]);

/* From the least of all ranks' words: fills in slow_ratio, slow_s, median_s and slow_rank of the
 * report, where a rank was slow. Not collective; the same on all ranks. Of more than 60 ranks, the
 * median is that of 60 groups' slowest. */
void save_slow_find(const uint64_t words[SAVE_SLOW_WORDS], dcp_report *report);
