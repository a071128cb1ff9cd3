/* Ranks of one host: their collectives go through memory that they share, and who waits sleeps
 * until the one it waits for has come. So ranks that wait cost nothing, where MPI asks over and
 * over: beside a thread that computes, and where there are more ranks than cores. */
#ifndef DCP_COMM_NODE_H
#define DCP_COMM_NODE_H

#include <mpi.h>
#include <stddef.h>

#include "comm/comm.h"

struct node_seat;

typedef struct node_memory {
    unsigned char *memory;    /* of all ranks, side by side */
    struct node_seat **seats; /* of each rank, in shared memory */
    uint64_t *begins;         /* of the message to this rank, in what each rank sends */
    comm_shared shared;
    size_t slot_bytes;
    uint32_t round; /* that this rank has published last */
    int rank, size;
} node_memory;

/* The context of a communicator over MPI; of either kind. */
struct mpi_ctx {
    MPI_Comm comm;
    int aside; /* it may wait beside a thread that computes */
    node_memory node;
};

/* Their context: a struct mpi_ctx whose node was joined. They cannot fail. */
extern const dcp_comm_ops node_ops;

/* Collective over ctx->comm: returns 1 where all of its ranks now share memory, or 0 on all. */
int comm_node_join(struct mpi_ctx *ctx);

/* After a comm_node_join that returned 0 as well. */
void comm_node_leave(struct mpi_ctx *ctx);

#endif
