/* A stand-in for CUDA's streams and for NCCL, between processes of MPI. Nothing that a stream was
 * given happens before the host asks for an event: the streams of transfers go on then, that of the
 * kernels only as far as others wait for it. Memory is the host's. */
#ifndef TESTS_TRAINER_STREAMS_H
#define TESTS_TRAINER_STREAMS_H

#include <mpi.h>
#include <stddef.h>
#include <stdint.h>

/* What NCCL does wrong, from its first failing call on. */
typedef enum streams_fault {
    STREAMS_NONE,
    STREAMS_ERROR,  /* a communicator has an error */
    STREAMS_SILENT, /* a transfer never ends; the clock runs a thousand times as fast */
    STREAMS_STUCK,  /* an error, and neither aborting nor MPI_Abort returns */
} streams_fault;

extern streams_fault streams_fault_now;
extern int streams_version;       /* of NCCL */
extern int streams_loaded;        /* how often it was */
extern int streams_aborted;       /* communicators */
extern int streams_sums;          /* reductions and all-reductions that it was given */
extern MPI_Comm streams_comms[3]; /* the ranks of those that a transport makes, in order */
extern int streams_n_comms;
extern int streams_host_ranks;         /* consecutive ranks of the world are a host; 0: all are */
extern uint64_t streams_between_hosts; /* bytes that this rank has sent by NCCL to other hosts */

/* The kernels' stream, and work for it: writes value, value + 1 ... to at[n], or checks that they
 * are there. */
void *streams_kernels(void);
void streams_write(float *at, size_t n, float value);
void streams_check(const float *at, size_t n, float value);
/* Work for a stream: go_on(ctx) is called until it returns nonzero. */
void streams_give(void *stream, int (*go_on)(void *ctx), void *ctx);
/* Does all that was given; nonzero where a check failed. */
int streams_drain(void);

#endif
