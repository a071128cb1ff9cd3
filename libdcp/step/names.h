/* A set of tensors by name, as files have them: for the union of the names of many files. */
#pragma once

#include "comm/message.h"
#include "dcp/tensor.h"

typedef struct step_names {
    dcp_tensor *list; /* in the order in which they came; the paths are the set's */
    size_t n, room;
    uint32_t *slots; /* a hash table: numbers + 1 in the list */
    size_t n_slots;
} step_names;

/* Finds the tensor, or takes it up. *number: in the list. *same: 0 where it was known with another
 * type or shape, and stays as it was. */
int step_names_add(step_names *names, const dcp_tensor *tensor, size_t path_bytes, uint32_t *number,
                   int *same, dcp_error *err);

/* A checksum of the set: names, types and shapes in any order. */
uint64_t step_names_fingerprint(const step_names *names);

void step_names_free(step_names *names);

/* A number that depends on the path alone. */
uint64_t step_names_hash(const char *path, size_t path_bytes);

/* Puts the tensor at the end of a message, in whole 64-bit words. */
int step_names_send(comm_message *message, const dcp_tensor *tensor, dcp_error *err);

/* Takes a tensor from *at on, which moves behind it; its path lies in the message, without a NUL.
 * DCP_ERR_MISMATCH: what lies before `end` is none. */
int step_names_receive(const uint64_t **at, const uint64_t *end, dcp_tensor *tensor,
                       size_t *path_bytes, dcp_error *err);
