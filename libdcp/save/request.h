/* The checked arguments of a save. */
#pragma once

#include "core/state_dict.h"
#include "move/transfer.h"
#include "store/store.h"

struct save_mover;

/* What ranks tell each other when a save begins (save/plan.c). */
#define SAVE_TOLD_VALUES 5
#define SAVE_TOLD_WORDS (2 * SAVE_TOLD_VALUES + 7)

typedef struct save_request {
    uint64_t step;
    state_tensor **sorted;
    size_t n;
    dcp_layout layout;
    dcp_engine engine;
    dcp_replicas replicas;
    int shards;                     /* files of layout sharded */
    char *meta;                     /* rank 0: canonical JSON */
    char *about;                    /* further members of about.json; NULL: none */
    const struct save_mover *mover; /* NULL: the boxes are memory or plain sources */
    int make_room;                  /* dcp_save_options.make_room */
    uint64_t copy_bytes;            /* dcp_save_options.copy_bytes, of an asynchronous save */
    int is_copied;                  /* the plan's boxes are a copy's (copy.h) */
    uint64_t key;                   /* checksum of this rank's tensors and boxes */
    uint64_t told[SAVE_TOLD_WORDS]; /* by all ranks, the least of each */
    double told_s;                  /* how long that took */
    move_progress progress; /* as the caller's options ask for; each run of the save has its own */
} save_request;

/* Checks and copies the arguments of a save. Not collective; to be freed in either case. */
int save_request_make(const dcp_store *store, uint64_t step, const dcp_state *state,
                      const char *json, const dcp_save_options *options, save_request *r,
                      dcp_error *err);
void save_request_free(save_request *r);

/* Whether holders of the same box share its writing: not where the lowest holder's is wanted. */
int save_request_shares(const save_request *r);

/* How much of the caller's memory may be copied at a fence, beside the queue's buffers. */
uint64_t save_request_copy_bytes(const dcp_save_options *options);
