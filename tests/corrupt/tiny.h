/* A small state with every kind of tensor, for tests that examine a checkpoint from outside. */
#ifndef TESTS_TINY_H
#define TESTS_TINY_H

#include "dcp/dcp.h"

#define TINY_TENSORS 27
#define TINY_JSON                                                                                  \
    "{\"model\":{\"model_type\":\"qwen3\",\"hidden_size\":96,\"rms_norm_eps\":1e-6},"              \
    "\"samples\":12,\"lr\":0.1}"

typedef struct tiny {
    dcp_state *state;
    unsigned char *data[TINY_TENSORS]; /* each whole tensor */
} tiny;

/* Tensor i; NULL after the last. "/model/big.weight" has two blocks. */
const dcp_tensor *tiny_tensor(size_t i);
/* Fills in tensor i: bits of all kinds in "/model/bits*", small integers elsewhere. */
void tiny_fill(size_t i, unsigned char *data);

/* Makes the state of `rank` of `world`, cut on dimension 0, filled, or zeroed for a load. Returns 0
 * or -1. */
int tiny_make(tiny *t, int rank, int world, int filled);
void tiny_free(tiny *t);
/* Returns 1 if the rank's boxes hold what tiny_fill gives. */
int tiny_is_filled(const tiny *t, int rank, int world);

/* Saves it as `step` of `dir`; the ranks of `comm` hold chunks. Returns a dcp status. */
int tiny_save(dcp_comm *comm, const char *dir, uint64_t step, dcp_layout layout, dcp_error *err);

#endif
