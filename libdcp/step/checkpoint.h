/* An open checkpoint: the tables of its files, and its tensors with the datasets that hold them. */
#pragma once

#include "comm/comm.h"
#include "dcp/checkpoint.h"
#include "step/tables.h"

/* A dataset that holds a box of a tensor. */
typedef struct step_dataset {
    step_file *file;
    const step_row *row;
    uint64_t first_block; /* blocks of the tensor's datasets before it */
} step_dataset;

typedef struct step_tensor {
    dcp_tensor tensor;
    uint64_t bytes;
    size_t first_dataset, n_datasets; /* ascending by their starts on dimension `sweep` */
    uint32_t sweep;
    uint64_t longest; /* dataset on that dimension */
    uint64_t blocks;  /* of all datasets */
} step_tensor;

/* The block of a dataset that was read last. */
typedef struct step_block_cache {
    unsigned char *data;
    const step_row *row; /* NULL: none */
    uint64_t number;
} step_block_cache;

/* What uses the checkpoint beside the caller's own calls: a struct that begins with this one. */
typedef struct step_user {
    void (*settle)(struct step_user *user); /* waits for its end */
} step_user;

struct dcp_checkpoint {
    dcp_comm *comm;  /* borrowed */
    step_user *user; /* a load in flight; NULL: none */
    char *path;
    struct step_hold *hold; /* of the folder of that path; NULL: this rank could not open it */
    int gone;               /* the folder was found, but had lost its name when it was opened */
    uint64_t step;
    dcp_layout layout;
    char *json;
    step_file *files, **by_address;
    size_t n_files;
    int scattered;           /* some file is hidden from some rank */
    uint64_t *reader_ranges; /* of the readers, where it is scattered */
    step_tensor *tensors;
    char *tensor_paths;
    size_t n_tensors;
    step_dataset *datasets; /* by tensor */
    uint64_t blocks;        /* of all files */
    uint64_t address_end;
    char state_id[17];      /* layout sharded */
    step_block_cache cache; /* of reads by whole blocks */
};

/* Gives the checkpoint n files, none of them open. */
int step_checkpoint_make_files(dcp_checkpoint *ckpt, size_t n, dcp_error *err);

/* Joins the files' rows into tensors; checks that shards belong together and cover every tensor. */
int step_checkpoint_join(dcp_checkpoint *ckpt, dcp_error *err);

/* Reads the metas of the files that have a path: they are of one state, and of the folder's step.
 */
int step_checkpoint_read_metas(dcp_checkpoint *ckpt, dcp_error *err);

/* Waits for the load in flight, if there is one. */
void step_checkpoint_settle(dcp_checkpoint *ckpt);

/* The tensor's datasets [*first, *end) are all that can share elements with the box. */
void step_checkpoint_near(const dcp_checkpoint *ckpt, const step_tensor *t, const dcp_box *box,
                          size_t *first, size_t *end);

const step_tensor *step_checkpoint_lookup(const dcp_checkpoint *ckpt, const char *path);
