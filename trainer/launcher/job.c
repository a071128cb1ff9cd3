/* Starting and ending one job. This process is the subreaper of everything below it: whatever loses
 * its parent becomes our child, so that "no children left" proves that the job is gone, and a pid
 * that we kill can be nobody else's, because only we can reap it. Ranks are mpirun's children until
 * then and are reached through pidfds, which never name a later process of the same pid. */
#include "launcher/job.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fcntl.h>

#include "launcher/procs.h"

enum { EXIT_UNKNOWN = 3, EXIT_CANNOT_EXEC = 127, REAP_POLL_MS = 5 };

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

/* Open MPI refuses root unless told; a thread pool a core in every rank helps nobody. */
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

/* In the child. Its own session: Ctrl-C reaches dcp-run alone, which passes it on in good order. */
static _Noreturn void exec_mpirun(char *const *argv, pid_t parent, const sigset_t *mask,
                                  int go_on) {
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* mpirun then ends its ranks, with SIGKILL after a second */
    if (getppid() != parent) _exit(EXIT_CANNOT_EXEC);
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0) dup2(null, STDIN_FILENO);
    set_environment(go_on);
    sigprocmask(SIG_SETMASK, mask, NULL);
    execvp(argv[0], argv);
    fprintf(stderr, "dcp-run: cannot run mpirun: %s; install openmpi-bin\n", strerror(errno));
    _exit(EXIT_CANNOT_EXEC);
}

int job_start(run_job *job, int ranks, char *const *program, const sigset_t *mask, int go_on) {
    char number[16];
    char **argv = mpirun_argv(ranks, program, number, sizeof number);
    *job = (run_job){.ranks = ranks, .first_gone = -1, .status = EXIT_UNKNOWN};
    job->members = calloc((size_t)ranks, sizeof *job->members);
    if (!argv || !job->members) goto fail;
    for (int r = 0; r < ranks; r++) job->members[r].fd = -1;

    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const pid_t parent = getpid(), child = fork();
    if (child < 0) goto fail;
    if (child == 0) exec_mpirun(argv, parent, mask, go_on);
    job->mpirun = child;
    free(argv);
    return 0;

fail:
    fprintf(stderr, "dcp-run: cannot start mpirun: %s\n", strerror(errno));
    free(job->members);
    free(argv);
    return -1;
}

typedef struct rank_finder {
    run_job *job;
    int signal_new;
} rank_finder;

static void take_rank(void *ctx, pid_t child) {
    rank_finder *finder = ctx;
    run_job *job = finder->job;
    const int rank = procs_mpi_rank(child);
    if (rank < 0 || rank >= job->ranks || job->members[rank].pid != 0) return;
    const int fd = pidfd_open(child, 0);
    if (fd < 0) return;
    job->members[rank] = (job_rank){.pid = child, .fd = fd};
    job->seen++;
    job->alive++;
    if (finder->signal_new) pidfd_send_signal(fd, finder->signal_new, NULL, 0);
}

/* What a rank left behind is our child now. */
static void take_orphan(void *ctx, pid_t child) {
    run_job *job = ctx;
    if (child != job->mpirun && procs_mpi_rank(child) >= 0) job->launched = 1;
}

int job_find_ranks(run_job *job, int signal_new) {
    rank_finder finder = {job, signal_new};
    const int seen = job->seen;
    if (job->mpirun) procs_children(job->mpirun, take_rank, &finder);
    if (job->seen > 0) job->launched = 1;
    if (!job->launched) procs_children(getpid(), take_orphan, job);
    return job->seen - seen;
}

void job_rank_gone(run_job *job, int rank) {
    close(job->members[rank].fd);
    job->members[rank].fd = -1;
    job->alive--;
    if (job->first_gone < 0) job->first_gone = rank;
}

void job_reap(run_job *job) {
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        if (pid != job->mpirun) continue;
        job->mpirun = 0;
        job->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
}

void job_signal_ranks(const run_job *job, int signal) {
    for (int r = 0; r < job->ranks; r++)
        if (job->members[r].fd >= 0) pidfd_send_signal(job->members[r].fd, signal, NULL, 0);
}

/* Its children first: without it they would be ours, and out of sight until the next look. */
static void kill_tree(void *ctx, pid_t child) {
    const run_job *job = ctx;
    if (child == job->mpirun) return;
    procs_children(child, kill_tree, ctx);
    kill(child, SIGKILL);
}

void job_kill_orphans(const run_job *job) { procs_children(getpid(), kill_tree, (void *)job); }

static void kill_child(void *ctx, pid_t child) {
    (void)ctx;
    kill(child, SIGKILL);
}

void job_clear(run_job *job) {
    job_signal_ranks(job, SIGKILL);
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) >= 0 || errno != ECHILD;) {
        if (pid != 0) continue;
        procs_children(getpid(), kill_child, NULL);
        poll(NULL, 0, REAP_POLL_MS);
    }
    for (int r = 0; r < job->ranks; r++)
        if (job->members[r].fd >= 0) close(job->members[r].fd);
    free(job->members);
    job->members = NULL;
    job->mpirun = 0;
}
