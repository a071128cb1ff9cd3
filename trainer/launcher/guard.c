#include "launcher/guard.h"

#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/agent/processes.h"
#include "programs/program.h"

enum { POLL_MS = 5, LOOK_MS = 100 };

void launcher_guard_name(launcher_guard *guard) {
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, 0) != sizeof number)
        number = (uint64_t)getpid() << 32 | (uint64_t)(program_now_s() * 1e3);
    snprintf(guard->mark, sizeof guard->mark, "%016llx", (unsigned long long)number);
}

int launcher_guard_start(launcher_guard *guard, launcher_channel *channel,
                         const launcher_folders *folders, const char *rank, void (*exec)(void *ctx),
                         void *ctx) {
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return -1;
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* should the agent be killed, the job becomes ours */
    guard->pid = fork();
    if (guard->pid == 0) {
        close(pair[0]);
        launcher_channel up;
        launcher_channel_open(&up, pair[1]);
        launcher_agent_run(&(launcher_agent_work){
            .channel = &up, .folders = folders, .rank = rank, .exec = exec, .ctx = ctx});
    }
    const int code = errno;
    close(pair[1]);
    launcher_channel_open(channel, pair[0]);
    if (guard->pid > 0) return 0;
    launcher_channel_close(channel);
    errno = code;
    return -1;
}

void launcher_guard_wake(const launcher_guard *guard) { kill(guard->pid, SIGCONT); }

/* Children of this process that have the job's mark, and what descends from these. Others, which it
 * had before it became dcp-run, are left alone. */
typedef struct marked_job {
    const char *mark;
    int tell, left;
} marked_job;

static void tell_alive(void *ctx, const launcher_process *process) {
    (void)ctx;
    char *what = launcher_processes_describe(process->pid);
    if (what) fprintf(stderr, "dcp-run: process %s: SIGKILL does not end it\n", what);
    free(what);
}

static void kill_marked(void *ctx, const launcher_process *child) {
    marked_job *job = ctx;
    char *marks = launcher_processes_variable(child->pid, "DCP_RUN_JOB");
    const int is_marked = marks && strstr(marks, job->mark);
    /* whose a process is that is ending cannot be seen any more */
    const int is_left = is_marked || (!marks && launcher_processes_is_ending(child->pid));
    free(marks);
    job->left += is_left;
    if (is_marked) {
        launcher_processes_visit_below(child->pid, 0, launcher_processes_kill, NULL);
        launcher_processes_kill(NULL, child);
    }
    if (!is_left || !job->tell) return;
    tell_alive(NULL, child);
    launcher_processes_visit_below(child->pid, 0, tell_alive, NULL);
}

/* The agent itself was killed, so that its children are ours. */
static int kill_adopted(const launcher_guard *guard, double end) {
    const double tell_at = program_now_s() + LAUNCHER_PATIENCE_S;
    int told = 0;
    for (int clean = 0; clean < 2;) { /* children of what ends become ours after a look, too */
        marked_job job = {.mark = guard->mark, .tell = !told && program_now_s() >= tell_at};
        told |= job.tell;
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
        launcher_processes_visit(getpid(), kill_marked, &job);
        clean = job.left ? 0 : clean + 1;
        if (job.left && told && program_now_s() >= end) return -1;
        if (job.left) poll(NULL, 0, POLL_MS);
    }
    return 0;
}

int launcher_guard_clear(launcher_guard *guard, double end) {
    int status = 0, gone;
    struct pollfd ended = {.fd = pidfd_open(guard->pid, 0), .events = POLLIN};
    while (!(gone = waitpid(guard->pid, &status, WNOHANG) != 0) && program_now_s() < end) {
        launcher_guard_wake(guard);
        poll(&ended, 1, LOOK_MS);
    }
    if (ended.fd >= 0) close(ended.fd);
    if (gone && WIFSIGNALED(status)) return kill_adopted(guard, end);
    return gone ? 0 : -1;
}
