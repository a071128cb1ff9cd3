#include "launcher/guard.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/processes.h"
#include "programs/program.h"

enum { LEAST_POLL_MS = 5, MOST_POLL_MS = 1000 }; /* between two looks at what is being killed */
enum { LOOK_MS = 100 };                          /* between two looks at the clock */

enum { ORPHANS = 'o', MPIRUN = 'm', WAKE = 'w' }; /* what the guard is asked to kill, or to wake */

/* The guard's own side. */

typedef struct guard_work {
    int fd; /* the socket to dcp-run */
    launcher_news news;
} guard_work;

/* Children that have ended. */
static void reap_all(guard_work *g) {
    for (siginfo_t info;;) {
        info.si_pid = 0;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) return;
        const pid_t pid = info.si_pid;
        int status;
        const int waited = pid == g->news.mpirun && launcher_processes_waited(pid) != 0;
        if (waitpid(pid, &status, 0) != pid || pid != g->news.mpirun) continue;
        g->news = (launcher_news){pid, 1, status, waited};
        send(g->fd, &g->news, sizeof g->news, MSG_NOSIGNAL);
    }
}

/* With all that descends from them: what does not end would keep its children from us. */
static void kill_orphans(const guard_work *g) {
    const pid_t but = g->news.ended ? 0 : g->news.mpirun;
    launcher_processes_visit_below(getpid(), but, launcher_processes_kill, NULL);
}

static int has_children(void) {
    siginfo_t info;
    return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

/* However long it takes: what SIGKILL does not end now may end later. */
static void end_job(guard_work *g, struct pollfd *child_ended) {
    int ms = LEAST_POLL_MS;
    for (;;) {
        struct signalfd_siginfo info;
        while (read(child_ended->fd, &info, sizeof info) > 0) {
        }
        reap_all(g);
        if (!has_children()) return;
        launcher_processes_visit_below(getpid(), 0, launcher_processes_kill, NULL);
        if (poll(child_ended, 1, ms) == 0 && ms < MOST_POLL_MS) ms *= 2;
    }
}

/* Serves dcp-run until the socket ends. */
static void serve(guard_work *g, int signals) {
    struct pollfd polled[] = {{.fd = g->fd, .events = POLLIN}, {.fd = signals, .events = POLLIN}};
    for (;;) {
        if (poll(polled, 2, -1) < 0) continue;
        struct signalfd_siginfo info;
        while (read(signals, &info, sizeof info) > 0) {
        }
        reap_all(g);
        char asked = 0;
        if (polled[0].revents && recv(g->fd, &asked, 1, MSG_DONTWAIT) <= 0) break;
        if (asked == ORPHANS) kill_orphans(g);
        if (asked == MPIRUN && !g->news.ended) kill(g->news.mpirun, SIGKILL);
        if (asked == WAKE && !g->news.ended) kill(g->news.mpirun, SIGCONT);
    }
    end_job(g, &polled[1]);
}

static int by_number(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

/* A pipe that the guard held would not end for its reader when dcp-run and the ranks have. */
static void close_all_but(int *kept, size_t n) {
    unsigned from = 0;
    qsort(kept, n, sizeof *kept, by_number);
    for (size_t i = 0; i < n; i++) {
        if (kept[i] < 0) continue;
        if ((unsigned)kept[i] > from) close_range(from, (unsigned)kept[i] - 1, 0);
        from = (unsigned)kept[i] + 1;
    }
    close_range(from, ~0u, 0);
}

/* Who kills dcp-run by its name must not end the guard with it. */
static void take_name(void) {
    static const char name[] = "job-guard";
    const size_t room = strlen(program_invocation_name);
    memset(program_invocation_name, 0, room);
    memcpy(program_invocation_name, name, room < sizeof name ? room : sizeof name - 1);
    prctl(PR_SET_NAME, name);
}

static _Noreturn void be_guard(int fd, const launcher_folders *folders, void (*exec)(void *ctx),
                               void *ctx) {
    sigset_t all;
    guard_work g = {.fd = fd};
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL); /* exec sets its own */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    setsid();
    const int signals = signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK);
    const pid_t child = signals < 0 ? -1 : fork();
    if (child == 0) {
        exec(ctx);
        _exit(127);
    }
    g.news.mpirun = child;
    if (child < 0) g.news.status = errno;
    send(fd, &g.news, sizeof g.news, MSG_NOSIGNAL);
    if (child < 0) _exit(1);
    take_name();
    int kept[2 + LAUNCHER_FOLDERS] = {fd, signals};
    memcpy(kept + 2, folders->lock, sizeof folders->lock);
    close_all_but(kept, sizeof kept / sizeof *kept);
    (void)!chdir("/");
    serve(&g, signals);
    launcher_folders_remove(folders);
    _exit(0);
}

/* dcp-run's side. */

static void make_mark(char *mark, size_t size) {
    uint64_t number = 0;
    if (getrandom(&number, sizeof number, 0) != sizeof number)
        number = (uint64_t)getpid() << 32 | (uint64_t)(program_now_s() * 1e3);
    snprintf(mark, size, "%016llx", (unsigned long long)number);
}

int launcher_guard_start(launcher_guard *guard, const launcher_folders *folders,
                         void (*exec)(void *ctx), void *ctx, pid_t *mpirun) {
    int pair[2];
    *guard = (launcher_guard){.fd = -1};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) return -1;
    make_mark(guard->mark, sizeof guard->mark);
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* should the guard be killed, the job becomes ours */
    guard->pid = fork();
    if (guard->pid == 0) {
        close(pair[0]);
        be_guard(pair[1], folders, exec, ctx);
    }
    const int code = errno;
    close(pair[1]);
    guard->fd = pair[0];
    launcher_news news = {.mpirun = -1, .status = code};
    if (guard->pid > 0 && recv(guard->fd, &news, sizeof news, 0) <= 0) news.status = ECHILD;
    *mpirun = news.mpirun;
    if (news.mpirun > 0) return 0;
    close(guard->fd);
    if (guard->pid > 0) waitpid(guard->pid, NULL, 0);
    errno = news.status;
    return -1;
}

int launcher_guard_hear(const launcher_guard *guard, launcher_news *news) {
    const ssize_t n = recv(guard->fd, news, sizeof *news, MSG_DONTWAIT);
    if (n == sizeof *news) return 1;
    return n < 0 && (errno == EAGAIN || errno == EINTR) ? 0 : -1;
}

/* Somebody may have stopped it. */
static void wake(const launcher_guard *guard) { kill(guard->pid, SIGCONT); }

static void ask(const launcher_guard *guard, char what) {
    wake(guard);
    send(guard->fd, &what, 1, MSG_NOSIGNAL);
}

void launcher_guard_kill_orphans(const launcher_guard *guard) { ask(guard, ORPHANS); }

void launcher_guard_wake_mpirun(const launcher_guard *guard) { ask(guard, WAKE); }

void launcher_guard_kill_mpirun(const launcher_guard *guard) { ask(guard, MPIRUN); }

/* How long it takes until what is killed is gone. */
typedef struct clearing {
    double begin, limit_s;
    int told;
} clearing;

static void tell_alive(void *ctx, const launcher_process *process) {
    (void)ctx;
    char *what = launcher_processes_describe(process->pid);
    if (what) fprintf(stderr, "dcp-run: process %s: SIGKILL does not end it\n", what);
    free(what);
}

/* Whether it is time to tell what is left, which is done once. */
static int is_to_tell(clearing *c) {
    if (c->told || program_now_s() - c->begin < LAUNCHER_PATIENCE_S) return 0;
    return c->told = 1;
}

static int is_over(const clearing *c) { return program_now_s() - c->begin >= c->limit_s; }

/* Children of this process that have the job's mark, and what descends from these. Others, which it
 * had before it became dcp-run, are left alone. */
typedef struct marked_job {
    const char *mark;
    int tell, left;
} marked_job;

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

/* The guard itself was killed, so that its children are ours. 0, or -1 where some are left. */
static int kill_adopted(const launcher_guard *guard, clearing *c) {
    for (int clean = 0; clean < 2;) { /* children of what ends become ours after a look, too */
        marked_job job = {.mark = guard->mark, .tell = is_to_tell(c)};
        while (waitpid(-1, NULL, WNOHANG) > 0) {
        }
        launcher_processes_visit(getpid(), kill_marked, &job);
        clean = job.left ? 0 : clean + 1;
        if (job.left && is_over(c)) return -1;
        if (job.left) poll(NULL, 0, LEAST_POLL_MS);
    }
    return 0;
}

int launcher_guard_clear(launcher_guard *guard, double limit_s) {
    clearing c = {program_now_s(), limit_s > LAUNCHER_PATIENCE_S ? limit_s : LAUNCHER_PATIENCE_S,
                  0};
    int status = 0, gone;
    struct pollfd ended = {.fd = pidfd_open(guard->pid, 0), .events = POLLIN};
    close(guard->fd);
    wake(guard);
    while (!(gone = waitpid(guard->pid, &status, WNOHANG) != 0)) {
        if (is_to_tell(&c)) launcher_processes_visit_below(guard->pid, 0, tell_alive, NULL);
        if (is_over(&c)) break;
        poll(&ended, 1, LOOK_MS);
    }
    if (ended.fd >= 0) close(ended.fd);
    if (gone && WIFSIGNALED(status)) return kill_adopted(guard, &c);
    return gone ? 0 : -1;
}
