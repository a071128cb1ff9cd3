#include "setup/idle.h"

#include <inttypes.h>
#include <sched.h>

#include "ranks/say.h"

void setup_idle_warn_of_ranks(const config *c, int rank, int world) {
    const uint64_t micro_batches = config_micro_batches(c);
    if ((uint64_t)world > micro_batches)
        ranks_warn(rank,
                   "%" PRIu64 " of %d ranks have nothing to compute: train_batch_size %" PRIu64
                   " by train_micro_batch_size_per_gpu %" PRIu64 " makes %" PRIu64
                   " micro-batches a step; a smaller micro-batch or a larger batch makes more",
                   (uint64_t)world - micro_batches, world, c->batch, c->micro, micro_batches);
}

void setup_idle_tell_cores(const kernels *k, const config *c, MPI_Comm comm) {
    cpu_set_t cores;
    MPI_Comm here;
    int rank, world, ranks_here;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &world);
    MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &here);
    MPI_Comm_size(here, &ranks_here);
    MPI_Comm_free(&here);
    const int n = sched_getaffinity(0, sizeof cores, &cores) == 0 ? CPU_COUNT(&cores) : 1;
    if (n > ranks_here && (uint64_t)world < config_micro_batches(c) && kernels_on_host(k))
        ranks_say(rank,
                  "%d of %d cores here are idle, as each rank computes on one: more ranks use them "
                  "(dcp-run -n), with the same bits",
                  n - ranks_here, n);
}
