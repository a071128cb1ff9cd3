/* The JSON that a checkpoint keeps beside its tensors: what determines the next step, and nothing
 * else. No world size, no paths, no times. */
#ifndef TRAINER_STATE_META_H
#define TRAINER_STATE_META_H

#include "../config/config.h"
#include "state.h"

/* Text for dcp_save, freed with free(). epoch_samples: samples of an epoch. sequence: tokens of a
 * sample, or 0 where the model takes none. */
int meta_write(const train_state *s, const config *c, uint64_t epoch_samples, uint64_t sequence,
               char **text, dcp_error *err);

/* Takes step, samples, tokens and seed from a checkpoint's JSON. What the run would do differently
 * from the one that saved it is told in warnings on rank 0. A checkpoint without counts (an import)
 * starts at sample 0 with the configuration's seed. */
int meta_read(train_state *s, const config *c, uint64_t epoch_samples, uint64_t sequence,
              uint64_t step, const char *text, dcp_error *err);

/* The model's object as it is stored: without keys that begin with _ and transformers_version. A
 * new reference, or NULL. */
json_t *meta_model(const json_t *given);

#endif
