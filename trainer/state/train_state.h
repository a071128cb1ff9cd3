/* All that a checkpoint holds: this rank's shards of parameters and of what the optimizer keeps of
 * them, what an import keeps for the export, and the few numbers that say where the run stands. */
#pragma once

#include <mpi.h>

#include "fsdp/shard_layout.h"
#include "kernels/kernels.h"
#include "optim/optim.h"
#include "state/provenance.h"
#include <dcp/checkpoint.h>
#include <dcp/device.h>
#include <dcp/state.h>

typedef struct offload offload; /* memory in a file */

/* A tensor of the section /files, cut on dimension 0 like any other. */
typedef struct kept_file {
    dcp_tensor tensor; /* its path is ours */
    dcp_box box;
    void *data;
} kept_file;

typedef struct train_state {
    const fsdp_layout *layout;
    kernels *k;
    const dcp_device *device; /* whose memory k's is; NULL: the host's */
    float *params;            /* [layout->param_elems] */
    int borrows_params;
    const optim_type *optimizer;
    float *grads;                    /* [layout->grad_elems] */
    void *slots[KERNELS_MOST_SLOTS]; /* the optimizer's, [layout->grad_elems] each */
    /* Where params and slots lie if they are offloaded, else both NULL: a file, or for kernels on a
     * device the host's memory. */
    offload *offloaded;
    void *host_memory;
    kept_file *files;
    size_t n_files;
    int64_t *since;           /* [layout->n_params] the step at which its slots were zero, which may
                                 be before step 0 */
    uint64_t step;            /* updates made */
    uint64_t samples, tokens; /* consumed */
    uint64_t seed;
    int normalizes;      /* images, as its preprocessor_config.json says */
    int owes_evaluation; /* the step was to end with one, which was interrupted */
    /* Of the step that the state was loaded from: */
    int has_other_data; /* it was trained on other samples */
    int has_raw_images; /* a run has saved it that did not normalize images */
    int is_own_run;     /* it is one of this run's own, not where a new one branches off */
    char saved_by[STATE_RUN_BYTES]; /* its run, as rank 0 reads it; "" where that is unknown */
    char init[STATE_INIT_BYTES];    /* likewise, what that began with */
    int is_loaded;                  /* there is such a step */
} train_state;

/* Memory of this rank's shards, zeroed; of k, which is the device's or, NULL, the host's. Borrows
 * layout, k and device. params: borrowed memory for the parameters, zeroed; NULL: it is had like
 * the rest. offloads: parameters and slots lie in a file without a name in offload_path or, where
 * that is NULL, in memory of k->alloc_host; then params is NULL. */
int state_create(const fsdp_layout *layout, const optim_type *optimizer, kernels *k,
                 const dcp_device *device, float *params, int offloads, const char *offload_path,
                 train_state **out, dcp_error *err);
/* Whether files can be made in that folder. DCP_ERR_ARG. */
int state_check_offload(const char *folder, dcp_error *err);
void state_destroy(train_state *s);

/* The update that makes step s->step + 1 of the parameters and slots; see optim_step. */
void state_update(const train_state *s, const optim *o, double lr, double grad_scale);

/* Lets go of the pages of this parameter and its slots, of a unit, or of all; nothing where they
 * are not offloaded. */
void state_release(const train_state *s, const fsdp_param *param);
/* Of a unit's parameters alone. s: a train_state; for fsdp_set_done. */
void state_release_unit(void *s, size_t unit);
void state_release_all(const train_state *s);

/* A random start: each rank fills its own shards, with numbers that depend on the seed, the
 * parameter's name and the element's index. */
void state_randomize(train_state *s);
/* The same for one parameter. */
void state_randomize_param(train_state *s, const fsdp_param *param);

enum { STATE_MODEL = 1, STATE_OPTIMIZER = 2, STATE_FILES = 4, STATE_ALL = 7, STATE_REPLICAS = 8 };

/* Sections of the state as libdcp saves it, with STATE_REPLICAS all that this rank holds of them,
 * though other ranks hold the same; borrows the memory of s. */
int state_register(const train_state *s, unsigned sections, dcp_state **out, dcp_error *err);

/* Where a parameter's part of a slot is; the parameter is not frozen. */
void *state_slot_at(const train_state *s, size_t slot, const fsdp_param *param);

/* Adds a box of the memory of s: the same as dcp_state_add, wherever that is. */
int state_add(const train_state *s, dcp_state *state, const dcp_tensor *tensor, const dcp_box *box,
              void *data, dcp_error *err);

/* One more file, of so many bytes, with memory for this rank's part, which is the caller's to fill:
 * s->files' last. */
int state_add_file(train_state *s, const char *path, uint64_t bytes, dcp_error *err);
/* Takes over which files the checkpoint holds, with memory for this rank's part. */
int state_take_files(train_state *s, const dcp_checkpoint *ckpt, dcp_error *err);
