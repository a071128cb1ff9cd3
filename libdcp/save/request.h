/* The checked arguments of a save, and the functions that do the save. */
#pragma once

#include <stdbool.h>

#include "comm/vote.h"
#include "core/state_dict.h"
#include "move/transfer.h"
#include "store/store.h"

struct save_mover;

/* The outcome of the vote with which a save begins (save_plan_vote). */
typedef struct save_agreed {
    comm_vote vote;
    bool unchanged;      /* on all ranks, the kept plan is for the request's tensors and boxes */
    bool same_tensors;   /* all ranks passed the same tensors */
    bool same_intact;    /* all ranks know the same step to be intact */
    uint64_t tensors;    /* fingerprint of the tensors */
    uint64_t intact;     /* the intact step; UINT64_MAX: none */
    uint64_t json_bytes; /* length of rank 0's JSON */
    uint64_t engine;     /* the engine that all ranks use */
    double seconds;      /* duration of the vote */
} save_agreed;

typedef struct save_request {
    uint64_t step;
    state_tensor **sorted;
    size_t n;
    dcp_layout layout;
    dcp_engine engine;
    dcp_replicas replicas;
    int shards;                     /* how many files layout sharded has */
    char *meta;                     /* rank 0: canonical JSON */
    char *about;                    /* further members of about.json; NULL: none */
    const struct save_mover *mover; /* NULL: the boxes are in memory or plain sources */
    int make_room;                  /* dcp_save_options.make_room */
    uint64_t copy_bytes;            /* dcp_save_options.copy_bytes; asynchronous saves only */
    bool is_copied;                 /* the plan's boxes are a copy's boxes (save/copy.h) */
    uint64_t key;                   /* checksum of this rank's tensors and boxes */
    save_agreed agreed;
    move_progress progress; /* from the caller's options; each run of the save copies it */
} save_request;

/* Checks and copies the arguments of a save. Not collective. *r must be freed whether or not the
 * call succeeds. */
int save_request_make(const dcp_store *store, uint64_t step, const dcp_state *state,
                      const char *json, const dcp_save_options *options, save_request *r,
                      dcp_error *err);
void save_request_free(save_request *r);

/* Returns true if the holders of a box share its writing, false if the lowest of the holders writes
 * the box. */
bool save_request_shares(const save_request *r);

/* Returns how many bytes of the caller's memory may be copied at a fence, in addition to the
 * queue's buffers. */
uint64_t save_request_copy_bytes(const dcp_save_options *options);

/* Collective; the store must have its context. Makes the plan in the context. Because it calls
 * HDF5, which is not thread-safe, it must run on the caller's thread. */
int save_prepare(dcp_store *store, const save_request *r, dcp_error *err);

/* Collective, after save_prepare: does the whole save, from making the temporary folder to
 * publishing the step. May run on any thread, unless the engine calls HDF5 (its is_for_any_thread
 * is false). */
int save_run(dcp_store *store, const save_request *r, move_progress *progress, dcp_report *report,
             dcp_error *err);
