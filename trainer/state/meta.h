/* The JSON that a checkpoint keeps beside its tensors: what determines the next step, and nothing
 * else. No world size, no paths, no times. */
#pragma once

#include "config/config.h"
#include "state/train_state.h"

/* The member that tells, of parameters that are not trained since step 0, at which step their
 * moments were zero: an object with their names. */
#define STATE_META_SINCE "moments_since"

/* Text for dcp_save, freed with free(). epoch_samples: samples of an epoch. sequence: tokens of a
 * sample, or 0 where the model takes none. */
int state_meta_write(const train_state *s, const config *c, uint64_t epoch_samples,
                     uint64_t sequence, char **text, dcp_error *err);

/* What is compared with a checkpoint's JSON: a configuration, and what follows from its data. */
typedef struct meta_run {
    int rank;
    const config *c;
    uint64_t epoch_samples, sequence; /* as state_meta_write has them */
} meta_run;

/* Where the samples go on. */
typedef struct meta_place {
    uint64_t samples, tokens; /* consumed */
    uint64_t seed;
} meta_place;

/* The place of a checkpoint's JSON. What the run would do differently from the one that saved it is
 * told in warnings on rank 0. A checkpoint without counts (an import) starts at sample 0 with the
 * configuration's seed. */
int state_meta_read(const meta_run *run, const char *text, meta_place *out, dcp_error *err);

/* The model's object as it is stored: without keys that begin with _ and transformers_version. A
 * new reference, or NULL. */
json_t *state_meta_model(const json_t *given);
