/* Starting and ending one job. This process is the subreaper of everything below it: whatever loses
 * its parent becomes our child, so that "no children left" proves that the job is gone, and a pid
 * that we kill can be nobody else's, because only we can reap it. Ranks are mpirun's children until
 * then and are reached through pidfds, which never name a later process of the same pid. */
#include "launcher/job.h"

#include <dirent.h>
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

/* In the child. A session of its own, so that Ctrl-C reaches dcp-run alone, which passes it on. */
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

int launcher_job_start(launcher_job *job, int ranks, char *const *program, const sigset_t *mask,
                       int go_on) {
    char number[16];
    char **argv = mpirun_argv(ranks, program, number, sizeof number);
    *job = (launcher_job){.ranks = ranks, .first_gone = -1, .status = EXIT_UNKNOWN};
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

/* The parent in /proc/PID/stat: "pid (name) state ppid ..."; the name may hold anything. */
static pid_t parent_of(const char *pid) {
    char path[64], line[512];
    snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
    FILE *file = fopen(path, "re");
    if (!file) return -1;
    const size_t n = fread(line, 1, sizeof line - 1, file);
    fclose(file);
    line[n] = '\0';
    const char *after_name = strrchr(line, ')');
    int parent;
    if (!after_name || sscanf(after_name + 1, " %*c %d", &parent) != 1) return -1;
    return parent;
}

/* Calls `visit` with each process whose parent is `parent` (also zombies). Processes come and go
 * meanwhile: what vanishes is skipped. */
static void visit_children(pid_t parent, void (*visit)(void *ctx, pid_t child), void *ctx) {
    DIR *dir = opendir("/proc");
    if (!dir) return;
    for (struct dirent *entry; (entry = readdir(dir));) {
        char *end;
        const long pid = strtol(entry->d_name, &end, 10);
        if (pid > 0 && *end == '\0' && parent_of(entry->d_name) == parent) visit(ctx, (pid_t)pid);
    }
    closedir(dir);
}

/* The value of OMPI_COMM_WORLD_RANK in the environment with which `pid` was started; -1 where it
 * has none (yet). */
static int mpi_rank_of(pid_t pid) {
    static const char key[] = "OMPI_COMM_WORLD_RANK=";
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file) return -1;
    char *entry = NULL;
    size_t capacity = 0;
    int rank = -1;
    while (rank < 0 && getdelim(&entry, &capacity, '\0', file) > 0)
        if (strncmp(entry, key, sizeof key - 1) == 0) rank = atoi(entry + sizeof key - 1);
    free(entry);
    fclose(file);
    return rank;
}

typedef struct rank_finder {
    launcher_job *job;
    int signal_new;
} rank_finder;

static void take_rank(void *ctx, pid_t child) {
    rank_finder *finder = ctx;
    launcher_job *job = finder->job;
    const int rank = mpi_rank_of(child);
    if (rank < 0 || rank >= job->ranks || job->members[rank].pid != 0) return;
    const int fd = pidfd_open(child, 0);
    if (fd < 0) return;
    job->members[rank] = (launcher_rank){.pid = child, .fd = fd};
    job->seen++;
    job->alive++;
    if (finder->signal_new) pidfd_send_signal(fd, finder->signal_new, NULL, 0);
}

/* What a rank left behind is our child now. */
static void take_orphan(void *ctx, pid_t child) {
    launcher_job *job = ctx;
    if (child != job->mpirun && mpi_rank_of(child) >= 0) job->launched = 1;
}

int launcher_job_find_ranks(launcher_job *job, int signal_new) {
    rank_finder finder = {job, signal_new};
    const int seen = job->seen;
    if (job->mpirun) visit_children(job->mpirun, take_rank, &finder);
    if (job->seen > 0) job->launched = 1;
    if (!job->launched) visit_children(getpid(), take_orphan, job);
    return job->seen - seen;
}

void launcher_job_rank_gone(launcher_job *job, int rank) {
    close(job->members[rank].fd);
    job->members[rank].fd = -1;
    job->alive--;
    if (job->first_gone < 0) job->first_gone = rank;
}

void launcher_job_reap(launcher_job *job) {
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        if (pid != job->mpirun) continue;
        job->mpirun = 0;
        job->status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
}

void launcher_job_signal_ranks(const launcher_job *job, int signal) {
    for (int r = 0; r < job->ranks; r++)
        if (job->members[r].fd >= 0) pidfd_send_signal(job->members[r].fd, signal, NULL, 0);
}

/* Children first: when it has ended they are ours, and would only be found at the next look. */
static void kill_tree(void *ctx, pid_t child) {
    const launcher_job *job = ctx;
    if (child == job->mpirun) return;
    visit_children(child, kill_tree, ctx);
    kill(child, SIGKILL);
}

void launcher_job_kill_orphans(const launcher_job *job) {
    visit_children(getpid(), kill_tree, (void *)job);
}

static void kill_child(void *ctx, pid_t child) {
    (void)ctx;
    kill(child, SIGKILL);
}

void launcher_job_clear(launcher_job *job) {
    launcher_job_signal_ranks(job, SIGKILL);
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) >= 0 || errno != ECHILD;) {
        if (pid != 0) continue;
        visit_children(getpid(), kill_child, NULL);
        poll(NULL, 0, REAP_POLL_MS);
    }
    for (int r = 0; r < job->ranks; r++)
        if (job->members[r].fd >= 0) close(job->members[r].fd);
    free(job->members);
    job->members = NULL;
    job->mpirun = 0;
}
