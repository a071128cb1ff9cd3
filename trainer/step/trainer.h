/* A run: everything that a training step uses. */
#pragma once

#include <mpi.h>
#include <stdbool.h>

#include "fsdp/fsdp_plan.h"
#include "fsdp/mesh.h"
#include "fsdp/transport.h"
#include "kernels/kernels.h"
#include "models/model.h"
#include "timeline/timeline.h"

typedef struct trainer {
    const struct config *c;
    MPI_Comm comm;
    int rank, world;
    kernels *k;
    struct dcp_device *device; /* the device of k's memory; NULL if that is the host's memory */
    model *m;
    struct data *samples, *eval_samples; /* eval_samples: NULL if there are none */
    fsdp_mesh mesh;
    fsdp_transport transport;
    void *shared; /* memory shared by the ranks of a group; NULL if there is none */
    size_t shared_bytes;
    fsdp_layout *layout;
    fsdp_plan plan;
    struct train_state *state;
    struct dcp_comm *dcp;
    struct dcp_tiers *stores;
    struct dcp_state *registered; /* the state as libdcp saves it */
    struct fsdp *sharded;
    struct optim *optimizer;
    struct model_run *run; /* activations of one micro-batch */
    uint64_t sequence;     /* tokens per sample; 0 if the model has no token input */
    json_t *about;         /* the contents of about.json; the same on all ranks */
    sample_shape shape;
    sample_batch inputs;                  /* all micro-batches of this rank in a step */
    double *losses;                       /* [losses, micro-batches of the step] */
    void *norm_scratch;                   /* in the memory of k */
    float *logits;                        /* of a micro-batch, for the evaluation of a classifier */
    double sample_flops;                  /* operations of a sample's forward and backward passes */
    double matmul_peak;                   /* operations per second of all ranks; 0: unknown */
    bool is_peak_known;                   /* matmul_peak has been measured */
    uint64_t memory_bytes, staging_bytes; /* a rank's predicted memory; what fences can add */
    timeline tl;                          /* this rank's, since its first step began */
    const char *trace;                    /* the file of --trace; NULL if there is none */
    uint64_t prove_every;                 /* the number of steps between two proofs; 0: no proofs */
} trainer;
