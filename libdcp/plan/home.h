/* What a tensor's home rank does in plan_exchange (plan.h). On the wire a box is u64s: tensor,
 * holder and above it the number of dimensions, start and count of each. */
#ifndef DCP_PLAN_HOME_H
#define DCP_PLAN_HOME_H

#include "comm/exchange.h"
#include "core/state.h"

/* What came to this rank as a home; zeroed before home_unpack. */
typedef struct home {
    struct home_box *boxes; /* by tensor; within one as they came */
    size_t n;
    size_t *starts;    /* of each of this home's tensors in `boxes`, and the end */
    size_t most;       /* boxes of a tensor */
    uint32_t *answers; /* a box, as they came: 2 * keeper's rank, + 1 where it is the one kept */
    uint64_t *answer_bytes; /* to each rank */
} home;

static inline uint64_t home_wire_bytes(uint32_t dims) { return 8 * (2 + 2 * (uint64_t)dims); }

/* Orders the boxes of `in`, bytes[r] of which came from rank r, by tensor, of n in all. `h` borrows
 * them: `in` stays until home_judge is done. 0 where memory is short. */
int home_unpack(size_t n, const comm_message *in, const uint64_t *bytes, int size, home *h);

/* Fills in the answers, and in exact[n] a 1 for each tensor of this home that its boxes cover once.
 * Where `strict`, one that they don't is DCP_ERR_MISMATCH. Not collective. */
int home_judge(const dcp_comm *comm, state_tensor *const *sorted, size_t n, const home *h,
               int strict, unsigned char *exact, dcp_error *err);

/* In either case. */
void home_free(home *h);

#endif
