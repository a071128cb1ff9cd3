#include "launcher/slurm.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "programs/program.h"

/* A lost host is noticed after 4 s without a word of dcp-run: it must not wait longer than this. */
static const double ask_limit_s = 2;

extern char **environ;

/* Starts scontrol with stdout into *out, and without our blocked signals. Its pid, or -1. */
static pid_t start_scontrol(char *const *argv, int *out) {
    int ends[2];
    pid_t pid = -1;
    sigset_t none;
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    if (pipe2(ends, O_CLOEXEC) != 0) return -1;
    sigemptyset(&none);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    const int failed = posix_spawnp(&pid, argv[0], &files, &attributes, argv, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    close(ends[1]);
    if (failed) close(ends[0]);
    *out = ends[0];
    return failed ? -1 : pid;
}

/* Reads until the end, for at most the limit; what is longer than the text is read and dropped. 0,
 * or -1 where the end was not reached. */
static int read_answer(int fd, char *text, size_t size) {
    const double end = program_now_s() + ask_limit_s;
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    size_t used = 0;
    for (;;) {
        char rest[512];
        const double left = end - program_now_s();
        if (left <= 0 || poll(&ready, 1, (int)(left * 1e3) + 1) <= 0) return -1;
        const int fits = used + 1 < size;
        const ssize_t n =
            fits ? read(fd, text + used, size - 1 - used) : read(fd, rest, sizeof rest);
        if (n <= 0) return n == 0 ? 0 : -1;
        if (fits) used += (size_t)n;
        text[used] = '\0';
    }
}

/* What scontrol says, and its exit status; -1: it is missing or does not answer. */
static int ask_scontrol(char *const *argv, char *text, size_t size) {
    int fd, status = 0;
    text[0] = '\0';
    const pid_t pid = start_scontrol(argv, &fd);
    if (pid < 0) return -1;
    const int answered = read_answer(fd, text, size) == 0;
    close(fd);
    if (!answered) kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return answered && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int is_in_path(const char *program) {
    const char *path = getenv("PATH");
    for (const char *at = path; at && *at;) {
        char full[4096];
        const size_t length = strcspn(at, ":");
        snprintf(full, sizeof full, "%.*s/%s", (int)length, at, program);
        if (access(full, X_OK) == 0) return 1;
        at += length + (at[length] == ':');
    }
    return 0;
}

/* Of a job on this node alone mpirun asks nothing of Slurm. */
static int has_other_nodes(void) {
    const char *nodes = getenv("SLURM_JOB_NUM_NODES");
    return !getenv("SLURMD_NODENAME") || !nodes || strcmp(nodes, "1") != 0;
}

int launcher_slurm_check(void) {
    static const char *const needed[] = {"srun", "scontrol"};
    char *const ping[] = {"scontrol", "ping", NULL};
    char text[512];
    if (!has_other_nodes()) return 0;
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (!is_in_path(needed[i]))
            return program_fail(PROGRAM_FAILED,
                                "this is Slurm job %s, and %s, which starts ranks on its nodes, is "
                                "not in PATH: install Slurm's client programs, or name hosts by "
                                "--hosts",
                                getenv("SLURM_JOB_ID"), needed[i]);
    if (ask_scontrol(ping, text, sizeof text) == 0) return 0;
    return program_fail(PROGRAM_FAILED,
                        "this is Slurm job %s, and no controller of Slurm answers ('scontrol "
                        "ping'): start slurmctld, or outside of a job unset SLURM_JOB_ID",
                        getenv("SLURM_JOB_ID"));
}

/* A step has its CPUs for itself, and that of the last start may still be ending. */
void launcher_slurm_set_environment(void) {
    if (getenv("SLURM_JOB_ID")) setenv("SLURM_OVERLAP", "1", 1);
}

/* What follows `key` in the text; NULL where it has none. */
static const char *value_of(const char *text, const char *key) {
    const char *found = strstr(text, key);
    return found ? found + strlen(key) : NULL;
}

static int begins_with(const char *text, const char *word) {
    return text && strncmp(text, word, strlen(word)) == 0;
}

/* The lines of `scontrol show job` that say so. While a preempted job has its grace time it runs
 * on, with PreemptTime set; when it is put back into the queue, Restarts is counted. */
static int tells_preemption(const char *text) {
    const char *eligible = value_of(text, "\n   PreemptEligibleTime=");
    const char *when = eligible ? value_of(eligible, " PreemptTime=") : NULL;
    const char *requeue = value_of(text, "\n   Requeue=");
    const char *restarts = requeue ? value_of(requeue, " Restarts=") : NULL;
    const char *ours = getenv("SLURM_RESTART_COUNT");
    if (begins_with(value_of(text, "\n   JobState="), "CANCELLED")) return 0;
    if (when && !begins_with(when, "None")) return 1;
    if (begins_with(value_of(text, "\n   JobState="), "PREEMPTED")) return 1;
    return restarts && atol(restarts) > (ours ? atol(ours) : 0);
}

int launcher_slurm_is_preempted(void) {
    char *job = getenv("SLURM_JOB_ID");
    char *const show[] = {"scontrol", "show", "job", job, NULL};
    char text[8192];
    if (!job || !*job) return 0;
    return ask_scontrol(show, text, sizeof text) == 0 && tells_preemption(text);
}
