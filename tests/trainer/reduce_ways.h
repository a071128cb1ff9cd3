/* What tests of reductions share: sums of gradients have the bits of one serial sum in their order
 * (fsdp/sum_order.h), on any number of ranks and by any strategy but the ring: also where ranks
 * outnumber leaves or rows, and where they divide nothing. What is sent is what was planned; what
 * goes to other groups of ranks is what a hierarchical all-reduce sends, and no parameter does. No
 * strategy keeps more than a few partial sums. Frozen parameters take no room. */
#ifndef TESTS_TRAINER_REDUCE_WAYS_H
#define TESTS_TRAINER_REDUCE_WAYS_H

#include "fsdp/transport.h"

/* All ways to add up, in groups of world / replicas ranks, with a transport of such groups.
 * between_hosts: bytes that the transport itself has counted of what goes to other groups; NULL: it
 * counts none, and what it is asked for is counted. */
void reduce_in_groups(int rank, int world, int replicas, const fsdp_transport *transport,
                      kernels *k, const uint64_t *between_hosts);

#endif
