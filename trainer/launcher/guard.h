/* The guard: a process between dcp-run and mpirun, one for each start. What a rank starts loses its
 * parents to the guard alone, so that the guard's children are the job, all of it and nothing else,
 * and a pid that it kills can be nobody else's, because only the guard can reap it. It ends the job
 * when dcp-run asks for that, and at once when dcp-run has died, however that died; then it removes
 * the job's folders, and ends. */
#pragma once

#include <sys/types.h>

#include "launcher/folders.h"

/* What has SIGKILL for longer than this is told of. The kernel needs its time to end the others, so
 * that nobody gives up sooner. */
enum { LAUNCHER_PATIENCE_S = 5 };

typedef struct launcher_guard {
    pid_t pid;
    int fd; /* a socket to it, at whose end the guard ends the job; readable: there is news */
    char mark[20]; /* in the value of DCP_RUN_JOB of all that the job starts */
} launcher_guard;

/* What the guard tells of mpirun. */
typedef struct launcher_news {
    pid_t mpirun;
    int ended;
    int status; /* as waitpid gives it */
    int waited; /* it has waited for children, so ranks have run */
} launcher_news;

/* Starts the guard, and in a child of it `exec`, which must not return. The guard keeps the
 * folders' locks and none of this process' other descriptors. 0, or -1 with errno. */
int launcher_guard_start(launcher_guard *guard, const launcher_folders *folders,
                         void (*exec)(void *ctx), void *ctx, pid_t *mpirun);

/* Does not wait. 1: mpirun has ended, `news` says how; 0: it has not; -1: the guard is gone. */
int launcher_guard_hear(const launcher_guard *guard, launcher_news *news);

/* SIGKILL to all of the job but mpirun and its children. */
void launcher_guard_kill_orphans(const launcher_guard *guard);

/* Lets mpirun go on, should somebody have stopped it. */
void launcher_guard_wake_mpirun(const launcher_guard *guard);

/* SIGKILL to mpirun, where it lives. */
void launcher_guard_kill_mpirun(const launcher_guard *guard);

/* SIGKILL to all of the job, and waits until nothing of it is left. What has not ended after a few
 * seconds is told on stderr. 0, or -1 where it has not ended after these, and after `limit_s`: then
 * the guard stays to wait for it. */
int launcher_guard_clear(launcher_guard *guard, double limit_s);
