/* Work that a thread does while its caller continues. If no thread could be started, the caller
 * itself does the work, in core_task_finish. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include "dcp/error.h"

/* Called once. Returns a status, and fills in the error if the status is a failure. */
typedef int (*core_task_fn)(void *ctx, dcp_error *err);

typedef struct core_task {
    core_task_fn work;
    void *ctx;
    int status; /* the outcome, after core_task_finish */
    dcp_error error;
    atomic_int done;      /* the work has ended */
    atomic_int cancelled; /* the caller does not need the outcome; `work` checks this flag */
    pid_t process;        /* the process that made the task */
    bool has_thread;
    pthread_t thread;
} core_task;

void core_task_init(core_task *task, core_task_fn work, void *ctx);

/* Starts a thread for the work, named `name` (at most 15 characters). If that is not possible,
 * has_thread stays false. */
void core_task_start(core_task *task, const char *name);

/* Ends the task; called instead of core_task_start. `work` is not called. The caller has filled in
 * task->error. */
void core_task_fail(core_task *task, int status);

/* Waits for the thread. If the task has no thread, does the work now, unless it was done before.
 * Must not be called again after it has waited for a thread, nor in a forked process. */
void core_task_finish(core_task *task);

/* Returns true in the process that made the task. A forked process has a copy of the task, but not
 * its thread, and takes no part in the collectives that the work calls. */
bool core_task_is_own(const core_task *task);

static inline bool core_task_is_done(const core_task *task) {
    return atomic_load(&task->done) != 0;
}

static inline void core_task_cancel(core_task *task) { atomic_store(&task->cancelled, 1); }
