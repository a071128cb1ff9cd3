/* JSON with integers of up to 2^64 - 1, as checkpoints have it: core_json_read, core_json_text and
 * core_json_exact. */
#pragma once

#include "core/json.h"
