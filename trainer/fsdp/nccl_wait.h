/* The state of the transport over NCCL, and waiting: for communicators and transfers, by looking
 * for errors and at the clock. Nothing is returned: a failure ends the run, within a bounded time.
 */
#ifndef TRAINER_FSDP_NCCL_WAIT_H
#define TRAINER_FSDP_NCCL_WAIT_H

#include <cuda_runtime_api.h>

#include "fsdp/nccl.h"
#include "fsdp/slots.h"
#include "fsdp/transport.h"

enum { NCCL_GROUPS = 3 };

typedef struct nccl_flight {
    fsdp_group group;
    cudaEvent_t done;
} nccl_flight;

typedef struct nccl_transport {
    nccl_library nccl;
    cudaStream_t kernels; /* theirs; borrowed */
    cudaStream_t stream;  /* of all transfers */
    cudaEvent_t before;
    struct {
        int rank, ranks;
        ncclComm_t comm; /* NULL: of one rank; of all ranks: the world's */
    } groups[NCCL_GROUPS];
    fsdp_slots taken;
    nccl_flight flights[FSDP_SLOTS];
    const char **from; /* [ranks] for swap, and how many of each */
    size_t *from_n;
    int *ones, *places; /* [ranks] for the first transfer: 1, 1 ... and 0, 1 ... */
    float *scratch;     /* [2 * ranks] on the device */
    kernels *k;
} nccl_transport;

/* Ends all communicators, whatever they are doing. */
void nccl_abort(nccl_transport *n);
/* Says what and why, aborts all communicators and ends the run. */
void nccl_fail(nccl_transport *n, const char *what, const char *why);
void nccl_check(nccl_transport *n, ncclResult_t result);
void nccl_check_cuda(nccl_transport *n, cudaError_t code);
/* Until the communicator has taken what it was given. */
void nccl_settle(nccl_transport *n, fsdp_group group);
/* Until the transfer is done. */
void nccl_wait(nccl_transport *n, const nccl_flight *f);

#endif
