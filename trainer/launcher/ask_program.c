#include "launcher/ask_program.h"

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

/* Starts a program with stdout into *out, and without our blocked signals. Its pid, or -1. */
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

/* Reads until the end, for at most the limit; what is longer than the text is read and dropped. 0,
 * or -1 where the end was not reached. */
static int read_answer(int fd, double limit_s, char *text, size_t size) {
    const double end = program_now_s() + limit_s;
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

int launcher_ask(char *const *argv, double limit_s, char *text, size_t size) {
    int fd, status = 0;
    text[0] = '\0';
    const pid_t pid = start_program(argv, &fd);
    if (pid < 0) return -1;
    const int answered = read_answer(fd, limit_s, text, size) == 0;
    close(fd);
    if (!answered) kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return answered && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int launcher_ask_finds(const char *program) {
    if (strchr(program, '/')) return access(program, X_OK) == 0;
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
