/* Translates the keys and values of DeepSpeed's configuration. Keys that only configure how
 * DeepSpeed works are ignored; keys that have a counterpart here set it; keys that would change
 * what is trained, and are not implemented, are refused. */
#pragma once

#include <jansson.h>

#include "config/findings.h"

/* Removes DeepSpeed's keys, and "auto", from `tree`, sets the corresponding keys of ours, and adds
 * what it did to f. If the command line gives one of our keys (`from_line`, a tree; NULL if none),
 * the corresponding key of theirs is ignored; if `tree` itself has both with different values, that
 * is an error. meant: receives our keys that were set in place of theirs; may be NULL. world: the
 * number of ranks. A batch that is not given becomes the micro-batch times accumulation times
 * world. */
void config_deepspeed_translate(json_t *tree, const json_t *from_line, json_t *meant, int world,
                                config_findings *f);
