/* Starting and ending one job. Ranks are mpirun's children while it lives, and are reached through
 * pidfds, which never name a later process of the same pid. */
#include "launcher/job.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/processes.h"
#include "programs/program.h"

enum { EXIT_UNKNOWN = 3, EXIT_CANNOT_EXEC = 127 };
enum { LOOK_MS = 100 }; /* between two looks at the clock */

static char **mpirun_argv(int ranks, char *const *program, char *number, size_t number_size) {
    static const char *const fixed[] = {"mpirun",    "--quiet", "--oversubscribe",
                                        "--bind-to", "none",    "-n"};
    const size_t n_fixed = sizeof fixed / sizeof *fixed;
    size_t n_program = 0;
    while (program[n_program]) n_program++;
    char **argv = calloc(n_fixed + 1 + n_program + 1, sizeof *argv);
    if (!argv) return NULL;
    snprintf(number, number_size, "%d", ranks);
    memcpy(argv, fixed, sizeof fixed);
    argv[n_fixed] = number;
    memcpy(argv + n_fixed + 1, program, n_program * sizeof *argv);
    return argv;
}

/* Open MPI refuses to run as root unless told. One thread a rank, so that the thread pools of ranks
 * do not compete for cores. */
static void set_environment(int go_on) {
    if (geteuid() == 0) {
        setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
        setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
    }
    setenv("OMP_NUM_THREADS", "1", 0);
    if (go_on)
        setenv("DCP_RUN_RESTART", "1", 1);
    else
        unsetenv("DCP_RUN_RESTART");
}

typedef struct job_start {
    launcher_job *job;
    char *const *argv; /* of mpirun */
    const sigset_t *mask;
    int go_on;
} job_start;

/* Nested jobs belong to all of those that they are part of. */
static void add_mark(const char *mark) {
    char *marks = NULL;
    const char *outer = getenv("DCP_RUN_JOB");
    if (asprintf(&marks, "%s%s%s", outer ? outer : "", outer ? ":" : "", mark) < 0) return;
    setenv("DCP_RUN_JOB", marks, 1);
    free(marks);
}

/* In a child of the guard. A session of its own, so that Ctrl-C reaches dcp-run alone, which passes
 * it on. */
static void exec_mpirun(void *ctx) {
    const job_start *start = ctx;
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGINT); /* of the guard; mpirun then ends its ranks */
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0) dup2(null, STDIN_FILENO);
    set_environment(start->go_on);
    launcher_folders_set(&start->job->folders);
    add_mark(start->job->guard.mark);
    /* It would end when it has found some output without a reader, and at a SIGTERM to all
     * processes of a service, before the ranks have saved. Ranks do not inherit this. */
    sigset_t mask = *start->mask;
    sigaddset(&mask, SIGPIPE);
    sigaddset(&mask, SIGTERM);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    execvp(start->argv[0], start->argv);
    fprintf(stderr, "dcp-run: cannot run mpirun: %s; install openmpi-bin\n", strerror(errno));
    _exit(EXIT_CANNOT_EXEC);
}

int launcher_job_start(launcher_job *job, int ranks, char *const *program, const sigset_t *mask,
                       int go_on) {
    char number[16];
    *job = (launcher_job){.ranks = ranks, .first_gone = -1, .status = EXIT_UNKNOWN};
    if (launcher_folders_make(&job->folders) != 0) return -1;
    char **argv = mpirun_argv(ranks, program, number, sizeof number);
    job->members = calloc((size_t)ranks, sizeof *job->members);
    job_start start = {job, argv, mask, go_on};
    if (!argv || !job->members) goto fail;
    for (int r = 0; r < ranks; r++) job->members[r].fd = -1;
    if (launcher_guard_start(&job->guard, &job->folders, exec_mpirun, &start, &job->mpirun) != 0)
        goto fail;
    free(argv);
    return 0;

fail:
    fprintf(stderr, "dcp-run: cannot start mpirun: %s\n", strerror(errno));
    free(job->members);
    free(argv);
    launcher_folders_remove(&job->folders);
    launcher_folders_free(&job->folders);
    return -1;
}

/* The rank that `pid` was started as; -1 where it is none (yet). */
static int mpi_rank_of(pid_t pid) {
    char *value = launcher_processes_variable(pid, "OMPI_COMM_WORLD_RANK");
    const int rank = value ? atoi(value) : -1;
    free(value);
    return rank;
}

typedef struct rank_finder {
    launcher_job *job;
    int signal_new;
} rank_finder;

static void take_rank(void *ctx, const launcher_process *child) {
    rank_finder *finder = ctx;
    launcher_job *job = finder->job;
    const int rank = mpi_rank_of(child->pid);
    if (rank < 0 || rank >= job->ranks || job->members[rank].pid != 0) return;
    const int fd = launcher_processes_open(child);
    if (fd < 0) return;
    job->members[rank] = (launcher_rank){.pid = child->pid, .fd = fd};
    job->seen++;
    job->alive++;
    if (finder->signal_new) pidfd_send_signal(fd, finder->signal_new, NULL, 0);
}

/* What a rank left behind is the guard's child now. */
static void take_orphan(void *ctx, const launcher_process *child) {
    launcher_job *job = ctx;
    if (child->pid != job->mpirun && mpi_rank_of(child->pid) >= 0) job->launched = 1;
}

int launcher_job_find_ranks(launcher_job *job, int signal_new) {
    rank_finder finder = {job, signal_new};
    const int seen = job->seen;
    if (job->mpirun) launcher_processes_visit(job->mpirun, take_rank, &finder);
    if (job->seen > 0) job->launched = 1;
    if (!job->launched) launcher_processes_visit(job->guard.pid, take_orphan, job);
    return job->seen - seen;
}

void launcher_job_rank_gone(launcher_job *job, int rank) {
    close(job->members[rank].fd);
    job->members[rank].fd = -1;
    job->alive--;
    if (job->first_gone < 0) job->first_gone = rank;
}

void launcher_job_hear(launcher_job *job) {
    launcher_news news;
    const int heard = launcher_guard_hear(&job->guard, &news);
    if (heard == 0) return;
    job->mpirun = 0;
    if (heard < 0) {
        fprintf(stderr, "dcp-run: the process that guards the job was killed\n");
        return;
    }
    const int status = news.status;
    job->launched |= news.waited;
    job->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void launcher_job_signal_ranks(const launcher_job *job, int signal) {
    for (int r = 0; r < job->ranks; r++)
        if (job->members[r].fd >= 0) pidfd_send_signal(job->members[r].fd, signal, NULL, 0);
}

/* Ranks that were seen are waited for by themselves: where the guard was killed, one that has
 * written over its environment would not be found. */
static int wait_for_ranks(const launcher_job *job, double limit_s) {
    const double end =
        program_now_s() + (limit_s > LAUNCHER_PATIENCE_S ? limit_s : LAUNCHER_PATIENCE_S);
    for (int r = 0; r < job->ranks; r++) {
        struct pollfd ended = {.fd = job->members[r].fd, .events = POLLIN};
        while (ended.fd >= 0 && poll(&ended, 1, LOOK_MS) == 0)
            if (program_now_s() >= end) return -1;
    }
    return 0;
}

int launcher_job_clear(launcher_job *job, double limit_s) {
    launcher_job_signal_ranks(job, SIGKILL);
    int left = launcher_guard_clear(&job->guard, limit_s);
    if (left == 0) left = wait_for_ranks(job, limit_s);
    if (left == 0) launcher_folders_remove(&job->folders); /* where the guard could not */
    launcher_folders_free(&job->folders);
    for (int r = 0; r < job->ranks; r++)
        if (job->members[r].fd >= 0) close(job->members[r].fd);
    free(job->members);
    job->members = NULL;
    job->mpirun = 0;
    return left;
}
