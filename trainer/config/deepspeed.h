/* Translates the keys and values of DeepSpeed's configuration. Keys that only configure how
 * DeepSpeed works are ignored. Keys that have a counterpart here set that counterpart. Keys that
 * would change what is trained, but are not implemented, are refused. */
#pragma once

#include <jansson.h>

#include "config/findings.h"

/* Removes DeepSpeed's keys, and "auto", from `tree`, sets the corresponding keys of ours, and adds
 * a report to f. It is an error if `tree` has a key of DeepSpeed and the corresponding key of ours
 * with different values, unless the command line gave ours: then theirs is ignored. from_line: the
 * tree of the command line's keys; NULL if none. meant: receives our keys that were set in place of
 * theirs; may be NULL. world: the number of ranks. If no batch is given, it becomes the micro-batch
 * times accumulation times world. */
void config_deepspeed_translate(json_t *tree, const json_t *from_line, json_t *meant, int world,
                                config_findings *f);
