/* Work that a thread does while its caller continues or, without a thread, that is done when the
 * caller waits for it. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "dcp/error.h"

/* Runs once. Returns a status, and fills in the error if that is a failure. */
typedef int (*core_task_fn)(void *ctx, dcp_error *err);

typedef struct core_task {
    core_task_fn work;
    void *ctx;
    int status; /* the outcome, after core_task_finish */
    dcp_error error;
    atomic_int done;      /* the work has ended */
    atomic_int cancelled; /* the caller does not need the outcome; `work` checks this flag */
    pid_t process;        /* that made it */
    bool has_thread;
    pthread_t thread;
} core_task;

void core_task_make(core_task *task, core_task_fn work, void *ctx);

/* Starts a thread for the work, named `name` (at most 15 characters). If that is not possible,
 * has_thread stays false. */
void core_task_start(core_task *task, const char *name);

/* Ends the task instead of core_task_start: `work` is not called. task->error is filled in. */
void core_task_fail(core_task *task, int status);

/* Waits for the thread; without one, does the work here, unless that was done. At most one call
 * waits, and none in a forked process. */
void core_task_finish(core_task *task);

/* A forked process has a copy of the task, but neither its thread nor a part in its collectives. */
bool core_task_is_own(const core_task *task);

static inline bool core_task_is_done(const core_task *task) {
    return atomic_load(&task->done) != 0;
}

static inline void core_task_cancel(core_task *task) { atomic_store(&task->cancelled, 1); }
