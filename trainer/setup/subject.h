/* What is trained, as the configuration describes it; needs no ranks. */
#ifndef TRAINER_SETUP_SUBJECT_H
#define TRAINER_SETUP_SUBJECT_H

#include "config/config.h"
#include "models/model.h"

int subject_model(const config *c, model **out, dcp_error *err);
/* Tokens of a sample, which may be those of a stored batch; 0: the model takes none. */
int subject_sequence(const config *c, const model *m, uint64_t *out, dcp_error *err);

#endif
