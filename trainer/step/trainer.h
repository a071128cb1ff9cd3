/* A run: everything that a training step works with. */
#ifndef TRAINER_STEP_TRAINER_H
#define TRAINER_STEP_TRAINER_H

#include <mpi.h>

#include "config/config.h"
#include "data/data.h"
#include "fsdp/fsdp.h"
#include "kernels/kernels.h"
#include "models/model.h"
#include "optim/optim.h"
#include "state/state.h"
#include "timeline/timeline.h"
#include <dcp/tiers.h>

typedef struct trainer {
    const config *c;
    MPI_Comm comm;
    int rank, world;
    kernels *k;
    dcp_device *device; /* whose memory k's is; NULL: the host's */
    model *m;
    data *samples, *eval_samples; /* the latter NULL: none */
    fsdp_mesh mesh;
    fsdp_transport transport;
    void *shared; /* memory of the ranks of a group; NULL: none */
    size_t shared_bytes;
    fsdp_layout *layout;
    fsdp_plan plan;
    train_state *state;
    dcp_comm *dcp;
    dcp_tiers *stores;
    dcp_state *registered; /* the state as libdcp saves it */
    fsdp *sharded;
    optim *optimizer;
    model_run *run;    /* activations of one leaf */
    uint64_t sequence; /* tokens of a sample; 0: the model takes none */
    sample_shape shape;
    sample_batch leaves;                  /* all of this rank in a step */
    double *losses;                       /* [leaves] */
    void *norm_scratch;                   /* in the memory of k */
    float *logits;                        /* of a leaf, where an evaluation judges classes */
    double matmul_peak;                   /* of all ranks, operations a second; 0: unknown */
    uint64_t memory_bytes, staging_bytes; /* predicted of a rank; what fences may add */
    timeline tl;                          /* of this rank since the start of its loop */
    const char *trace;                    /* file of --trace; NULL: none */
} trainer;

/* How main ends. */
enum {
    EXIT_DONE = 0,
    EXIT_CORRUPT = 1,
    EXIT_USAGE = 2,
    EXIT_FAILED = 3,
    EXIT_STOPPED = 143,
};

/* The exit status of a failure at the start. */
int trainer_exit_status(int status);

/* Collective: checks what the configuration asks for and prepares everything up to the first
 * step, in two parts. `plan` reads and writes no checkpoint and makes no file; it also tells what
 * is going to happen. `start` takes the directory's lock and loads. 0, or an exit status, with
 * `err` filled. In either case trainer_end frees what was made. */
int trainer_plan(trainer *t, const config *c, MPI_Comm comm, dcp_error *err);
int trainer_start(trainer *t, dcp_error *err);
/* Instead of `start`: says where the run would start, and reads no more than that takes. */
int trainer_foretell(trainer *t, dcp_error *err);
void trainer_end(trainer *t);

/* Collective: trains until the last step, or until a signal asks to stop. An exit status; failures
 * have been told. */
int trainer_loop(trainer *t);

#endif
