/* Images, or vectors, and their classes from files of the IDX format, as MNIST has them. */
#ifndef TRAINER_DATA_IDX_H
#define TRAINER_DATA_IDX_H

#include "data/source.h"

extern const data_source data_idx;

#endif
