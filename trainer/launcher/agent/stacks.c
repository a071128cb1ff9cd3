#include "launcher/agent/processes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOT_INSTALLED = 127, TEXT = 1024 };

/* Finds the first line that begins with `key` in a file of /proc, and copies the rest of the line
 * to `out`; "" if there is none. */
static void read_line(const char *folder, const char *file, const char *key, char *out) {
    char path[128], line[TEXT];
    out[0] = '\0';
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *stream = fopen(path, "re");
    while (stream && !*out && fgets(line, sizeof line, stream)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, key, strlen(key)) == 0) snprintf(out, TEXT, "%s", line + strlen(key));
    }
    if (stream) fclose(stream);
}

static void write_thread(const char *folder, long thread, int fd) {
    char name[TEXT], state[TEXT], where[TEXT], call[TEXT];
    read_line(folder, "status", "Name:\t", name);
    read_line(folder, "status", "State:\t", state);
    read_line(folder, "wchan", "", where);
    read_line(folder, "syscall", "", call);
    const bool waits = *where && strcmp(where, "0") != 0;
    const bool calls = *call && strcmp(call, "running") != 0;
    if (!*state) return; /* the thread has ended */
    dprintf(fd, "thread %ld (%s), state %s%s%s%s%s\n", thread, name, state, waits ? ", in " : "",
            waits ? where : "", calls ? ", system call " : "", calls ? call : "");
}

static void write_threads(pid_t pid, int fd) {
    char folder[64];
    snprintf(folder, sizeof folder, "/proc/%d/task", (int)pid);
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char path[sizeof folder + 32];
        const long thread = strtol(entry->d_name, NULL, 10);
        snprintf(path, sizeof path, "%s/%ld", folder, thread);
        if (thread > 0) write_thread(path, thread, fd);
    }
    if (dir) closedir(dir);
}

static bool is_stopped(pid_t pid) {
    char folder[64], state[TEXT];
    snprintf(folder, sizeof folder, "/proc/%d", (int)pid);
    read_line(folder, "status", "State:\t", state);
    return state[0] == 'T';
}

static void exec_tool(char *const *argv, int fd) {
    sigset_t none;
    sigemptyset(&none); /* gdb waits for SIGCHLD */
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGCHLD, SIG_DFL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    setpgid(0, 0);
    const int nothing = open("/dev/null", O_RDONLY);
    if (dup2(fd, STDOUT_FILENO) < 0 || dup2(fd, STDERR_FILENO) < 0 || dup2(nothing, 0) < 0)
        _exit(1);
    execvp(argv[0], argv);
    _exit(errno == ENOENT ? NOT_INSTALLED : 1);
}

/* Runs a program for at most `limit_s`. Returns its exit status; -1 if it was killed or could not
 * be started. */
static int run_tool(char *const *argv, double limit_s, int fd) {
    int status = -1;
    const pid_t tool = fork();
    if (tool < 0) return -1;
    if (tool == 0) exec_tool(argv, fd);
    struct pollfd end = {.fd = pidfd_open(tool, 0), .events = POLLIN};
    if (poll(&end, 1, (int)(limit_s * 1e3)) != 1) {
        dprintf(fd, "%s did not answer within %g s\n", argv[0], limit_s);
        kill(-tool, SIGKILL);
        kill(tool, SIGKILL);
    }
    if (end.fd >= 0) close(end.fd);
    waitpid(tool, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Writes the stacks of a process, obtained with the first of the tools that is installed. */
static void write_stacks(pid_t pid, double limit_s, int fd) {
    char number[16];
    snprintf(number, sizeof number, "%d", (int)pid);
    char *gdb[] = {"gdb",
                   "-nx",
                   "-batch",
                   "-p",
                   number,
                   "-iex",
                   "set debuginfod enabled off",
                   "-iex",
                   "set auto-load no",
                   "-ex",
                   "thread apply all bt",
                   NULL};
    char *eu_stack[] = {"eu-stack", "-p", number, NULL};
    const bool was_stopped = is_stopped(pid);
    int status = run_tool(gdb, limit_s, fd);
    if (status == NOT_INSTALLED) status = run_tool(eu_stack, limit_s, fd);
    /* a tool that is killed while it attaches may leave the process stopped */
    if (status != NOT_INSTALLED && !was_stopped) kill(pid, SIGCONT);
}

void launcher_stacks_write(const pid_t *pids, const int *ranks, size_t n, double limit_s, int fd) {
    for (size_t i = 0; i < n; i++) {
        char folder[64], name[TEXT];
        snprintf(folder, sizeof folder, "/proc/%d", (int)pids[i]);
        read_line(folder, "status", "Name:\t", name);
        dprintf(fd, "== ");
        if (ranks) dprintf(fd, "rank %d, ", ranks[i]);
        dprintf(fd, "process %d (%s) ==\n", (int)pids[i], *name ? name : "gone");
        write_threads(pids[i], fd);
        if (*name) write_stacks(pids[i], limit_s, fd);
    }
}
