#include "launcher/run.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "programs/program.h"

int launcher_signals_is_stop(int signal) {
    return signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
}

int launcher_signals_open(launcher_signals *signals) {
    /* SIGPIPE: who reads what we say may be gone, and the run is not to end of that */
    static const int wanted[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE};
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

int launcher_signals_next(const launcher_signals *signals) {
    struct signalfd_siginfo info;
    return read(signals->fd, &info, sizeof info) == sizeof info ? (int)info.ssi_signo : 0;
}

void launcher_recovery_notice(launcher_recovery *r, double alive_at, double noticed,
                              int is_planned) {
    if (r->is_noticed) return;
    r->is_noticed = 1;
    r->alive_at = alive_at > 0 && alive_at < noticed ? alive_at : noticed;
    r->noticed_at = noticed;
    if (is_planned)
        r->planned++;
    else
        r->failures++;
}

/* Steps that some rank has done; -1 where none has told any. */
static int64_t steps_done(const launcher_job *job) {
    int64_t most = -1;
    for (int i = 0; i < job->ranks; i++)
        if (job->members[i].seen.phase >= RANKS_PHASE_LOADED &&
            (int64_t)job->members[i].seen.step > most)
            most = (int64_t)job->members[i].seen.step;
    return most;
}

void launcher_recovery_ended(launcher_recovery *r, const launcher_job *job) {
    const int64_t done = steps_done(job);
    r->ended_at = program_now_s();
    if (done >= 0)
        r->step = done; /* else what the start before it had done is still to be made up */
}

void launcher_recovery_begin(launcher_recovery *r, int start) {
    if (start == 1) *r = (launcher_recovery){.step = -1};
    memset(r->reached_at, 0, sizeof r->reached_at);
    r->start = start;
    r->is_noticed = 0;
}

/* The phase that all ranks have reached. */
static uint32_t phase_of(const launcher_job *job) {
    uint32_t least = RANKS_PHASE_STEPPED;
    for (int i = 0; i < job->ranks; i++)
        if (job->members[i].seen.phase < least) least = job->members[i].seen.phase;
    return least;
}

/* The step that the ranks went on from; 0: from the start. */
static int64_t step_resumed(const launcher_job *job) {
    int64_t step = 0;
    return sscanf(job->resumed, "step %" SCNd64, &step) == 1 ? step : 0;
}

static void print_line(launcher_recovery *r, const launcher_job *job) {
    const double *at = r->reached_at;
    const int64_t lost = r->step > step_resumed(job) ? r->step - step_resumed(job) : 0;
    const double sum = at[RANKS_PHASE_STEPPED] - r->alive_at;
    r->steps_lost += lost;
    r->seconds_lost += sum;
    fprintf(stderr,
            "dcp-run: start %d: %s; %" PRId64 " %s to compute again; noticed %.2f s, ended %.2f, "
            "started %.2f, rebuilt %.2f, loaded %.2f, first step %.2f: %.2f s\n",
            r->start, *job->resumed ? job->resumed : "from the start", lost,
            lost == 1 ? "step" : "steps", r->noticed_at - r->alive_at, r->ended_at - r->noticed_at,
            at[RANKS_PHASE_READY] - r->ended_at, at[RANKS_PHASE_REBUILT] - at[RANKS_PHASE_READY],
            at[RANKS_PHASE_LOADED] - at[RANKS_PHASE_REBUILT],
            at[RANKS_PHASE_STEPPED] - at[RANKS_PHASE_LOADED], sum);
}

int launcher_recovery_look(launcher_recovery *r, const launcher_job *job) {
    if (r->reached_at[RANKS_PHASE_STEPPED] > 0) return 1;
    const uint32_t phase = phase_of(job);
    const double now = program_now_s();
    for (uint32_t i = 1; i <= phase; i++)
        if (r->reached_at[i] == 0) r->reached_at[i] = now;
    if (phase < RANKS_PHASE_STEPPED) return 0;
    if (r->start > 1) print_line(r, job);
    return 1;
}

void launcher_recovery_sum_up(const launcher_recovery *r) {
    if (r->start < 2) return;
    fprintf(stderr,
            "dcp-run: %d starts, %d after failures, %d planned: %" PRId64
            " %s computed again, %.1f s lost\n",
            r->start, r->failures, r->planned, r->steps_lost, r->steps_lost == 1 ? "step" : "steps",
            r->seconds_lost);
}
