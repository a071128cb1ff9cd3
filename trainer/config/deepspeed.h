/* Keys and values of DeepSpeed's configuration. What only says how DeepSpeed is to go about it is
 * passed over; what means something here is set by its name here; what would change what is
 * trained, and is not built, is refused. */
#pragma once

#include <jansson.h>

#include "config/findings.h"

/* Takes DeepSpeed's keys, and "auto", out of `tree`, sets what they mean, and adds to f. A key of
 * ours that the command line has (`from_line`, a tree; NULL: none) counts in place of one of
 * theirs; where the tree has both, and they differ, that is wrong. meant: gets the keys of ours
 * that were set in place of one of theirs; may be NULL. world: ranks, which a batch that the file
 * leaves to its micro-batch is multiplied by. */
void config_deepspeed_translate(json_t *tree, const json_t *from_line, json_t *meant, int world,
                                config_findings *f);
