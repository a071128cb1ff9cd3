/* How units and gradients travel between ranks while they compute: a table of functions, so that
 * there can be several ways. What travels is plain memory in rank order; which part of a model it
 * is, in which order sums are formed and which buffers there are is not a transport's concern.
 *
 * A transfer begins with gather, exchange, reduce_scatter or all_reduce, and ends with finish. An
 * implementation guarantees:
 * - All ranks of a group begin the group's transfers in the same order. To begin one waits for no
 *   other rank. Several may be in flight at once, also of different groups, and are finished in
 *   any order.
 * - What is sent must not change, and what is received not be touched, before finish. Work that was
 *   given to the kernels before the beginning is seen by it, and work that is given to them after
 *   finish sees what arrived; finish need not wait for more than that.
 * - Bytes arrive as they were sent. gather and exchange add and round nothing; only the two sums
 *   may choose an order of additions.
 * - poll lets transfers proceed, takes microseconds, and is called from within computation.
 * - Counts may be 0 and differ between ranks.
 * - A failure ends the run, as MPI's do: nothing is returned, but by reserve. */
#pragma once

#include <mpi.h>

#include "fsdp/mesh.h"
#include "kernels/kernels.h"

/* A stretch for each rank of a group, in elements from `at` on. The arrays are borrowed until the
 * finish. */
typedef struct fsdp_stretches {
    void *at;
    const int *counts, *starts;
} fsdp_stretches;

/* What is in flight. */
typedef struct fsdp_transfer {
    int is_on; /* from the beginning to the finish; else poll and finish do nothing */
    MPI_Request request;
    void *other; /* for implementations without requests */
} fsdp_transfer;

enum { FSDP_MOST_TRANSFERS = 64 }; /* in flight at once: more than there ever are */

typedef struct fsdp_transport fsdp_transport;
struct fsdp_transport {
    const char *name;
    void *state; /* the implementation's own */

    /* Before the first transfer: takes memory for one more at a time of this group, which sends and
     * receives so many bytes at most, so that none has to be taken on the way. `sent` is 0 of
     * gather and all_reduce. Nonzero: out of memory. NULL: transfers need none. */
    int (*reserve)(fsdp_transport *t, fsdp_group group, size_t sent, size_t received);

    /* For a gather of bf16 that is begun next: rounds n elements of `from`, memory of alloc_host,
     * to `to`, from where it sends them. By way of between[room], memory of the kernels that is in
     * use until the finish, like `to`; kernels that are given meanwhile do not wait for it. NULL:
     * k->narrow does it, in its turn. */
    void (*narrow)(fsdp_transport *t, uint16_t *to, const float *from, size_t n, float *between,
                   size_t room);
    /* Every rank's stretch, to all. own: this rank's; may stand at its place in `to` already, or in
     * memory of alloc_host. */
    void (*gather)(fsdp_transport *t, fsdp_group group, kernels_type type, const void *own,
                   fsdp_stretches to, fsdp_transfer *out);
    /* To each rank its stretch of `from`, in fp32; from each one to its stretch of `to`. */
    void (*exchange)(fsdp_transport *t, fsdp_group group, fsdp_stretches from, fsdp_stretches to,
                     fsdp_transfer *out);
    /* to[counts[own rank]] = the sum over ranks of that stretch of `from`, which holds one for each
     * rank, side by side. */
    void (*reduce_scatter)(fsdp_transport *t, fsdp_group group, const float *from, float *to,
                           const int *counts, fsdp_transfer *out);
    /* sums[n] = the sum over ranks. */
    void (*all_reduce)(fsdp_transport *t, fsdp_group group, float *sums, int n, fsdp_transfer *out);

    void (*poll)(fsdp_transport *t, fsdp_transfer *transfer);
    void (*finish)(fsdp_transport *t, fsdp_transfer *transfer);
    /* Nothing is in flight. */
    void (*destroy)(fsdp_transport *t);
};

static inline int fsdp_transport_reserve(fsdp_transport *t, fsdp_group group, size_t sent,
                                         size_t received) {
    return t->reserve ? t->reserve(t, group, sent, received) : 0;
}

/* The transport by messages of MPI. */

/* Between memory of the host. mesh: borrowed. */
fsdp_transport fsdp_transport_mpi(const fsdp_mesh *mesh);

/* The transport by MPI of a device's memory. */

/* By copies on the host, page-locked, of the memory of k. mesh: borrowed. Nonzero: out of memory.
 */
int fsdp_transport_host(const fsdp_mesh *mesh, kernels *k, fsdp_transport *out);

/* The transport by NCCL. Only where it was built. */

/* By NCCL between GPUs, on streams of its own. shared: ranks share a GPU, which only NCCL 2.30 and
 * later do, where NCCL_MULTI_RANK_GPU_ENABLE=1 asks for it. sums: reduce_scatter and all_reduce are
 * wanted, too. Ranks are connected before it returns. Collective; nonzero on all ranks where the
 * library of one will not do. A rank that does not answer ends the others after 300 s, and what
 * NCCL fails at ends the run within 20 s. A rank alone needs no library. */
int fsdp_transport_nccl(const fsdp_mesh *mesh, kernels *k, int shared, int sums,
                        fsdp_transport *out);

/* The choice of a transport. */

/* The transport that suits the memory of k: on GPUs NCCL where it will do. sums: reduce_scatter and
 * all_reduce are wanted, too. Collective; nonzero: out of memory. */
int fsdp_transport_choose(const fsdp_mesh *mesh, kernels *k, int sums, fsdp_transport *out);
