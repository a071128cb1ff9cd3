/* The checked arguments of a save, and the save itself, on any thread. */
#pragma once

#include "comm/vote.h"
#include "core/state_dict.h"
#include "move/transfer.h"
#include "store/store.h"

struct save_mover;

/* What the ranks vote on when a save begins: save_plan_vote. */
typedef struct save_agreed {
    comm_vote vote;
    bool unchanged;      /* the kept plan is of all ranks' tensors and boxes */
    bool same_tensors;   /* all ranks passed the same tensors */
    bool same_intact;    /* all ranks know the same step to be intact */
    uint64_t tensors;    /* their fingerprint */
    uint64_t intact;     /* the step; UINT64_MAX: none */
    uint64_t json_bytes; /* of rank 0's JSON */
    uint64_t engine;     /* that all ranks use */
    double seconds;      /* that the vote took */
} save_agreed;

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
    const struct save_mover *mover; /* NULL: the boxes are in memory or plain sources */
    int make_room;                  /* dcp_save_options.make_room */
    uint64_t copy_bytes;            /* dcp_save_options.copy_bytes, of an asynchronous save */
    int is_copied;                  /* the plan's boxes are a copy's (save/copy.h) */
    uint64_t key;                   /* checksum of this rank's tensors and boxes */
    save_agreed agreed;
    move_progress progress; /* as the caller's options request; each run of the save has its own */
} save_request;

/* Checks and copies the arguments of a save. Not collective; to be freed in either case. */
int save_request_make(const dcp_store *store, uint64_t step, const dcp_state *state,
                      const char *json, const dcp_save_options *options, save_request *r,
                      dcp_error *err);
void save_request_free(save_request *r);

/* Returns true if the holders of a box share its writing, false if the lowest one writes it. */
int save_request_shares(const save_request *r);

/* Returns how much of the caller's memory may be copied at a fence, besides the queue's buffers. */
uint64_t save_request_copy_bytes(const dcp_save_options *options);

/* Collective, for a store that has its context: does what only a thread that may call HDF5 can do,
 * since HDF5 is not thread-safe. Leaves the plan in the context. */
int save_prepare(dcp_store *store, const save_request *r, dcp_error *err);

/* Collective, after save_prepare: saves, from the temporary folder to publication. Only engines
 * that need the caller's thread (is_for_any_thread) call HDF5 here. */
int save_run(dcp_store *store, const save_request *r, move_progress *progress, dcp_report *report,
             dcp_error *err);
