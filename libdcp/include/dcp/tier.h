/* One store of a list of them (dcp/tiers.h). */
#ifndef DCP_TIER_H
#define DCP_TIER_H

#include <stdint.h>

#include "dcp/layout.h"
#include "dcp/size.h"

#define DCP_MAX_TIERS 8

/* One store. The same on all ranks, but for path and domain. */
typedef struct dcp_tier {
    size_t size; /* dcp/size.h */
    /* The directory. Of a private one, {rank} stands for this rank's number, {host} for its host's
     * name (DCP_HOST, where that names it) and {env:NAME} for a variable of its environment; a node
     * is known by the directory itself (dcp/store.h). */
    const char *path;
    uint64_t every;         /* due at the steps that it divides; 0: at none */
    uint32_t keep;          /* as in dcp_store_options */
    int is_private;         /* dcp_store_options.private_dirs: layout sharded, a directory a node */
    const char *redundancy; /* of a private one: "none", "partner" or "rs(K)"; NULL: none */
    dcp_layout layout;      /* of a shared one */
    /* Of a private one: dcp_store_options.domain, with braces as in the path, such as "{env:RACK}";
     * NULL: each host is a failure domain. */
    const char *domain;
    int64_t stripe_count;  /* as in dcp_store_options */
    uint64_t stripe_bytes; /* as there */
} dcp_tier;
#define DCP_TIER_INIT DCP_SIZED(dcp_tier)

#endif
