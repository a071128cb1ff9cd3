#include "launcher/run.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "programs/program.h"

bool launcher_signals_is_stop(int signal) {
    return signal == SIGTERM || signal == SIGINT || signal == SIGHUP;
}

int launcher_signals_open(launcher_signals *signals) {
    /* SIGPIPE: the reader of dcp-run's messages may be gone, which must not end the run */
    static const int wanted[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        struct sigaction found;
        sigaction(wanted[i], NULL, &found);
        /* a signal that was ignored before, for example because of nohup, remains ignored */
        if (found.sa_handler != SIG_IGN) sigaddset(&set, wanted[i]);
    }
    signal(SIGCHLD, SIG_DFL); /* if it were ignored, children could not be waited for */
    if (sigprocmask(SIG_BLOCK, &set, &signals->before) != 0) return -1;
    signals->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return signals->fd < 0 ? -1 : 0;
}

int launcher_signals_next(const launcher_signals *signals) {
    struct signalfd_siginfo info;
    return read(signals->fd, &info, sizeof info) == sizeof info ? (int)info.ssi_signo : 0;
}

void launcher_start_set_due(launcher_start *start, launcher_deadline deadline, double seconds) {
    start->due[deadline] = program_now_s() + seconds;
}

bool launcher_recovery_has_stepped(const launcher_recovery *r) {
    return r->reached_at[RANKS_PHASE_STEPPED] > 0;
}

void launcher_recovery_notice(launcher_run *run, double alive_at, double noticed, bool is_planned) {
    launcher_recovery *r = &run->recovery;
    if (r->is_noticed) return;
    r->is_noticed = true;
    r->alive_at = alive_at > 0 && alive_at < noticed ? alive_at : noticed;
    r->noticed_at = noticed;
    if (is_planned)
        r->planned++;
    else
        r->failures++;
}

void launcher_recovery_ended(launcher_run *run) {
    const launcher_job *job = &run->start.job;
    int64_t most = -1; /* the most steps that any rank has done */
    for (int i = 0; i < job->ranks; i++)
        if (job->members[i].report.phase >= RANKS_PHASE_LOADED &&
            (int64_t)job->members[i].report.step > most)
            most = (int64_t)job->members[i].report.step;
    run->recovery.ended_at = program_now_s();
    /* if no rank has loaded, the steps of the previous start are still to be computed again */
    if (most >= 0) run->recovery.step = most;
}

void launcher_recovery_begin(launcher_run *run) {
    launcher_recovery *r = &run->recovery;
    if (run->start.number == 1) r->step = -1;
    memset(r->reached_at, 0, sizeof r->reached_at);
    r->is_noticed = false;
}

static const char *plural_of_step(int64_t n) { return n == 1 ? "step" : "steps"; }

static void print_line(launcher_run *run) {
    launcher_recovery *r = &run->recovery;
    const double *at = r->reached_at;
    const char *resumed = run->start.job.resumed;
    int64_t from = 0;
    if (sscanf(resumed, "step %" SCNd64, &from) != 1) from = 0;
    const int64_t lost = r->step > from ? r->step - from : 0;
    const double sum = at[RANKS_PHASE_STEPPED] - r->alive_at;
    r->steps_lost += lost;
    r->seconds_lost += sum;
    fprintf(stderr,
            "dcp-run: start %d: %s; %" PRId64 " %s to compute again; noticed %.2f s, ended %.2f, "
            "started %.2f, rebuilt %.2f, loaded %.2f, first step %.2f: %.2f s\n",
            run->start.number, *resumed ? resumed : "from the beginning", lost,
            plural_of_step(lost), r->noticed_at - r->alive_at, r->ended_at - r->noticed_at,
            at[RANKS_PHASE_READY] - r->ended_at, at[RANKS_PHASE_REBUILT] - at[RANKS_PHASE_READY],
            at[RANKS_PHASE_LOADED] - at[RANKS_PHASE_REBUILT],
            at[RANKS_PHASE_STEPPED] - at[RANKS_PHASE_LOADED], sum);
}

bool launcher_recovery_update(launcher_run *run) {
    launcher_recovery *r = &run->recovery;
    const launcher_job *job = &run->start.job;
    const double now = program_now_s();
    uint32_t phase = RANKS_PHASE_STEPPED; /* the last one that all ranks have reached */
    if (launcher_recovery_has_stepped(r)) return true;
    for (int i = 0; i < job->ranks; i++)
        if (job->members[i].report.phase < phase) phase = job->members[i].report.phase;
    for (uint32_t i = 1; i <= phase; i++)
        if (r->reached_at[i] == 0) r->reached_at[i] = now;
    if (phase < RANKS_PHASE_STEPPED) return false;
    if (run->start.number > 1) print_line(run);
    return true;
}

void launcher_recovery_summarize(const launcher_run *run) {
    const launcher_recovery *r = &run->recovery;
    if (run->start.number < 2) return;
    fprintf(stderr,
            "dcp-run: %d starts, %d after failures, %d planned: %" PRId64
            " %s computed again, %.1f s lost\n",
            run->start.number, r->failures, r->planned, r->steps_lost,
            plural_of_step(r->steps_lost), r->seconds_lost);
}
