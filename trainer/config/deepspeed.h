/* Translates the keys and values of DeepSpeed's configuration. Keys that only configure how
 * DeepSpeed works are ignored. Keys that have a counterpart here set that counterpart. Keys that
 * would change what is trained, but are not implemented, are refused. */
#pragma once

#include <jansson.h>

#include "config/findings.h"

/* Removes from `tree` the keys that are DeepSpeed's, and values that are "auto". Sets dcp-train's
 * corresponding keys, and adds a report to f. It is an error if `tree` has a key of DeepSpeed and
 * dcp-train's corresponding key with different values. If the command line gave dcp-train's key,
 * DeepSpeed's key is ignored instead. from_line: the tree of the command line's keys; NULL if none.
 * meant: receives dcp-train's keys that were set in place of DeepSpeed's; may be NULL. world: the
 * number of ranks. If no batch is given, the batch is set to the micro-batch times accumulation
 * times world. */
void config_deepspeed_translate(json_t *tree, const json_t *from_line, json_t *meant, int world,
                                config_findings *f);
