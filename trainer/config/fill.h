/* From the effective tree to the struct, which borrows the tree's texts. */
#ifndef TRAINER_CONFIG_FILL_H
#define TRAINER_CONFIG_FILL_H

#include "config/config.h"

void config_fill(config *c, const json_t *tree);
/* What is written, and where the run begins, alone. */
void config_fill_output(config *c, const json_t *tree);

#endif
