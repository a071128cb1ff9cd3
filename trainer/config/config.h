/* dcp-train's configuration: a JSON file, overrides `key.path=value`, and the defaults. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "config/lists.h"
#include <dcp/save.h>
#include <dcp/tier.h>

typedef enum config_schedule {
    SCHEDULE_CONSTANT,
    SCHEDULE_LINEAR,
    SCHEDULE_COSINE,
    SCHEDULE_WSD,
} config_schedule;

/* `tree` owns the strings. */
typedef struct config {
    json_t *tree;  /* every key with its effective value, in the schema's order */
    json_t *model; /* the Hugging Face config object, even if the file gave its path */
    const char *init;
    const char *data_type, *data_path, *data_dtype;
    const char *eval_path; /* NULL if none */
    bool packs;            /* pack several records into a sample */
    const char *tokenizer; /* NULL if none */
    config_source sources[CONFIG_MAX_SOURCES];
    size_t n_sources;
    uint64_t eval_every; /* 0: only at the last step */
    uint64_t sequence;   /* 0: the sequence length of the file at data_path */
    uint64_t frames;     /* 0 if not given */
    uint64_t seed;
    uint64_t max_steps;
    uint64_t batch, micro; /* micro divides batch */
    uint64_t accumulation; /* 0 if not given */
    double clipping;       /* 0 if none */
    const char *optimizer;
    const json_t *optimizer_params; /* all of its keys, including lr */
    double lr;
    const json_t *frozen; /* list of globs */
    config_schedule schedule;
    uint64_t warmup_steps;
    int warmup_is_log; /* otherwise linear */
    double min_lr_ratio;
    double decay_ratio; /* for SCHEDULE_WSD: the share of max_steps during which the rate decays */
    const char *device; /* "auto", "cpu" or "cuda" */
    bool tf32;          /* cuda.tf32 */
    bool bf16;          /* whether to compute in bf16 */
    uint64_t stage;     /* ZeRO's stage */
    int accumulate_local;
    bool ring, overlap, reshard;
    uint64_t replicas;
    int wrap_by_size;
    uint64_t min_num_params; /* per unit, if wrap_by_size */
    uint64_t prefetch;
    bool shares_memory;       /* the ranks of a host share one copy of a gathered unit */
    bool checkpointing;       /* activation checkpointing */
    bool offloads;            /* parameters and optimizer state are outside the device's memory */
    const char *offload_path; /* the folder of the file that holds them; NULL: with a GPU, the
                                 host's memory holds them */
    const char *dir, *resume;
    uint64_t every, keep;                         /* for the store `dir` */
    uint64_t keep_every, keep_seconds, keep_best; /* for the store `dir` */
    const char *keep_metric;                      /* the member of about.json for keep_best */
    dcp_layout layout;                            /* for the store `dir` */
    const char *domain; /* for stores other than `dir` that name no domain; may be NULL */
    dcp_tier stores[DCP_MAX_TIERS]; /* fastest first; `dir` is the last */
    size_t n_stores;
    const char *engine_name;
    dcp_engine engine; /* checkpoint.engine */
    bool by_hdf5; /* engine mpio: HDF5 writes, on the calling thread, without libdcp's buffers */
    uint64_t stripe_count, stripe_bytes; /* for `dir`; cast stripe_count to int64_t: -1 means all */
    bool overwrite;
    bool takes_over; /* take over stores without locks whose last writer may still be running */
    bool async;      /* save in the background of the next step */
    uint64_t staging_mb, staging_bytes; /* how much a fence may copy instead of waiting */
    int skip_when_busy;                 /* skip a save that is due while another one is in flight */
    const char *metrics;                /* NULL if none */
    uint64_t log_every; /* steps between lines on stdout; 0: at most one line per second, except for
                           the first steps */
    bool restarted; /* the run was restarted by dcp-run, or requeued, after it published a step */
    uint64_t given; /* the checksum of all keys and values that `tree` had when it was loaded */
} config;

void config_free(config *c);

/* The number of micro-batches per step, which does not depend on the number of ranks. */
uint64_t config_micro_batches(const config *c);
/* Returns DCP_ERR_ARG if the given accumulation contradicts batch, micro-batch and `world`. */
int config_check_world(const config *c, int world, dcp_error *err);
/* Why fsdp.cpu_offload without fsdp.offload_path is refused on the CPU. */
extern const char config_no_offload[];
