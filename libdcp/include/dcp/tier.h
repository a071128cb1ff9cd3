/* One store of a list of stores (dcp/tiers.h). */
#ifndef DCP_TIER_H
#define DCP_TIER_H

#include <stdint.h>

#include "dcp/layout.h"
#include "dcp/size.h"

#define DCP_MAX_TIERS 8

/* One store. The same on all ranks, except for `path` and `domain`. */
typedef struct dcp_tier {
    size_t size; /* dcp/size.h */
    /* The directory. For a private store, {rank} stands for this rank's number, {host} for the name
     * of its host (DCP_HOST if it is set) and {env:NAME} for a variable of its environment. The
     * ranks that see the same directory are a node (dcp/store.h). */
    const char *path;
    uint64_t every;         /* due at steps that are multiples of it; 0: at none */
    uint32_t keep;          /* as in dcp_store_options */
    int is_private;         /* dcp_store_options.private_dirs; the layout is then sharded */
    const char *redundancy; /* for a private store: "none", "partner" or "rs(K)"; NULL: none */
    dcp_layout layout;      /* for a shared store */
    /* For a private store: dcp_store_options.domain, with braces as in the path, such as
     * "{env:RACK}"; NULL: each host is a failure domain. */
    const char *domain;
    int64_t stripe_count;  /* as in dcp_store_options */
    uint64_t stripe_bytes; /* as in dcp_store_options */
    /* As in dcp_store_options. */
    uint64_t keep_every;
    uint64_t keep_seconds;
    uint32_t keep_best;
    int keep_highest;
    const char *keep_metric;
} dcp_tier;
#define DCP_TIER_INIT DCP_SIZED(dcp_tier)

#endif
