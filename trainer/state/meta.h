/* The JSON that a checkpoint keeps beside its tensors: what determines the next step, and nothing
 * else. No world size, no paths, no times. */
#pragma once

#include "config/config.h"
#include "state/train_state.h"

/* The member that tells, of parameters that are not trained since step 0, at which step their
 * moments were zero, a negative one where they came with updates before it: an object with their
 * names. */
#define STATE_META_SINCE "moments_since"

/* What samples are a function of, beside the seed. */
typedef struct meta_data {
    uint64_t epoch_samples; /* of an epoch */
    uint64_t sequence;      /* tokens of a sample; 0: the model takes none */
    uint64_t fingerprint;   /* as data/data.h has it */
} meta_data;

/* Text for dcp_save, freed with free(). */
int state_meta_write(const train_state *s, const config *c, const meta_data *data, char **text,
                     dcp_error *err);

/* What is compared with a checkpoint's JSON: a configuration, and what follows from its data. */
typedef struct meta_run {
    int rank;
    const config *c;
    meta_data data;
} meta_run;

/* Where the samples go on. */
typedef struct meta_place {
    uint64_t samples, tokens; /* consumed */
    uint64_t seed;
    int has_other_data;  /* samples were other ones, or in another order */
    int has_raw_images;  /* images were not normalized */
    int owes_evaluation; /* the step's evaluation was interrupted */
} meta_place;

/* The place of a checkpoint's JSON. What the run would do differently from the one that saved it is
 * told in warnings on rank 0. A checkpoint without counts (an import) starts at sample 0 with the
 * configuration's seed. */
int state_meta_read(const meta_run *run, const char *text, meta_place *out, dcp_error *err);

/* The model's object as it is stored: without keys that begin with _ and transformers_version. A
 * new reference, or NULL. */
json_t *state_meta_model(const json_t *given);
