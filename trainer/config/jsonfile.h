/* Reading JSON files: the configuration itself, and the model's config.json. */
#ifndef TRAINER_CONFIG_JSONFILE_H
#define TRAINER_CONFIG_JSONFILE_H

#include <jansson.h>

#include <dcp/error.h>

/* A file that holds one JSON object. */
int config_read_object(const char *path, json_t **out, dcp_error *err);

/* The model's object: `model` itself, or the file or folder (config.json in it) that it names. */
int config_resolve_model(json_t *model, json_t **out, dcp_error *err);

#endif
