/* Images, or vectors, and their classes from files of the IDX format, as MNIST has them. */
#pragma once

#include "data/source.h"

extern const data_source data_idx;
