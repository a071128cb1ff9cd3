/* Records, such as chats: token ids with a mask of those to be learned, from safetensors files. */
#pragma once

#include "data/source.h"

extern const data_source data_records;
