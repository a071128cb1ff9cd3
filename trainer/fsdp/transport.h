/* How units and gradients travel between ranks while the ranks compute: a table of functions with
 * several implementations. The data are plain memory in rank order. A transport does not know which
 * part of a model they belong to, in which order sums are formed, or which buffers exist.
 *
 * A transfer begins with gather, exchange, reduce_scatter or all_reduce, and ends with finish. All
 * ranks of a group must begin the group's transfers in the same order. An implementation
 * guarantees:
 * - Beginning a transfer does not wait for another rank. Several transfers, even of different
 *   groups, may be in flight at once, and may be finished in any order.
 * - Before finish, the data to send must not change, and the data received must not be used. A
 *   transfer sees the effects of work that the kernels were given before it began. Work that the
 *   kernels are given after finish sees the data that arrived; finish need not guarantee more.
 * - Bytes arrive as they were sent. gather and exchange neither add nor round. Only reduce_scatter
 *   and all_reduce, which add, may choose an order of additions.
 * - poll lets transfers proceed, takes microseconds, and is called from within computation.
 * - Counts may be 0 and differ between ranks.
 * - A failure ends the run, as MPI's failures do; only reserve returns an error. */
#pragma once

#include <mpi.h>
#include <stdbool.h>

#include "fsdp/mesh.h"
#include "kernels/kernels.h"

/* One stretch for each rank of a group; starts are in elements relative to `at`. The arrays are
 * borrowed until the transfer is finished. */
typedef struct fsdp_segments {
    void *at;
    const int *counts, *starts;
} fsdp_segments;

/* A transfer in flight. */
typedef struct fsdp_transfer {
    bool is_on; /* set while the transfer is in flight; otherwise poll and finish do nothing */
    MPI_Request request;
    void *other; /* for implementations without requests */
} fsdp_transfer;

enum { FSDP_MAX_TRANSFERS = 64 }; /* the maximum in flight at once, which no run reaches */

typedef struct fsdp_transport fsdp_transport;
struct fsdp_transport {
    const char *name;
    void *state; /* the implementation's own */

    /* Called before the first transfer. Reserves memory for one more concurrent transfer of this
     * group, which sends at most `sent` and receives at most `received` bytes, so that transfers
     * need not allocate memory. `sent` is 0 for gather and all_reduce. Returns nonzero if out of
     * memory. NULL if transfers need no memory. */
    int (*reserve)(fsdp_transport *t, fsdp_group group, size_t sent, size_t received);

    /* Prepares the gather of bf16 that begins next: rounds n elements of `from`, which is memory
     * from alloc_host, into `to`, from which the gather sends them. The data pass through
     * between[room], which is memory of the kernels. Both `to` and `between` are in use until that
     * gather is finished. Work that is given to the kernels in the meantime does not wait for the
     * rounding. If this member is NULL, use k->narrow, which runs in the kernels' order. */
    void (*narrow)(fsdp_transport *t, uint16_t *to, const float *from, size_t n, float *between,
                   size_t room);
    /* Sends every rank's stretch to all ranks. own: this rank's stretch, which may already be at
     * its place in `to`, or in memory from alloc_host. */
    void (*gather)(fsdp_transport *t, fsdp_group group, kernels_type type, const void *own,
                   fsdp_segments to, fsdp_transfer *out);
    /* Sends each rank its stretch of `from`, in fp32, and receives each rank's data in that rank's
     * stretch of `to`. */
    void (*exchange)(fsdp_transport *t, fsdp_group group, fsdp_segments from, fsdp_segments to,
                     fsdp_transfer *out);
    /* `from` consists of one stretch for each rank, without gaps. to[counts[own rank]] = the sum
     * over ranks of this rank's stretch. */
    void (*reduce_scatter)(fsdp_transport *t, fsdp_group group, const float *from, float *to,
                           const int *counts, fsdp_transfer *out);
    /* sums[n] = the sum over ranks. */
    void (*all_reduce)(fsdp_transport *t, fsdp_group group, float *sums, int n, fsdp_transfer *out);

    void (*poll)(fsdp_transport *t, fsdp_transfer *transfer);
    void (*finish)(fsdp_transport *t, fsdp_transfer *transfer);
    /* Requires that nothing is in flight. */
    void (*destroy)(fsdp_transport *t);
};

static inline int fsdp_transport_reserve(fsdp_transport *t, fsdp_group group, size_t sent,
                                         size_t received) {
    return t->reserve ? t->reserve(t, group, sent, received) : 0;
}

/* The transport by MPI messages between memory of the host. mesh: borrowed. */
fsdp_transport fsdp_transport_mpi(const fsdp_mesh *mesh);

/* The transport by MPI for a device's memory: copies the memory of k through page-locked memory on
 * the host. mesh: borrowed. Returns nonzero if out of memory. */
int fsdp_transport_host(const fsdp_mesh *mesh, kernels *k, fsdp_transport *out);

/* The transport by NCCL between GPUs, on streams of its own. Exists only in builds with NCCL.
 * shared: ranks share a GPU, which requires NCCL 2.30 or later and NCCL_MULTI_RANK_GPU_ENABLE=1.
 * sums: reduce_scatter and all_reduce are required, too. Ranks are connected before the function
 * returns. Collective; returns nonzero on all ranks if any rank cannot use the library. If a rank
 * does not answer, the others end after 300 s; an error of NCCL ends the run within 20 s. A single
 * rank needs no library. */
int fsdp_transport_nccl(const fsdp_mesh *mesh, kernels *k, int shared, int sums,
                        fsdp_transport *out);

/* Chooses the transport that suits the memory of k: on GPUs, NCCL if it can be used. sums:
 * reduce_scatter and all_reduce are required, too. Collective; returns nonzero if out of memory. */
int fsdp_transport_choose(const fsdp_mesh *mesh, kernels *k, int sums, fsdp_transport *out);
