/* Recordings of voices: text, codes and speakers' vectors. */
#pragma once

#include "data/source.h"

extern const data_source data_recordings;
