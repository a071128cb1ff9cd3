/* The JSON that a checkpoint stores beside its tensors: what determines the next step, and nothing
 * else. It has no world size, no paths and no times. */
#pragma once

#include "config/config.h"
#include "state/train_state.h"

/* The member for parameters that have not been trained since step 0: an object with their names and
 * the step at which their moments were zero. The step is negative if the moments came with updates
 * made before step 0. */
#define STATE_META_SINCE "moments_since"

/* The values on which samples depend, apart from the seed. */
typedef struct meta_data {
    uint64_t epoch_samples; /* of an epoch */
    uint64_t sequence;      /* tokens per sample; 0 if the model has no token input */
    uint64_t fingerprint;   /* as in data/data.h */
} meta_data;

/* Makes the text for dcp_save, to be freed with free(). */
int state_meta_write(const train_state *s, const config *c, const meta_data *data, char **text,
                     dcp_error *err);

/* The values that are compared with a checkpoint's JSON: a configuration, and properties of its
 * data. */
typedef struct meta_run {
    int rank;
    const config *c;
    meta_data data;
} meta_run;

/* Where the samples continue. */
typedef struct meta_place {
    uint64_t samples, tokens; /* consumed */
    uint64_t seed;
    int has_other_data;  /* samples were different, or in another order */
    int has_raw_images;  /* images were not normalized */
    int owes_evaluation; /* the step's evaluation was interrupted */
} meta_place;

/* Reads the place from a checkpoint's JSON. Rank 0 warns about everything that the run would do
 * differently from the run that saved it. A checkpoint without counts (an import) starts at sample
 * 0 with the configuration's seed. */
int state_meta_read(const meta_run *run, const char *text, meta_place *out, dcp_error *err);

/* The model's object as it is stored, without transformers_version and keys that begin with _.
 * Returns a new reference, or NULL. */
json_t *state_meta_model(const json_t *given);
