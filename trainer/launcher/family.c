#include "launcher/family.h"

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

extern char **environ;

/* Starts a program with no signals blocked. Its stdout can be read from *out. Returns its pid, or
 * -1. */
static pid_t start_program(char *const *argv, int *out) {
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

/* Reads until the end, for at most `limit_s`; drops what does not fit. Returns 0, or -1 if the end
 * was not reached. */
static int read_answer(int fd, double limit_s, char *text, size_t size) {
    const double end = program_now_s() + limit_s;
    struct pollfd ready = {.fd = fd, .events = POLLIN};
    size_t used = 0;
    for (;;) {
        char rest[512];
        const double left = end - program_now_s();
        if (left <= 0 || poll(&ready, 1, (int)(left * 1e3) + 1) <= 0) return -1;
        const bool fits = used + 1 < size;
        const ssize_t n =
            fits ? read(fd, text + used, size - 1 - used) : read(fd, rest, sizeof rest);
        if (n <= 0) return n == 0 ? 0 : -1;
        if (fits) used += (size_t)n;
        text[used] = '\0';
    }
}

int launcher_capture_output(char *const *argv, double limit_s, char *text, size_t size) {
    int fd, status = 0;
    text[0] = '\0';
    const pid_t pid = start_program(argv, &fd);
    if (pid < 0) return -1;
    const bool answered = read_answer(fd, limit_s, text, size) == 0;
    close(fd);
    if (!answered) kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return answered && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool launcher_program_exists(const char *program) {
    if (strchr(program, '/')) return access(program, X_OK) == 0;
    const char *path = getenv("PATH");
    for (const char *at = path ? path : "/usr/bin:/bin"; at;) {
        char full[4096];
        const size_t length = strcspn(at, ":"); /* 0: the working directory */
        snprintf(full, sizeof full, "%.*s/%s", length ? (int)length : 1, length ? at : ".",
                 program);
        if (access(full, X_OK) == 0) return true;
        at = at[length] ? at + length + 1 : NULL;
    }
    return false;
}

static const double ask_limit_s = 30; /* programs may be on a slow file system */

/* mpirun starts the agents of all hosts from dcp-run's host, and all at the same time. Each ssh
 * runs as long as its agent, so if their number were limited, some hosts would never get an
 * agent. */
static const launcher_family_remote by_orted = {
    .option = "--mca",
    .program = "orte_launch_agent",
    .daemon = "orted",
    .at_once = "plm_rsh_num_concurrent",
    .on = {"plm_rsh_no_tree_spawn", "orte_leave_session_attached"},
    .shell = "plm_rsh_agent",
    .shell_variable = "OMPI_MCA_plm_rsh_agent",
    .shell_reporter = "ompi_info",
};

static const launcher_family_remote by_prted = {
    .option = "--prtemca",
    .program = "prte_launch_agent",
    .daemon = "prted",
    .at_once = "plm_ssh_num_concurrent",
    .on = {"plm_ssh_no_tree_spawn", "prte_leave_session_attached"},
    .shell = "plm_ssh_agent",
    .shell_variable = "PRTE_MCA_plm_ssh_agent",
};

static const launcher_family_remote by_hydra = {
    .shell_variable = "HYDRA_LAUNCHER_EXEC",
    .starter = "-launcher rsh -launcher-exec",
    .starter_words = "HYDRA_LAUNCHER_EXTRA_ARGS",
};

static const launcher_family families[] = {
    {.name = "Open MPI 5",
     .banner = "(Open", /* matches "(Open MPI)", and "(OpenRTE)", which orterun prints */
     .from = 5,
     .always = "--bind-to none",
     .tag = "--tag-output",
     .tag_end = " ",
     .one_host = "--oversubscribe",
     .host = "--host",
     .host_file = "--hostfile",
     .slots = " slots=",
     .pass = "-x",
     .quiet = "PRTE_MCA_prte_execute_quiet",
     .rank_variables = &program_launchers[PROGRAM_BY_OPEN_MPI],
     .remote = &by_prted},
    {.name = "Open MPI 4",
     .banner = "(Open",
     .from = 4,
     .always = "--bind-to none",
     .tag = "--tag-output",
     .tag_end = "",
     .one_host = "--oversubscribe",
     .host = "--host",
     .host_file = "--hostfile",
     .slots = " slots=",
     .pass = "-x",
     .quiet = "OMPI_MCA_orte_execute_quiet",
     .rank_variables = &program_launchers[PROGRAM_BY_OPEN_MPI],
     .remote = &by_orted},
    {.name = "MPICH",
     .banner = "HYDRA build details:",
     .from = 4,
     .always = "-bind-to none -rmk user", /* -rmk user: ignore batch systems */
     .tag = "-prepend-pattern [%g,%r]<stdout>:",
     .tag_end = "",
     .one_host = "-launcher fork",
     .host = "-hosts",
     .host_file = "-f",
     .slots = ":",
     .pass_list = "-genvlist",
     .rank_variables = &program_launchers[PROGRAM_BY_PMI],
     .bare_signals = true,
     .hands_mask_on = true,
     .remote = &by_hydra},
};

const launcher_family *launcher_family_of(const char *version) {
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        const char *at = strstr(version, families[i].banner);
        if (at && atoi(at + strcspn(at, "0123456789")) >= families[i].from) return &families[i];
    }
    return NULL;
}

int launcher_family_find(const launcher_family **out) {
    char *const ask[] = {"mpirun", "--version", NULL};
    char text[4096];
    *out = NULL;
    if (!launcher_program_exists(ask[0]))
        return program_fail(PROGRAM_FAILED,
                            "there is no mpirun in PATH: install the one of the MPI that the "
                            "program is built with (Debian: openmpi-bin, or mpich)");
    const int status = launcher_capture_output(ask, ask_limit_s, text, sizeof text);
    if (status != 0)
        return program_fail(PROGRAM_FAILED, "'mpirun --version' fails (status %d)", status);
    *out = launcher_family_of(text);
    if (*out) return 0;
    text[strcspn(text, "\n")] = '\0';
    return program_refuse("dcp-run supports the mpirun of Open MPI and of MPICH, version 4 or "
                          "later; the one in PATH reports: %s",
                          text);
}
