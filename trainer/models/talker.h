/* Qwen3-TTS, whose config.json has an object inside an object. */
#pragma once

#include "models/keys.h"
#include "models/model_config.h"

int model_talker_read(const model_keys *keys, model_config *c, dcp_error *err);
