#include "core/task.h"

#include <assert.h>
#include <unistd.h>

#include "core/system.h"

void core_task_init(core_task *task, core_task_fn work, void *ctx) {
    *task = (core_task){.work = work, .ctx = ctx, .process = getpid()};
}

static void *run_task(void *ctx) {
    core_task *task = ctx;
    task->status = task->work(task->ctx, &task->error);
    atomic_store(&task->done, 1);
    return NULL;
}

void core_task_start(core_task *task, const char *name) {
    task->has_thread = !core_thread_start(&task->thread, NULL, run_task, task, name);
}

void core_task_fail(core_task *task, int status) {
    task->status = status;
    atomic_store(&task->done, 1);
}

void core_task_finish(core_task *task) {
    assert(core_task_is_own(task));
    if (task->has_thread)
        pthread_join(task->thread, NULL);
    else if (!core_task_is_done(task))
        run_task(task);
}

bool core_task_is_own(const core_task *task) { return task->process == getpid(); }
