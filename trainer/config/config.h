/* dcp-train's configuration: a JSON file, overrides `key.path=value`, and the defaults. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "config/sources.h"
#include <dcp/save.h>
#include <dcp/tier.h>

typedef enum config_schedule {
    SCHEDULE_CONSTANT,
    SCHEDULE_LINEAR,
    SCHEDULE_COSINE,
    SCHEDULE_WSD,
} config_schedule;

#define STRIPE_UNIT 65536 /* that stripe_bytes is a multiple of */

/* Strings are borrowed from `tree`. */
typedef struct config {
    json_t *tree;  /* every key with its effective value, in the schema's order */
    json_t *model; /* the Hugging Face config object, also where the file gave its path */
    const char *init;
    const char *data_type, *data_path, *data_dtype;
    const char *eval_path; /* NULL: none */
    int packs;             /* several records a sample */
    const char *tokenizer; /* NULL: none */
    config_source sources[CONFIG_MOST_SOURCES];
    size_t n_sources;
    uint64_t eval_every; /* 0: at the last step alone */
    uint64_t sequence;   /* 0: what the file of data_path has */
    uint64_t frames;     /* 0: not given */
    uint64_t seed;
    uint64_t max_steps;
    uint64_t batch, micro; /* micro divides batch */
    uint64_t accumulation; /* 0: not given */
    double clipping;       /* 0: none */
    const char *optimizer;
    const json_t *optimizer_params; /* each of its keys; lr is one of them */
    double lr;
    const json_t *frozen; /* list of globs */
    config_schedule schedule;
    uint64_t warmup_steps;
    int warmup_is_log; /* else linear */
    double min_lr_ratio;
    double decay_ratio; /* of SCHEDULE_WSD: the share of max_steps that decays */
    const char *device; /* "auto", "cpu" or "cuda" */
    int tf32;           /* cuda.tf32 */
    int bf16;           /* whether to compute in it */
    uint64_t stage;     /* of ZeRO */
    int ring, overlap, reshard, accumulate_local;
    uint64_t replicas;
    int wrap_by_size;
    uint64_t min_num_params; /* of a unit, where wrap_by_size */
    uint64_t prefetch;
    int shares_memory;        /* ranks of a host hold gathered units once, together */
    int checkpointing;        /* of activations */
    int offloads;             /* parameters and optimizer state lie elsewhere */
    const char *offload_path; /* in a file in this folder; NULL: a GPU's, in the host's memory */
    const char *dir, *resume;
    uint64_t every, keep;           /* of the store `dir` */
    dcp_layout layout;              /* likewise */
    const char *domain;             /* of the other stores that name none; may be NULL */
    dcp_tier stores[DCP_MAX_TIERS]; /* fastest first; `dir` is the last */
    size_t n_stores;
    const char *engine_name;
    dcp_engine engine; /* of that name */
    int by_hdf5; /* engine mpio: HDF5 writes, on the calling thread, without buffers of libdcp */
    uint64_t stripe_count, stripe_bytes; /* of `dir`; the count is -1 for all, so an int64_t */
    int overwrite;
    int takes_over; /* stores without locks whose last writer may still be running */
    int async;      /* saves in flight beside the next step */
    uint64_t staging_mb, staging_bytes; /* what a fence may copy instead of waiting */
    int skip_when_busy;                 /* a save that is due while one is in flight is left out */
    const char *metrics;                /* NULL: none */
    uint64_t log_every; /* steps from line to line on stdout; 0: few lines per second */
    int restarted;      /* of a run that has published a step: by dcp-run, or requeued */
    uint64_t given;     /* the checksum of `tree` as it was given, all keys with their values */
} config;

void config_free(config *c);

/* Micro-batches of a step: the same number on any number of ranks. */
uint64_t config_micro_batches(const config *c);
/* DCP_ERR_ARG where an accumulation was given that contradicts batch, micro-batch and `world`. */
int config_check_world(const config *c, int world, dcp_error *err);
/* Why fsdp.cpu_offload alone is refused on the CPU. */
extern const char config_no_offload[];
