/* The event loop of one job. Events: a signal to us, the guard's news, a rank's end (its pidfd).
 * mpirun itself notices a rank that died and ends the others; we step in where it does not end
 * after its last rank, or where a stop that was asked for takes too long. mpirun's status is the
 * ranks' own and known from nowhere else, hence it is killed last. */
#include "launcher/monitor.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "programs/program.h"

enum {
    FIRST_RANK = 2,
    FIND_POLL_MS = 5,     /* while ranks are still appearing */
    SETTLE_MS = 1000,     /* if no other rank appears for so long, the missing ones have ended */
    MPIRUN_LINGER_S = 10, /* mpirun's own end after its last rank's */
};

typedef struct monitor {
    launcher_job *job;
    struct pollfd *polled; /* [0]: signals; [1]: the guard; [FIRST_RANK + rank]: ranks */
    int start;
    int announced;
    double settled_at; /* when no more ranks are waited for; 0: mpirun has started none yet */
    double grace_s;
    double kill_at;   /* when the ranks get SIGKILL; 0: never */
    double linger_at; /* when what has outlived all ranks gets SIGKILL; 0: a rank lives */
    int orphans_killed;
    launcher_result result;
} monitor;

static int is_stop(int signal) { return signal == SIGTERM || signal == SIGINT || signal == SIGHUP; }

int launcher_signals_open(launcher_signals *signals) {
    /* SIGPIPE: who reads what we say may be gone, and the run is not to end of that */
    static const int wanted[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGPIPE};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        struct sigaction found;
        sigaction(wanted[i], NULL, &found);
        /* nohup and shells that start in the background ignore signals for us: stay so */
        if (found.sa_handler != SIG_IGN) sigaddset(&set, wanted[i]);
    }
    signal(SIGCHLD, SIG_DFL); /* ignored, children could not be waited for */
    if (sigprocmask(SIG_BLOCK, &set, &signals->before) != 0) return -1;
    signals->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return signals->fd < 0 ? -1 : 0;
}

/* The next signal that has come; 0: none. */
static int next_signal(const launcher_signals *signals) {
    struct signalfd_siginfo info;
    return read(signals->fd, &info, sizeof info) == sizeof info ? (int)info.ssi_signo : 0;
}

int launcher_stop_pending(const launcher_signals *signals) {
    int stop = 0;
    for (int signal; (signal = next_signal(signals)) != 0;) stop |= is_stop(signal);
    return stop;
}

static void announce(monitor *w) {
    const launcher_job *job = w->job;
    char *line = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&line, &bytes);
    if (!out) return;
    /* the line's form is promised to scripts, for one rank too */
    fprintf(out, "dcp-run: start %d, %d ranks, pids", w->start, job->ranks);
    for (int r = 0; r < job->ranks; r++)
        if (job->members[r].pid) fprintf(out, " %d", (int)job->members[r].pid);
    if (job->seen == 0)
        fprintf(out, " (ended at once)");
    else if (job->seen < job->ranks)
        fprintf(out, " (%d ended at once)", job->ranks - job->seen);
    fputc('\n', out);
    /* in one write: the ranks write to stderr as well */
    if (fclose(out) == 0) fwrite(line, 1, bytes, stderr);
    free(line);
    w->announced = 1;
}

static void ask_to_stop(monitor *w, int signal) {
    if (w->result.stop_asked) {
        w->kill_at = program_now_s();
        return;
    }
    fprintf(stderr,
            "dcp-run: SIG%s: asking the ranks to save and end; what is left after %g s "
            "(--grace), or at a second signal, is killed\n",
            sigabbrev_np(signal), w->grace_s);
    w->result.stop_asked = 1;
    w->kill_at = program_now_s() + w->grace_s;
    launcher_job_signal_ranks(w->job, SIGTERM);
}

static void take_signals(monitor *w, const launcher_signals *signals) {
    for (int signal; (signal = next_signal(signals)) != 0;) {
        if (is_stop(signal)) ask_to_stop(w, signal);
        if (signal == SIGUSR1) launcher_job_signal_ranks(w->job, SIGUSR1);
    }
}

static void look_for_ranks(monitor *w) {
    launcher_job *job = w->job;
    const int found = launcher_job_find_ranks(job, w->result.stop_asked ? SIGTERM : 0);
    for (int r = 0; r < job->ranks; r++)
        w->polled[FIRST_RANK + r] = (struct pollfd){.fd = job->members[r].fd, .events = POLLIN};
    if (w->announced) return;
    if (found || (job->launched && w->settled_at == 0))
        w->settled_at = program_now_s() + SETTLE_MS * 1e-3;
    if (job->seen == job->ranks || (w->settled_at > 0 && program_now_s() >= w->settled_at))
        announce(w);
}

static void take_ends(monitor *w) {
    launcher_job *job = w->job;
    for (int r = 0; r < job->ranks; r++) {
        if (w->polled[FIRST_RANK + r].fd < 0 || !(w->polled[FIRST_RANK + r].revents & POLLIN))
            continue;
        w->polled[FIRST_RANK + r].fd = -1;
        launcher_job_rank_gone(job, r);
        launcher_guard_wake_mpirun(&job->guard); /* to end the others */
    }
}

/* The ranks did not end in time. mpirun tidies up after them by itself, where it has any; for one
 * that SIGKILL does not end it would wait for ever. */
static void kill_ranks(monitor *w) {
    fprintf(stderr, "dcp-run: killing what is left of start %d\n", w->start);
    if (w->job->alive == 0 || w->result.killed) launcher_guard_kill_mpirun(&w->job->guard);
    w->result.killed = 1;
    launcher_job_signal_ranks(w->job, SIGKILL);
}

/* All ranks have ended, mpirun has not. Only it knows their status, so it is killed last. */
static void kill_lingering(monitor *w) {
    if (w->orphans_killed) {
        fprintf(stderr, "dcp-run: killing mpirun, which has outlived all ranks of start %d\n",
                w->start);
        launcher_guard_kill_mpirun(&w->job->guard);
    } else {
        fprintf(stderr, "dcp-run: killing what the ranks of start %d left running\n", w->start);
        launcher_guard_kill_orphans(&w->job->guard);
        w->orphans_killed = 1;
    }
    w->linger_at = program_now_s() + MPIRUN_LINGER_S;
}

/* The earlier of two times, either of which may be 0: never. */
static double earlier(double a, double b) {
    if (a == 0 || b == 0) return a + b;
    return a < b ? a : b;
}

static void enforce_deadlines(monitor *w) {
    const int all_ended = w->announced && w->job->alive == 0;
    if (!all_ended) w->linger_at = 0;
    if (all_ended && w->linger_at == 0) w->linger_at = program_now_s() + MPIRUN_LINGER_S;
    const double deadline = earlier(w->kill_at, w->linger_at);
    if (deadline == 0 || program_now_s() < deadline) return;
    if (all_ended)
        kill_lingering(w);
    else
        kill_ranks(w);
    if (w->kill_at > 0) w->kill_at = program_now_s() + MPIRUN_LINGER_S;
}

static int timeout_ms(const monitor *w) {
    if (!w->announced) return FIND_POLL_MS;
    const int missing = w->job->seen < w->job->ranks;
    const double deadline = earlier(w->kill_at, w->linger_at);
    if (deadline == 0) return missing ? SETTLE_MS : -1;
    const double left = (deadline - program_now_s()) * 1e3;
    if (missing && left > SETTLE_MS) return SETTLE_MS;
    return left < 0 ? 0 : (int)left + 1;
}

launcher_result launcher_monitor_job(launcher_job *job, const launcher_signals *signals, int start,
                                     double grace_s) {
    monitor w = {.job = job, .start = start, .grace_s = grace_s};
    const nfds_t n = FIRST_RANK + (nfds_t)job->ranks;
    w.polled = calloc(n, sizeof *w.polled);
    if (!w.polled) {
        fprintf(stderr, "dcp-run: out of memory\n");
        return w.result;
    }
    w.polled[0] = (struct pollfd){.fd = signals->fd, .events = POLLIN};
    w.polled[1] = (struct pollfd){.fd = job->guard.fd, .events = POLLIN};
    while (job->mpirun) {
        if (!w.announced || job->seen < job->ranks) look_for_ranks(&w);
        if (poll(w.polled, n, timeout_ms(&w)) < 0 && errno != EINTR) break;
        take_signals(&w, signals);
        take_ends(&w);
        launcher_job_hear(job);
        if (job->mpirun) enforce_deadlines(&w);
    }
    if (!w.announced) announce(&w);
    free(w.polled);
    return w.result;
}
