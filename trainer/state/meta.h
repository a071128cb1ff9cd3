/* The JSON that a checkpoint stores beside its tensors. It contains only what determines the next
 * step: no number of ranks, no paths and no times. */
#pragma once

#include <stdbool.h>

#include "config/config.h"
#include "state/train_state.h"

/* The member for parameters whose moments were zero at a step other than 0: an object that maps
 * each parameter's name to that step. The step is negative if an import brought moments with
 * updates from before step 0. */
#define STATE_META_SINCE "moments_since"

/* The values on which samples depend, apart from the seed. */
typedef struct meta_data {
    uint64_t epoch_samples; /* samples per epoch */
    uint64_t sequence;      /* tokens per sample; 0 if the model has no token input */
    uint64_t fingerprint;   /* data_fingerprint (data/data.h) */
} meta_data;

/* Writes the JSON text for dcp_save. The caller frees it with free(). */
int state_meta_write(const train_state *s, const config *c, const meta_data *data, char **text,
                     dcp_error *err);

/* What is compared with a checkpoint's JSON: a configuration, and the properties of its data. */
typedef struct meta_run {
    int rank;
    const config *c;
    meta_data data;
} meta_run;

/* The place at which the run continues. */
typedef struct meta_position {
    uint64_t samples, tokens; /* samples and tokens consumed so far */
    uint64_t seed;
    bool has_other_data;  /* the saved run had other samples, or had them in a different order */
    bool has_raw_images;  /* the saved run did not normalize images */
    bool owes_evaluation; /* the evaluation after the step was interrupted */
} meta_position;

/* Reads the place from a checkpoint's JSON. Rank 0 warns about everything that the run will do
 * differently from the run that saved the checkpoint. A checkpoint without counts, such as an
 * import, starts at sample 0 with the configuration's seed. */
int state_meta_read(const meta_run *run, const char *text, meta_position *out, dcp_error *err);

/* Returns meta_position.owes_evaluation of a checkpoint's JSON. */
bool state_meta_owes_evaluation(const char *text);

/* Returns the model's object as checkpoints store it: without transformers_version, and without
 * keys that begin with an underscore. Returns a new reference, or NULL. */
json_t *state_meta_model(const json_t *given);
