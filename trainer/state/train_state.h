/* Everything that a checkpoint holds: this rank's shards of the parameters and of the optimizer's
 * slots, this rank's parts of the files that checkpoints carry, and the few numbers that determine
 * where the run continues. */
#pragma once

#include <mpi.h>
#include <stdbool.h>

#include "fsdp/shard_layout.h"
#include "kernels/kernels.h"
#include "optim/optim.h"
#include "state/provenance.h"
#include <dcp/checkpoint.h>
#include <dcp/device.h>
#include <dcp/state.h>

typedef struct offload offload; /* memory in a file */

/* A tensor of the section /files, cut along dimension 0 like any other tensor. */
typedef struct carried_file {
    dcp_tensor tensor; /* the state owns its path */
    dcp_box box;
    void *data;
} carried_file;

typedef struct train_state {
    const fsdp_layout *layout;
    kernels *k;
    const dcp_device *device; /* the device of k's memory; NULL if that is the host's memory */
    float *params;            /* [layout->param_elems] */
    bool borrows_params;
    const optim_type *optimizer;
    float *grads;                   /* [layout->grad_elems] */
    void *slots[KERNELS_MAX_SLOTS]; /* the optimizer's, [layout->grad_elems] each */
    /* If params and slots are offloaded: the memory that holds them, a file or, for kernels on a
     * device, host memory. Otherwise both are NULL. */
    offload *offloaded;
    void *host_memory;
    carried_file *files;
    size_t n_files;
    /* [layout->n_params] the step at which a parameter's slots were zero; negative if before step
     * 0 */
    int64_t *since;
    uint64_t step;            /* updates made */
    uint64_t samples, tokens; /* consumed so far */
    uint64_t seed;
    bool normalizes;      /* normalize images as preprocessor_config.json specifies */
    bool owes_evaluation; /* the evaluation that should have ended the step was interrupted */
    /* About the step that the state was loaded from: */
    bool has_other_data; /* the step was trained on other samples */
    bool has_raw_images; /* the step was saved by a run that did not normalize images */
    bool is_own_run;     /* the step is this run's own; false: a new run branches off from it */
    char saved_by[STATE_RUN_BYTES]; /* on rank 0, the run that saved the step; "" if unknown */
    char init[STATE_INIT_BYTES];    /* the `init` of that run, likewise */
    bool is_loaded;                 /* the state was loaded from a step */
} train_state;

/* Allocates this rank's shards, zeroed, in the memory of k. That is the memory of `device`, or the
 * host's if device is NULL. Borrows layout, k and device. params: borrowed, zeroed memory for the
 * parameters; if NULL, that memory is allocated, too. If `offloads` is set, params must be NULL:
 * parameters and slots are stored in a nameless file in offload_path or, if offload_path is NULL,
 * in memory from k->alloc_host. */
int state_create(const fsdp_layout *layout, const optim_type *optimizer, kernels *k,
                 const dcp_device *device, float *params, bool offloads, const char *offload_path,
                 train_state **out, dcp_error *err);
/* Checks that files can be made in `folder`. DCP_ERR_ARG: they cannot. */
int state_check_offload(const char *folder, dcp_error *err);
void state_destroy(train_state *s);

/* Updates parameters and slots from step s->step to s->step + 1; see optim_step. */
void state_update(const train_state *s, const optim *o, double lr, double grad_scale);

/* Releases the memory pages of this parameter and its slots. Does nothing if they are not
 * offloaded. state_release_all does the same for all parameters. */
void state_release(const train_state *s, const fsdp_param *param);
/* Releases the memory pages of a unit's parameters, but not of its slots. A callback for
 * fsdp_set_done; s is a train_state. */
void state_release_unit(void *s, size_t unit);
void state_release_all(const train_state *s);

/* Initializes all parameters randomly. Each rank fills its own shards with numbers that depend only
 * on the seed, the parameter's name and the element's index. */
void state_randomize(train_state *s);
/* Initializes one parameter like state_randomize. */
void state_randomize_param(train_state *s, const fsdp_param *param);

enum { STATE_MODEL = 1, STATE_OPTIMIZER = 2, STATE_FILES = 4, STATE_ALL = 7, STATE_REPLICAS = 8 };

/* Registers sections of the state for saving with libdcp. With STATE_REPLICAS, registers everything
 * that this rank holds, even if other ranks hold the same. Borrows the memory of s. */
int state_register(const train_state *s, unsigned sections, dcp_state **out, dcp_error *err);

/* Returns the address of a parameter's part of a slot. The parameter must not be frozen. */
void *state_slot_at(const train_state *s, size_t slot, const fsdp_param *param);

/* Like dcp_state_add, for a box in the memory of s, whether that is on the host or on a device. */
int state_add(const train_state *s, dcp_state *state, const dcp_tensor *tensor, const dcp_box *box,
              void *data, dcp_error *err);

/* Appends a file of `bytes` bytes to s->files, and allocates this rank's part, which the caller
 * fills. */
int state_add_file(train_state *s, const char *path, uint64_t bytes, dcp_error *err);
/* Replaces the state's files with the checkpoint's files, and allocates this rank's part of
 * each. */
int state_adopt_files(train_state *s, const dcp_checkpoint *ckpt, dcp_error *err);
