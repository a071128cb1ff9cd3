#include "launcher/agent/remote.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launcher/agent/agent.h"
#include "programs/program.h"

enum { CONNECT_MS = 3000, KEY_MS = 10000 };

/* Connects to the address, within CONNECT_MS. Returns the descriptor, or -1 with errno. */
static int connect_to(const char *address, int port) {
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    const bool is_six = inet_pton(AF_INET6, address, &six.sin6_addr) == 1;
    if (!is_six && inet_pton(AF_INET, address, &four.sin_addr) != 1) {
        errno = EINVAL;
        return -1;
    }
    const int fd =
        socket(is_six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    int code = ETIMEDOUT, on = 1;
    socklen_t size = sizeof code;
    if (fd < 0) return -1;
    const int done = is_six ? connect(fd, (const void *)&six, sizeof six)
                            : connect(fd, (const void *)&four, sizeof four);
    if (done != 0 && errno != EINPROGRESS)
        code = errno;
    else if (poll(&ready, 1, CONNECT_MS) == 1)
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &size);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (code == 0) return fd;
    close(fd);
    errno = code;
    return -1;
}

static int find_run(const char *addresses, int port) {
    char *list = strdup(addresses), *rest = list;
    int fd = -1;
    for (char *one; fd < 0 && rest && (one = strsep(&rest, ","));) fd = connect_to(one, port);
    free(list);
    return fd;
}

static const char proxy_number[] = "--proxy-id"; /* an option of MPICH's daemon */

static json_int_t number_after(char **argv, const char *word) {
    for (char **arg = argv; arg[0] && arg[1]; arg++)
        if (strcmp(arg[0], word) == 0) return atoi(arg[1]);
    return -1;
}

/* Describes which of the run's hosts this is: its names, and the number that mpirun has given to
 * the daemon here. */
static json_t *describe_self(const char *key, char **argv) {
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    const char *node = getenv("SLURMD_NODENAME");
    return json_pack("{s:s,s:s,s:s,s:I,s:I}", "key", key, "host", name, "node", node ? node : "",
                     "daemon", number_after(argv, "ess_base_vpid"), "place",
                     number_after(argv, proxy_number));
}

static void exec_program(void *ctx) {
    char **argv = ctx;
    sigset_t
        held; /* a SIGTERM to a whole Slurm step must not end orted before the ranks have saved */
    sigemptyset(&held);
    sigaddset(&held, SIGTERM);
    sigaddset(&held, SIGPIPE);
    sigprocmask(SIG_SETMASK, &held, NULL);
    execvp(argv[0], argv);
    fprintf(stderr,
            "dcp-run agent: cannot run %s: %s; install the MPI of dcp-run's host on this one\n",
            argv[0], strerror(errno));
    _exit(127);
}

/* Reads the key from stdin. Returns 0, or -1 if stdin has no key. */
static int read_key(char key[LAUNCHER_KEY_BYTES + 1]) {
    struct pollfd ready = {.fd = STDIN_FILENO, .events = POLLIN};
    size_t n = 0;
    while (n < LAUNCHER_KEY_BYTES && poll(&ready, 1, KEY_MS) == 1) {
        const ssize_t more = read(STDIN_FILENO, key + n, LAUNCHER_KEY_BYTES - n);
        if (more <= 0) break;
        n += (size_t)more;
    }
    key[n] = '\0';
    return strspn(key, "0123456789abcdef") == LAUNCHER_KEY_BYTES ? 0 : -1;
}

/* Gets the key, and hides it from the program that is started. */
static int take_key(char key[LAUNCHER_KEY_BYTES + 1]) {
    const char *passed = getenv(LAUNCHER_KEY);
    if (!passed || !*passed) return read_key(key);
    snprintf(key, LAUNCHER_KEY_BYTES + 1, "%s", passed);
    unsetenv(LAUNCHER_KEY);
    return 0;
}

int launcher_remote_main(int argc, char **argv) {
    if (argc <= LAUNCHER_REMOTE_WORDS)
        return program_fail(PROGRAM_USAGE,
                            "'agent' is only for dcp-run itself, which uses it with --hosts");
    char **program = argv + LAUNCHER_REMOTE_WORDS;
    char name[256] = "", key[LAUNCHER_KEY_BYTES + 1];
    launcher_folders folders;
    launcher_channel up;
    gethostname(name, sizeof name - 1);
    if (take_key(key) != 0) {
        fprintf(stderr,
                "dcp-run agent on %s: the key of the run is not on stdin: the program that starts "
                "commands on other hosts (plm_rsh_agent of Open MPI) must pass its stdin on, as "
                "ssh does without -n\n",
                name);
        return PROGRAM_FAILED;
    }
    const int fd = find_run(argv[3], atoi(argv[2]));
    if (fd < 0) {
        fprintf(stderr, "dcp-run agent on %s: cannot reach dcp-run at %s, port %s: %s\n", name,
                argv[3], argv[2], strerror(errno));
        return PROGRAM_FAILED;
    }
    if (launcher_folders_join(&folders, (const char *const[]){argv[4], argv[5]}) != 0)
        return PROGRAM_FAILED;
    const int by = number_after(program, proxy_number) < 0 ? PROGRAM_BY_OPEN_MPI : PROGRAM_BY_PMI;
    launcher_folders_set(&folders);
    unsetenv("DCP_RUN_JOB");
    launcher_channel_open(&up, fd);
    launcher_agent_run(&(launcher_agent_work){.channel = &up,
                                              .folders = &folders,
                                              .rank = program_launchers[by].rank,
                                              .lease_s = LAUNCHER_LEASE_S,
                                              .ends_with_child = by == PROGRAM_BY_PMI,
                                              .hello = describe_self(key, program),
                                              .exec = exec_program,
                                              .ctx = program});
}
