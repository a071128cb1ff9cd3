/* The event loop of one job. Events: a signal to us (SIGCHLD among them), a rank's end (its pidfd).
 * mpirun itself notices a rank that died and ends the others; we step in where it does not end
 * after its last rank, or where a stop that was asked for takes too long. */
#include "watch.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

enum {
    FIND_POLL_MS = 5,     /* while ranks are still appearing */
    MPIRUN_LINGER_S = 10, /* mpirun's own end after its last rank's */
};

typedef struct watcher {
    run_job *job;
    struct pollfd *polled; /* [0]: signals; [1 + rank]: ranks */
    int start;
    int announced;
    double grace_s;
    double kill_at; /* when what is left gets SIGKILL; 0: never */
    watch_result result;
} watcher;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int is_stop(int signal) { return signal == SIGTERM || signal == SIGINT || signal == SIGHUP; }

int watch_signals_open(watch_signals *signals) {
    static const int wanted[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP, SIGUSR1};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        struct sigaction found;
        sigaction(wanted[i], NULL, &found);
        /* nohup and shells that start in the background ignore signals for us: stay so */
        if (found.sa_handler != SIG_IGN || wanted[i] == SIGCHLD) sigaddset(&set, wanted[i]);
    }
    signal(SIGCHLD, SIG_DFL);
    if (sigprocmask(SIG_BLOCK, &set, &signals->before) != 0) return -1;
    signals->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return signals->fd < 0 ? -1 : 0;
}

/* The next signal that has come; 0: none. */
static int next_signal(const watch_signals *signals) {
    struct signalfd_siginfo info;
    return read(signals->fd, &info, sizeof info) == sizeof info ? (int)info.ssi_signo : 0;
}

int watch_stop_pending(const watch_signals *signals) {
    int stop = 0;
    for (int signal; (signal = next_signal(signals)) != 0;) stop |= is_stop(signal);
    return stop;
}

static void announce(watcher *w) {
    const run_job *job = w->job;
    /* the line's form is promised to scripts, for one rank too */
    fprintf(stderr, "dcp-run: start %d, %d ranks, pids", w->start, job->ranks);
    for (int r = 0; r < job->ranks; r++)
        if (job->members[r].pid) fprintf(stderr, " %d", (int)job->members[r].pid);
    if (job->seen == 0)
        fprintf(stderr, " (ended at once)");
    else if (job->seen < job->ranks)
        fprintf(stderr, " (%d ended at once)", job->ranks - job->seen);
    fputc('\n', stderr);
    w->announced = 1;
}

static void ask_to_stop(watcher *w, int signal) {
    if (w->result.stop_asked) {
        w->kill_at = now_s();
        return;
    }
    fprintf(stderr, "dcp-run: signal %d: asking the ranks to save and end, for at most %g s\n",
            signal, w->grace_s);
    w->result.stop_asked = 1;
    w->kill_at = now_s() + w->grace_s;
    job_signal_ranks(w->job, SIGTERM);
}

static void take_signals(watcher *w, const watch_signals *signals) {
    for (int signal; (signal = next_signal(signals)) != 0;) {
        if (is_stop(signal)) ask_to_stop(w, signal);
        if (signal == SIGUSR1) job_signal_ranks(w->job, SIGUSR1);
    }
}

static void look_for_ranks(watcher *w) {
    run_job *job = w->job;
    job_find_ranks(job, w->result.stop_asked ? SIGTERM : 0);
    for (int r = 0; r < job->ranks; r++)
        w->polled[1 + r] = (struct pollfd){.fd = job->members[r].fd, .events = POLLIN};
    if (job->seen == job->ranks) announce(w);
}

static void take_ends(watcher *w) {
    run_job *job = w->job;
    for (int r = 0; r < job->ranks; r++) {
        if (w->polled[1 + r].fd < 0 || !(w->polled[1 + r].revents & POLLIN)) continue;
        w->polled[1 + r].fd = -1;
        job_rank_gone(job, r);
        const double linger = now_s() + MPIRUN_LINGER_S;
        if (w->announced && job->alive == 0 && (w->kill_at == 0 || linger < w->kill_at))
            w->kill_at = linger;
    }
}

/* Past the deadline the ranks get SIGKILL; mpirun, which tidies up after them, only when it does
 * not end by itself then. */
static void enforce_deadline(watcher *w) {
    if (w->kill_at == 0 || now_s() < w->kill_at) return;
    fprintf(stderr, "dcp-run: killing what is left of start %d\n", w->start);
    w->result.killed = 1;
    if (w->job->alive == 0 && w->job->mpirun) kill(w->job->mpirun, SIGKILL);
    job_signal_ranks(w->job, SIGKILL);
    w->kill_at = now_s() + MPIRUN_LINGER_S;
}

static int timeout_ms(const watcher *w) {
    if (!w->announced) return FIND_POLL_MS;
    if (w->kill_at == 0) return -1;
    const double left = (w->kill_at - now_s()) * 1e3;
    return left < 0 ? 0 : (int)left + 1;
}

watch_result watch_job(run_job *job, const watch_signals *signals, int start, double grace_s) {
    watcher w = {.job = job, .start = start, .grace_s = grace_s};
    const nfds_t n = 1 + (nfds_t)job->ranks;
    w.polled = calloc(n, sizeof *w.polled);
    if (!w.polled) {
        fprintf(stderr, "dcp-run: out of memory\n");
        return w.result;
    }
    w.polled[0] = (struct pollfd){.fd = signals->fd, .events = POLLIN};
    while (job->mpirun) {
        if (!w.announced) look_for_ranks(&w);
        if (poll(w.polled, n, timeout_ms(&w)) < 0 && errno != EINTR) break;
        take_signals(&w, signals);
        take_ends(&w);
        enforce_deadline(&w);
        job_reap(job);
    }
    if (!w.announced) announce(&w);
    free(w.polled);
    return w.result;
}
