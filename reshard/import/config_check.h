/* Whether a folder's tensors are those of its config.json. */
#ifndef RESHARD_IMPORT_CONFIG_CHECK_H
#define RESHARD_IMPORT_CONFIG_CHECK_H

#include <jansson.h>

#include <dcp/safetensors.h>

/* Compares the tensors with those that config.json asks for, where dcp-train takes that
 * configuration (dropout aside). Lists the first ones that are missing, surplus or of another
 * shape: a failure, or with `allow` a note. What dcp-train would refuse in config.json is a note.
 * Returns an exit status. */
int import_config_check(const char *folder, const json_t *config, const dcp_st_reader *reader,
                        int allow);

#endif
