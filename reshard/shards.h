/* A checkpoint as the source of a save: boxes that are read when the save asks for them. */
#ifndef RESHARD_SHARDS_H
#define RESHARD_SHARDS_H

#include "dcp/checkpoint.h"

typedef struct shards shards;

/* The state that rank `rank` of `size` contributes to a save of all of `ckpt` (borrowed until
 * shards_free). world > 0: cut for that many ranks, one box a tensor for each of them whose number
 * is `rank` modulo `size`; 0: this rank's part of one global file. The state is the shards'. */
int shards_make(dcp_checkpoint *ckpt, int rank, int size, int world, shards **out, dcp_error *err);
const dcp_state *shards_state(const shards *s);
void shards_free(shards *s);

/* Calls on_read with the bytes of each request that the save makes. */
void shards_on_read(shards *s, void (*on_read)(void *ctx, uint64_t bytes), void *ctx);

#endif
